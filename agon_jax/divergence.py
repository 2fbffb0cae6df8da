"""How far the two policies of a pair have drifted apart."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from agon_jax.logprobs import token_logprobs
from agon_jax.models.decoder import Decoder
from agon_jax.types import Batch, PyTree
from agon_jax.update import Objective

_ROWS = 64  # of a member: enough for an estimate


@functools.cache  # methods share the compiled program
def make_divergence(
    model: Decoder, objective: Objective, policies: int
) -> Callable[[PyTree, PyTree, Batch, int], jax.Array | None]:
    """(adapters [S * P, ...], base, batch, drafter) -> [S] KL(drafter || challenger) in nats a token,
    the k3 estimate on the drafter's own rollouts. None for a single policy."""

    @jax.jit
    def divergence(adapters: PyTree, base: PyTree, batch: Batch, drafter: int) -> jax.Array:
        def one(adapter: PyTree, rows: Batch) -> jax.Array:
            start = rows.tokens.shape[1] - rows.completion_mask.shape[1]
            other = token_logprobs(
                model,
                {"params": base, "lora": adapter},
                rows.tokens,
                rows.mask,
                start=start,
                chunk=objective.chunk,
                temperature=objective.temperature,
                top_p=objective.top_p,
            )
            # The mask acts before exp: a nucleus can make the other's log-prob -inf.
            gap = jnp.clip(jnp.where(rows.completion_mask, other - rows.logps, 0.0), -20.0, 20.0)
            return jnp.sum(jnp.expm1(gap) - gap) / jnp.maximum(jnp.sum(rows.completion_mask), 1)

        pairs = lambda x: x.reshape(-1, policies, *x.shape[1:])
        rows = jax.tree.map(lambda x: pairs(x)[:, drafter, :_ROWS], batch)
        others = jax.tree.map(lambda x: pairs(x)[:, policies - 1 - drafter], adapters)
        return jax.vmap(one)(others, rows)

    return divergence if policies == 2 else lambda *_: None
