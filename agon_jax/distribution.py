"""The distribution that tokens are drawn from: one definition for sampler and learner.

A log-prob is only comparable with another one under the same temperature and the same support.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array
# Removes a token: far below any logit, finite so that no gradient turns into NaN.
NEVER = -1e30


def sampling_logits(
    logits: Array, temperature: Array | float, top_p: float, kept: Array | None = None
) -> Array:
    """Logits [..., V] of the sampling distribution, float32, unnormalised.

    Args:
      logits: float32 [..., V] of the model.
      temperature: positive scalar (may be traced).
      top_p: static. Below 1, ids outside the nucleus (the smallest set of most likely ids whose
        mass reaches top_p, ties included) get no mass.
      kept: [...] ids that stay in the support whatever their mass. The learner passes the sampled
        ids: in bfloat16 its nucleus may differ from the sampler's by one id, and log 0 would
        destroy the update.
    """
    logits = logits / temperature
    if top_p >= 1.0:
        return logits
    nucleus = _nucleus(jax.lax.stop_gradient(logits), top_p)
    if kept is not None:
        nucleus |= jax.nn.one_hot(kept, logits.shape[-1], dtype=bool)
    return jnp.where(nucleus, logits, NEVER)


def _nucleus(logits: Array, top_p: float) -> Array:
    """[..., V] bool: True inside the nucleus."""
    descending = -jnp.sort(-logits, axis=-1)
    mass = jax.nn.softmax(descending, axis=-1)
    before = jnp.cumsum(mass, axis=-1) - mass
    # The slack keeps rounding of the cumulative sum from admitting one id beyond an exact top_p.
    inside = before < top_p - 1e-6
    threshold = jnp.min(jnp.where(inside, descending, jnp.inf), axis=-1, keepdims=True)
    return logits >= threshold


def log_prob(logits: Array, tokens: Array) -> Array:
    """log softmax(logits)[tokens] without a second [..., V] array: logits [..., V], tokens [...]."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
