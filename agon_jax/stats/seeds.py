"""The training seeds are a sample too: what several runs of each method say.

Which question a function answers:
  paired_seeds            would other seeds show the difference? Problems taken as they are.
  paired_problems         would other problems show it, with these trained seeds?
  hierarchical_bootstrap  how far may the difference move with other seeds and other problems?
"""

from __future__ import annotations

import bisect
import dataclasses

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import nct, permutation_test, t

from agon_jax.stats.checks import array, check_confidence, pair

NAN = float("nan")
MAX_SEEDS = 100_000  # more is no plan
ROUNDING = 1e-12  # a spread below this share of the values is rounding, not spread


@dataclasses.dataclass(frozen=True)
class SeedDifference:
    """second - first over paired seeds, in the units of the values."""

    mean: float
    low: float  # confidence interval of the mean
    high: float
    p: float  # two-sided
    sd: float  # between seeds, of the paired differences: what `required_seeds` asks for
    seeds: int


def seed_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high): Student's t interval of the mean over seeds.

    One seed says nothing about the spread: (mean, nan, nan).

    Args:
      values: [seeds], one figure of each run.

    Raises:
      ValueError: `values` is not 1-D, empty or not finite; confidence is not within (0, 1).
    """
    check_confidence(confidence)
    values = array(values, "seeds").astype(float)
    mean, half = float(values.mean()), _half_width(_spread(values), len(values), confidence)
    return mean, mean - half, mean + half


def paired_seeds(first: ArrayLike, second: ArrayLike) -> SeedDifference:
    """second - first, paired by seed: mean, 95 % interval and p-value of the paired t-test.

    One seed: interval, p and sd are nan. Differences that are the same for all seeds leave an
    interval of no width, and the t-test undefined: p is 1 if they are zero, else nan.

    Args:
      first, second: [seeds], one figure of each run, same seeds in the same order.

    Raises:
      ValueError: the arrays are not 1-D, are empty, not finite, or differ in length.
    """
    first, second = pair(first, second, "seeds")
    first, second = first.astype(float), second.astype(float)
    differences = second - first
    mean, seeds = float(differences.mean()), len(differences)
    scale = max(np.abs(first).max(), np.abs(second).max())
    sd = _spread(differences, scale)
    half = _half_width(sd, seeds, 0.95)
    if sd > 0:
        p = float(2 * t.sf(abs(mean) / (sd / np.sqrt(seeds)), seeds - 1))
    else:  # no spread, or (sd is nan) one seed
        p = 1.0 if sd == 0 and abs(mean) <= ROUNDING * scale else NAN
    return SeedDifference(mean, mean - half, mean + half, p, sd, seeds)


def _spread(values: np.ndarray, scale: float = 0.0) -> float:
    """Standard deviation over seeds (divided by S - 1); nan for one seed, 0 where it is rounding."""
    sd = float(values.std(ddof=1)) if len(values) > 1 else NAN
    return 0.0 if sd <= ROUNDING * scale else sd


def _half_width(sd: float, seeds: int, confidence: float) -> float:
    return float(t.isf((1 - confidence) / 2, seeds - 1) * sd / np.sqrt(seeds)) if seeds > 1 else NAN


def hierarchical_bootstrap(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 2000, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float, float]:
    """(difference, low, high): mean(second) - mean(first), seeds and problems both resampled.

    Every seed was judged on the same problems, so the two are crossed: each resample draws seeds
    with replacement and problems with replacement, and all its seeds and both methods meet the
    same problems (the pigeonhole bootstrap, Owen 2007, Annals of Applied Statistics 1(2)). Drawing
    problems anew for each seed would average their luck away. S seeds, drawn from themselves, show
    only (S - 1) / S of the variance between seeds: with few of them the interval is too narrow (at
    12, a nominal 95 % covers about 91 %), and with one it covers the problems alone.

    Args:
      first, second: [seeds, problems], values of the same seeds and problems in the same order.
      resamples: number of resamples.
      seed: of the resampling.
      confidence: coverage of the percentile interval.

    Raises:
      ValueError: the arrays are not 2-D, are empty, not finite or of different shapes; resamples is
        below 1; confidence is not within (0, 1).
    """
    check_confidence(confidence)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    first, second = pair(first, second, "seeds problems")
    differences = second.astype(float) - first.astype(float)
    rng = np.random.default_rng(seed)
    chunks = [min(250, resamples - done) for done in range(0, resamples, 250)]  # [chunk, n] at a time
    means = np.concatenate([_resampled_means(differences, chunk, rng) for chunk in chunks])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(differences.mean()), float(low), float(high)


def _resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """[resamples] means of `values` [seeds, problems], by how often each row and column is drawn."""
    of_seeds, of_problems = (rng.multinomial(n, np.full(n, 1 / n), resamples) for n in values.shape)
    return np.einsum("rn,rn->r", of_seeds @ values, of_problems) / values.size


def paired_problems(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of no difference between two methods, the problems being the units.

    Outcomes of one problem resemble each other across seeds, so McNemar's test over all seeds x
    problems counts the same evidence several times and its p is too small. Here each problem gives
    one number, its difference summed over seeds, and the signs of these are flipped at random: all
    ways where those are few, else 9,999 (always the same), so that p is never below 0.0002. Other
    seeds are not covered: `paired_seeds` is about them.

    Args:
      first, second: [seeds, problems], values of the same problems in the same order.

    Raises:
      ValueError: the arrays are not 2-D, are empty, not finite or of different shapes.
    """
    first, second = pair(first, second, "seeds problems")
    # Sums, not means: whole numbers for outcomes, so that equal figures are equal exactly.
    differences = (second.astype(float) - first.astype(float)).sum(axis=0)
    differences = differences[differences != 0]  # flipping a zero changes nothing
    if len(differences) < 2:
        return 1.0  # both signs of a single one are as extreme
    test = permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",  # of one sample: signs are flipped
        vectorized=True,
        n_resamples=9_999,
        batch=500,  # bounds memory: [batch, n] at a time
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def required_seeds(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Fewest paired seeds with which a two-sided t-test finds `effect` with probability `power`.

    From the noncentral t distribution. None if the effect is 0 or more than 100,000 would be needed.

    Args:
      effect: the true mean difference.
      sd: of the paired differences between seeds, in the same units (`SeedDifference.sd`).
      power: wanted probability of p < alpha.
      alpha: level of the test.

    Raises:
      ValueError: effect or sd is not finite, sd is negative, power or alpha is not within (0, 1).
    """
    if not (np.isfinite(effect) and np.isfinite(sd) and sd >= 0):
        raise ValueError(f"need a finite effect and a finite sd >= 0, got effect={effect}, sd={sd}")
    if not (0 < power < 1 and 0 < alpha < 1):
        raise ValueError(f"power and alpha must be within (0, 1), got power={power}, alpha={alpha}")
    if effect == 0:
        return None
    if sd == 0:
        return 2  # the fewest that have a spread

    def power_with(seeds: int) -> float:
        critical, shift = t.isf(alpha / 2, seeds - 1), abs(effect) / sd * np.sqrt(seeds)
        return nct.sf(critical, seeds - 1, shift) + nct.cdf(-critical, seeds - 1, shift)

    counts = range(2, MAX_SEEDS + 1)
    found = bisect.bisect_left(counts, power, key=power_with)
    return counts[found] if found < len(counts) else None
