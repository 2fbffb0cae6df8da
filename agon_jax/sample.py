"""Sampling: one jitted program from padded prompts to rollouts.

Prefill, then a while_loop over a KV cache that is updated in place. The forward pass inside the
loop handles all rows and all adapters at once; the loop itself is never vmapped (a vmapped
while_loop would select over the whole cache at every token).

Left out: paged caches and continuous batching; a batch runs until its last row ends.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from agon_jax.distribution import log_prob, sampling_logits
from agon_jax.models.cache import empty_cache
from agon_jax.models.decoder import Decoder
from agon_jax.types import Prompts, PyTree, Rollouts

Array = jax.Array


def row_keys(
    seeds: int | np.ndarray, step: int, stage: int, problems: np.ndarray, rollouts: np.ndarray
) -> Array:
    """[B] PRNG keys that depend on (seed, step, stage, problem, rollout) and on nothing else; `seeds` is
    one for all or [B].

    A resumed run, another number of hosts, another split of the batch or a run within a population
    draws the same samples.
    """
    ints = lambda values: jnp.asarray(values, jnp.uint32)
    return _row_keys(
        ints(np.broadcast_to(seeds, np.shape(problems))), step, stage, ints(problems), ints(rollouts)
    )


@jax.jit
def _row_keys(seeds, step, stage, problems, rollouts):
    # threefry by name: under "unsafe_rbg" the order of two fold_ins would not matter.
    def key_of(seed, problem, rollout):
        key = jax.random.key(seed, impl="threefry2x32")
        for number in (step, stage, problem, rollout):
            key = jax.random.fold_in(key, number)
        return key

    return jax.vmap(key_of)(seeds, problems, rollouts)


def sample(
    model: Decoder,
    variables: PyTree,
    prompts: Prompts,
    keys: Array,
    *,
    max_new_tokens: int,
    stop_ids: tuple[int, ...],
    pad_id: int,
    temperature: float,
    top_p: float = 1.0,
    adapter: np.ndarray | None = None,
    cache_slots: int | None = None,
) -> Rollouts:
    """Sample one completion a row.

    Args:
      model: the decoder.
      variables: {"params": base} and, for a policy, "lora": one adapter; or a stack with a leading
        axis G, of which row i is under number `adapter[i]` or, without that, i % G.
      prompts: [B, T] left-padded.
      keys: [B] PRNG keys, see `row_keys`.
      max_new_tokens: C.
      stop_ids: a sampled id of these ends the row and is part of it.
      pad_id: written into slots after the end (masks say what is real).
      temperature: 0 is greedy.
      top_p: nucleus; 1 samples the policy itself.
      adapter: [B] int32 index of each row's policy.
      cache_slots: size of the KV cache; default T + C.

    Returns:
      Rollouts on the device: [B, C] ids, masks and log-probs under the sampling distribution
      (a greedy row is certain: its log-probs are 0).

    Raises:
      ValueError: the cache cannot hold prompt and completion, or a temperature below 0.
    """
    width = prompts.tokens.shape[1]
    slots = width + max_new_tokens if cache_slots is None else cache_slots
    if width + max_new_tokens > slots:
        raise ValueError(
            f"prompt ({width}) + new tokens ({max_new_tokens}) exceed the KV cache of {slots} slots"
        )
    if temperature < 0 or not 0 < top_p <= 1:
        raise ValueError(f"temperature {temperature} must be >= 0 and top_p {top_p} within (0, 1]")
    return _sample(
        model,
        variables,
        prompts.tokens,
        prompts.mask,
        keys,
        adapter,
        max(temperature, 1e-6),
        max_new_tokens=max_new_tokens,
        slots=slots,
        stop_ids=tuple(stop_ids),
        pad_id=pad_id,
        top_p=float(top_p),
        greedy=temperature == 0,
    )


@functools.partial(
    jax.jit, static_argnames=("model", "max_new_tokens", "slots", "stop_ids", "pad_id", "top_p", "greedy")
)
def _sample(
    model,
    variables,
    tokens,
    mask,
    keys,
    adapter,
    temperature,
    *,
    max_new_tokens,
    slots,
    stop_ids,
    pad_id,
    top_p,
    greedy,
):
    rows = len(tokens)
    stops = jnp.asarray(stop_ids)

    def draw(logits, index, done):
        """Next ids and their log-probs; finished rows get padding."""
        logits = sampling_logits(logits, temperature, top_p)
        if greedy:
            ids, logps = jnp.argmax(logits, axis=-1), jnp.zeros(rows)
        else:
            at_index = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, index)
            noise = jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[-1:]))(at_index)
            ids = jnp.argmax(logits + noise, axis=-1)
            logps = log_prob(logits, ids)
        ids = jnp.where(done, pad_id, ids).astype(jnp.int32)
        return ids, jnp.where(done, 0.0, logps)

    def write(buffer, column, index):
        return jax.lax.dynamic_update_slice(buffer, column[:, None], (0, index))

    def emit(state_rollouts, logits, index, done):
        out, out_mask, out_logps = state_rollouts
        ids, logps = draw(logits, index, done)
        out = write(out, ids, index)
        out_mask = write(out_mask, ~done, index)
        out_logps = write(out_logps, logps, index)
        return (out, out_mask, out_logps), ids, done | jnp.isin(ids, stops)

    def step(state):
        index, rollouts, ids, done, cache = state
        logits, cache = model.apply(variables, ids, cache, adapter, method="decode")
        rollouts, ids, done = emit(rollouts, logits, index, done)
        return index + 1, rollouts, ids, done, cache

    cache = empty_cache(model.config, rows, slots, model.dtype)
    hidden, cache = model.apply(variables, tokens, mask, cache, adapter, method="prefill")
    logits = model.apply(variables, hidden[:, -1], method="unembed")

    blank = (
        jnp.full((rows, max_new_tokens), pad_id, jnp.int32),
        jnp.zeros((rows, max_new_tokens), bool),
        jnp.zeros((rows, max_new_tokens), jnp.float32),
    )
    nobody_done = jnp.zeros(rows, bool)
    rollouts, ids, done = emit(blank, logits, 0, nobody_done)
    _, (out, out_mask, out_logps), _, done, _ = jax.lax.while_loop(
        lambda state: (state[0] < max_new_tokens) & ~jnp.all(state[3]),
        step,
        (jnp.int32(1), rollouts, ids, done, cache),
    )
    return Rollouts(tokens=out, mask=out_mask, logps=out_logps, finished=done)
