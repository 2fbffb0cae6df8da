"""The problems are the sample: intervals and paired tests of one run, or of two.

None of them covers the spread between training seeds: `seeds.py` does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest, bootstrap

from agon_jax.stats.checks import check_confidence, pair


def clopper_pearson(correct: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact binomial interval (low, high), as fractions, of `correct` out of `total`.

    No problems say nothing: total 0 gives (0.0, 1.0).

    Raises:
      ValueError: unless 0 <= correct <= total and 0 < confidence < 1.
    """
    check_confidence(confidence)
    if not 0 <= correct <= total:
        raise ValueError(f"need 0 <= correct <= total, got correct={correct}, total={total}")
    if total == 0:
        return 0.0, 1.0
    interval = binomtest(correct, total).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of the exact McNemar test on the same problems.

    Only the problems that exactly one of the two got right count; without any, p is 1.

    Args:
      first, second: [n] bool, the outcomes of the same n problems in the same order.

    Raises:
      ValueError: the arrays are not bool, not 1-D, empty, or of different lengths.
    """
    first, second = pair(first, second, "problems", only_bool=True)
    lost, gained = int((first & ~second).sum()), int((~first & second).sum())
    return float(binomtest(gained, lost + gained).pvalue) if lost + gained else 1.0


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 10_000, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float, float]:
    """(difference, low, high): mean(second) - mean(first) and its percentile bootstrap interval.

    Problems are resampled, each with both of its values: the pairing stays. The same seed gives
    the same interval.

    Args:
      first, second: [n] bool or real values (outcomes, lengths) of the same n >= 2 problems.
      resamples: number of resampled problem sets.
      seed: of the resampling.
      confidence: coverage of the interval.

    Raises:
      ValueError: the arrays are not 1-D, differ in length, hold fewer than two problems or a value
        that is not finite; confidence is not within (0, 1).
    """
    check_confidence(confidence)
    first, second = pair(first, second, "problems")
    difference = second.astype(float) - first.astype(float)
    if len(difference) < 2:
        raise ValueError("a bootstrap needs at least two problems")
    interval = bootstrap(
        (difference,),
        np.mean,
        n_resamples=resamples,
        batch=min(resamples, 1000),  # bounds memory: [batch, n] at a time
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(difference.mean()), float(interval.low), float(interval.high)
