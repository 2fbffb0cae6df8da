"""Supervised fine-tuning on (prompt, reply) pairs: all parameters, loss on the reply only.

Makes the bundled tiny base. Left out: packing, gradient accumulation, adapters.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agon_jax import sharding
from agon_jax.logprobs import token_logprobs
from agon_jax.models.decoder import Decoder
from agon_jax.text.prompts import Message
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import PyTree

Example = tuple[list[Message], str]


def make_step(model: Decoder, optimizer: optax.GradientTransformation) -> Callable:
    """(params, opt_state, tokens [B, S], mask [B, S], reply_mask [B, S]) -> (params, opt_state,
    mean negative log-likelihood of a reply token). Params and state are donated."""

    def loss_fn(params, tokens, mask, reply_mask):
        logps = token_logprobs(model, {"params": params}, tokens, mask, start=1, chunk=tokens.shape[1])
        weight = reply_mask[:, 1:].astype(jnp.float32)
        return -jnp.sum(logps * weight) / jnp.sum(weight)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: PyTree, opt_state: PyTree, tokens, mask, reply_mask):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, mask, reply_mask)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return step


def optimizer(steps: int, peak: float) -> optax.GradientTransformation:
    """AdamW with warm-up and cosine decay, gradients clipped at norm 1."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, peak, min(50, steps // 2), steps, peak * 0.05)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))


def batches(
    draw: Callable[[random.Random], Example],
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    seed: int,
    mesh: jax.sharding.Mesh,
    bucket: int = 12,
    pool: int = 4,
) -> Iterator[tuple[jax.Array, jax.Array, jax.Array]]:
    """Endless (tokens, mask, reply_mask), each [batch_size, S] with S a multiple of `bucket`.

    A pool of several batches is sorted by length before it is cut, so that little is padding.
    """
    rng = random.Random(seed)
    place = functools.partial(jax.device_put, device=sharding.sharding_of(mesh)(("rows", None)))
    stop = tokenizer.stop_ids[0]
    while True:
        rows = []
        for _ in range(batch_size * pool):
            messages, reply = draw(rng)
            prompt, prefill = tokenizer.render(messages)
            rows.append((prompt, [*tokenizer.encode(reply.removeprefix(prefill)), stop]))
        rows.sort(key=lambda row: len(row[0]) + len(row[1]))
        chunks = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
        rng.shuffle(chunks)
        for chunk in chunks:
            longest = max(len(p) + len(r) for p, r in chunk)
            width = -(-longest // bucket) * bucket
            prompts = tokenizer.pad([p + r for p, r in chunk], width)
            reply = np.zeros(prompts.mask.shape, bool)
            for i, (_, r) in enumerate(chunk):
                reply[i, width - len(r) :] = True
            yield place(prompts.tokens), place(prompts.mask), place(reply)
