"""GRPO for ONE group and ONE sequence; callers vmap.

A variant is an entry of a table: ADVANTAGE_VARIANCES, IMPORTANCE_LEVELS, KL_ESTIMATORS, AGGREGATIONS.
Left out: a value network.
"""

from __future__ import annotations

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

Array = jax.Array
# Above this log-ratio exp overflows in float32 long before the estimate means anything.
_MAX_LOG_RATIO = 20.0

# The square of what advantages are divided by. Centred rewards [K] -> [].
ADVANTAGE_VARIANCES: dict[str, Callable[[Array], Array]] = {
    "population": lambda centred: jnp.mean(centred**2),
    "sample": lambda centred: jnp.sum(centred**2) / (centred.size - 1),
    "none": lambda centred: jnp.float32(1),  # Dr. GRPO (arXiv 2503.20783): centred alone
}


def has_signal(rewards: Array) -> Array:
    """Whether the rewards of one group [K] differ: bool [].

    Tested on the spread, since the float32 standard deviation of equal rewards may be tiny but
    not zero.
    """
    chex.assert_rank(rewards, 1)
    spread = jnp.max(rewards) - jnp.min(rewards)
    return spread > 1e-6 * jnp.maximum(1.0, jnp.max(jnp.abs(rewards)))


def group_advantages(rewards: Array, std: str = "population") -> Array:
    """(R - mean R) / std R over one group [K] (method: equation (1)), float32 [K].

    A group with equal rewards carries no signal: exactly 0 for every member.

    Args:
      rewards: [K].
      std: a key of ADVANTAGE_VARIANCES: of the population (divide by K), of the sample (K - 1), or
        none (centre only).
    """
    rewards = rewards.astype(jnp.float32)
    live = has_signal(rewards)
    centred = rewards - jnp.mean(rewards)
    scale = jnp.sqrt(jnp.where(live, ADVANTAGE_VARIANCES[std](centred), 1.0))
    return jnp.where(live, centred / scale, 0.0)


def _sequence_level(log_ratio: Array, mask: Array) -> Array:
    mean = jnp.sum(log_ratio) / jnp.maximum(jnp.sum(mask), 1)
    return jnp.broadcast_to(mean, log_ratio.shape)


# Masked log-ratios of tokens [C] and their mask [C] -> the log-ratio that stands at each token [C].
IMPORTANCE_LEVELS: dict[str, Callable[[Array, Array], Array]] = {
    "token": lambda log_ratio, mask: log_ratio,
    "sequence": _sequence_level,
}


def importance_ratio(logps: Array, behaviour: Array, mask: Array, level: str = "token") -> Array:
    """policy / behaviour at each token of one sequence [C].

    Args:
      logps: [C] log-probs under the policy.
      behaviour: [C] log-probs under the distribution that the ratio is taken against.
      mask: [C] True on sampled tokens; no other token has a part in value or gradient.
      level: a key of IMPORTANCE_LEVELS. "token": each token's own. "sequence": GSPO (arXiv
        2507.18071, equation (7)), the geometric mean over the sequence, the same at all its tokens,
        so that a gradient through any of them reaches all.
    """
    chex.assert_rank([logps, behaviour, mask], 1)
    return jnp.exp(IMPORTANCE_LEVELS[level](_log_ratio(logps, behaviour, mask), mask))


def clipped_loss(ratio: Array, advantage: Array, mask: Array, clip_low: float, clip_high: float) -> Array:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) for each token of one sequence [C].

    Args:
      ratio: [C] as from `importance_ratio`.
      advantage: [] of the sequence.
      mask: [C] True on sampled tokens; elsewhere loss and gradient are 0.
    """
    chex.assert_rank([ratio, advantage, mask], [1, 0, 1])
    clipped = jnp.clip(ratio, 1 - clip_low, 1 + clip_high)
    return jnp.where(mask, -jnp.minimum(ratio * advantage, clipped * advantage), 0.0)


# J. Schulman, "Approximating KL Divergence" (2020), of log-ratios reference / policy.
KL_ESTIMATORS: dict[str, Callable[[Array], Array]] = {
    "k1": lambda log_ratio: -log_ratio,
    "k2": lambda log_ratio: log_ratio**2 / 2,
    "k3": lambda log_ratio: jnp.expm1(log_ratio) - log_ratio,
}


def kl_to_reference(logps: Array, reference: Array, mask: Array, estimator: str = "k3") -> Array:
    """An estimate of KL(policy || reference) for each token of one sequence [C].

    With p the policy, q the reference and d = log p - log q at a token drawn from p. A loss
    differentiates the estimate at the drawn token, not the draw, so that value and gradient may
    estimate different things (arXiv 2506.09477):

      k1: d. Value unbiased, of either sign. Gradient: 0 in expectation (E_p[grad log p] = 0), noise
        in a loss.
      k2: d^2 / 2. Value biased, equal to the KL to second order in d, never negative. Gradient:
        E_p[d grad log p], exactly that of KL(p || q).
      k3: 1/e^d - 1 + d. Value unbiased, never negative. Gradient: E_p[(1 - q / p) grad log p], exactly
        that of the forward KL(q || p); to first order in d it is that of KL(p || q).

    This holds for tokens drawn from p itself (the first of several epochs, top_p = 1), and for the KL of
    the next token given its prefix: what a token does to the prefixes of later ones is left out.

    Args:
      logps, reference: [C] log-probs; 0 where both agree.
      mask: [C] True on sampled tokens; elsewhere estimate and gradient are 0.
      estimator: a key of KL_ESTIMATORS.
    """
    chex.assert_rank([logps, reference, mask], 1)
    return KL_ESTIMATORS[estimator](_log_ratio(reference, logps, mask))


def _log_ratio(numerator: Array, denominator: Array, mask: Array) -> Array:
    # The mask acts before exp: an inf behind a later `where` would still make the gradient NaN.
    return jnp.clip(jnp.where(mask, numerator - denominator, 0.0), -_MAX_LOG_RATIO, _MAX_LOG_RATIO)


# How tokens are summed into one loss. mask [N, C], active [N], cap of a completion in tokens ->
# weights [N, C]; inactive rows (dropped group, masked) have no weight and are not counted.
Aggregation = Callable[[Array, Array, int], Array]


def sequence_mean(mask: Array, active: Array, cap: int) -> Array:
    """GRPO (arXiv 2402.03300): the mean over active sequences of each sequence's token mean."""
    lengths = jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1)
    return mask * active[:, None] / lengths / jnp.maximum(jnp.sum(active), 1)


def token_mean(mask: Array, active: Array, cap: int) -> Array:
    """DAPO (arXiv 2503.14476): the mean over all tokens of active sequences."""
    weights = (mask * active[:, None]).astype(jnp.float32)
    return weights / jnp.maximum(jnp.sum(weights), 1)


def constant_length(mask: Array, active: Array, cap: int) -> Array:
    """Dr. GRPO (arXiv 2503.20783): the sum over tokens, divided by active sequences times `cap`,
    so that a token weighs the same however long its sequence is.

    Raises:
      ValueError: no cap is given.
    """
    if cap < 1:
        raise ValueError(
            f"constant aggregation divides by the cap of a completion: want at least 1, got {cap}"
        )
    return mask * active[:, None] / (cap * jnp.maximum(jnp.sum(active), 1).astype(jnp.float32))


AGGREGATIONS: dict[str, Aggregation] = {
    "sequence": sequence_mean,
    "token": token_mean,
    "constant": constant_length,
}
