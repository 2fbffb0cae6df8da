"""GRPO for ONE group and ONE sequence; callers vmap.

Left out: a value network, several epochs on one batch (every batch is used once).
"""

from __future__ import annotations

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

Array = jax.Array
# Above this log-ratio exp overflows in float32 long before the estimate means anything.
_MAX_LOG_RATIO = 20.0


def group_advantages(rewards: Array) -> Array:
    """(R - mean R) / std R over one group [K] (method: equation (1)), float32.

    The standard deviation is the population's (divide by K). A group with equal rewards carries
    no signal: exactly 0 for every member. Equality is tested on the spread, since the float32
    standard deviation of equal rewards may be tiny but not zero.
    """
    chex.assert_rank(rewards, 1)
    rewards = rewards.astype(jnp.float32)
    spread = jnp.max(rewards) - jnp.min(rewards)
    dropped = spread <= 1e-6 * jnp.maximum(1.0, jnp.max(jnp.abs(rewards)))
    centred = rewards - jnp.mean(rewards)
    std = jnp.sqrt(jnp.where(dropped, 1.0, jnp.mean(centred**2)))
    return jnp.where(dropped, 0.0, centred / std)


def clipped_loss(
    logps: Array, behaviour: Array, advantage: Array, mask: Array, clip_low: float, clip_high: float
) -> Array:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) for each token of one sequence [C].

    Args:
      logps: [C] log-probs under the policy.
      behaviour: [C] log-probs under the distribution the tokens were drawn from.
      advantage: [] of the sequence.
      mask: [C] True on sampled tokens; elsewhere loss and gradient are 0.
    """
    chex.assert_rank([logps, behaviour, advantage, mask], [1, 1, 0, 1])
    ratio = jnp.exp(_log_ratio(logps, behaviour, mask))
    clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    return jnp.where(mask, -jnp.minimum(ratio * advantage, clipped * advantage), 0.0)


def kl_to_reference(logps: Array, reference: Array, mask: Array) -> Array:
    """The k3 estimate of KL(policy || reference) for each token of one sequence [C].

    exp(q - p) - (q - p) - 1 with p = logps, q = reference, on tokens drawn from the policy:
    unbiased, never negative, 0 where both agree.
    """
    chex.assert_rank([logps, reference, mask], 1)
    log_ratio = _log_ratio(reference, logps, mask)
    return jnp.expm1(log_ratio) - log_ratio


def _log_ratio(numerator: Array, denominator: Array, mask: Array) -> Array:
    # The mask acts before exp: an inf behind a later `where` would still make the gradient NaN.
    return jnp.clip(jnp.where(mask, numerator - denominator, 0.0), -_MAX_LOG_RATIO, _MAX_LOG_RATIO)


# How tokens are averaged into one loss. mask [N, C] and active [N] -> weights [N, C]; rows of
# dropped groups are inactive: no weight, and not counted in the normaliser.
Aggregation = Callable[[Array, Array], Array]


def sequence_mean(mask: Array, active: Array) -> Array:
    """GRPO: the mean over active sequences of each sequence's token mean."""
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1)
    return mask * active[:, None] / lengths / jnp.maximum(jnp.sum(active), 1)


def token_mean(mask: Array, active: Array) -> Array:
    """DAPO: the mean over all tokens of active sequences."""
    weights = (mask * active[:, None]).astype(jnp.float32)
    return weights / jnp.maximum(jnp.sum(weights), 1)


AGGREGATIONS: dict[str, Aggregation] = {"sequence": sequence_mean, "token": token_mean}
