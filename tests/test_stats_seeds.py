"""Statistics over training seeds: by hand, and by how often they are right in simulation."""

from __future__ import annotations

import numpy as np
import pytest

from agon_jax.stats import (
    SeedDifference,
    hierarchical_bootstrap,
    mcnemar_exact,
    paired_problems,
    paired_seeds,
    required_seeds,
    seed_interval,
)


def runs(
    rng: np.random.Generator, seeds: int, problems: int, by_seed: float, by_problem: float, noise: float = 1.0
):
    """Differences [seeds, problems] with a true mean of 0 and a spread of each kind."""
    return (
        by_seed * rng.normal(size=(seeds, 1))
        + by_problem * rng.normal(size=problems)
        + noise * rng.normal(size=(seeds, problems))
    )


def test_seed_interval_by_hand() -> None:
    # 1, 2, 3: mean 2, sd 1 (dividing by S would give 0.816), t(0.975, 2) = 4.302653.
    mean, low, high = seed_interval([1, 2, 3])
    assert (mean, low, high) == pytest.approx((2, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-6)
    # t(0.75, 1) = 1 (Cauchy): at 50 % two seeds give mean +- sd / sqrt(2) = the two values.
    assert seed_interval([0.2, 0.6], confidence=0.5) == pytest.approx((0.4, 0.2, 0.6))
    assert seed_interval([0.3, 0.3, 0.3]) == pytest.approx((0.3, 0.3, 0.3))


def test_one_seed_has_a_mean_only() -> None:
    mean, low, high = seed_interval([0.4])
    assert mean == 0.4 and np.isnan(low) and np.isnan(high)
    one = paired_seeds([0.5], [0.75])
    assert (one.mean, one.seeds) == (0.25, 1)
    assert np.isnan([one.low, one.high, one.p, one.sd]).all()


def test_paired_seeds_by_hand() -> None:
    # Differences 1, 2, 3 (the runs themselves spread over 0..12): t = 2 / (1 / sqrt 3) = 3.4641 with
    # 2 degrees of freedom, whose cdf is 1/2 + t / (2 sqrt(2 + t^2)): p = 1 - sqrt(12 / 14) = 0.0742.
    # Unpaired the same runs give p = 0.65.
    result = paired_seeds([0, 5, 9], [1, 7, 12])
    half = 4.302653 / 3**0.5
    assert (result.mean, result.low, result.high) == pytest.approx((2, 2 - half, 2 + half), abs=1e-6)
    assert (result.p, result.sd, result.seeds) == (pytest.approx(1 - (12 / 14) ** 0.5), pytest.approx(1), 3)
    swapped = paired_seeds([1, 7, 12], [0, 5, 9])
    assert (swapped.mean, swapped.p) == (pytest.approx(-2), pytest.approx(result.p))


def test_differences_without_a_spread() -> None:
    assert paired_seeds([0.1, 0.3], [0.1, 0.3]) == SeedDifference(0, 0, 0, 1.0, 0, 2)
    # 0.2 both times, but for rounding (the sd of these floats is 2e-17, which would give p = 1e-16).
    same = paired_seeds([0.1, 0.7], [0.3, 0.9])
    assert (same.low, same.high, same.sd) == (same.mean, same.mean, 0.0)
    assert np.isnan(same.p)


def test_seed_interval_covers_the_mean_as_often_as_it_says() -> None:
    # With 3 seeds. The normal quantile 1.96 instead of t's 4.30 would cover 81 %.
    rng = np.random.default_rng(0)
    inside = [low < 5 < high for _, low, high in (seed_interval(rng.normal(5, 2, 3)) for _ in range(2000))]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_paired_seeds_errs_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    p = [paired_seeds(*rng.normal(size=(2, 4))).p for _ in range(2000)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_hierarchical_bootstrap_difference_sign_and_seed() -> None:
    first = np.zeros((2, 4), bool)
    second = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    difference, low, high = hierarchical_bootstrap(first, second)
    assert difference == 3 / 8 and low <= 3 / 8 <= high
    assert hierarchical_bootstrap(second, first)[0] == -3 / 8
    assert hierarchical_bootstrap(first, second) == hierarchical_bootstrap(first, second, seed=0)
    draws = np.random.default_rng(2).normal(size=(2, 5, 50))
    assert hierarchical_bootstrap(*draws) != hierarchical_bootstrap(*draws, seed=1)


def test_hierarchical_bootstrap_keeps_pairs() -> None:
    # Seeds and problems vary wildly, the difference is always 2: any resample gives 2.
    first = 100 * np.random.default_rng(3).normal(size=(3, 20)).round(1)
    assert hierarchical_bootstrap(first, first + 2, resamples=300) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize("shape, spread", [((400, 2), "seeds"), ((2, 400), "problems")])
def test_hierarchical_bootstrap_resamples_both(shape: tuple[int, int], spread: str) -> None:
    # Only one of the two varies: half of the 400 gain 1. A resampled mean is Binomial(400, 1/2) / 400,
    # 95 % of which lie within 0.5 +- 1.96 * 0.025. Problems drawn anew for each of the two seeds would
    # narrow the second case to +- 0.035; resampling problems alone the first to nothing.
    gains = np.arange(400) % 2
    values = np.broadcast_to(gains[:, None] if spread == "seeds" else gains, shape)
    _, low, high = hierarchical_bootstrap(np.zeros(shape), values, resamples=4000)
    assert (low, high) == pytest.approx((0.451, 0.549), abs=0.006)


def test_hierarchical_bootstrap_of_one_seed_is_the_bootstrap_over_problems() -> None:
    values = (np.arange(100) % 2)[None].astype(float)
    # Binomial(100, 1/2) / 100: 0.40 and 0.60.
    assert hierarchical_bootstrap(np.zeros((1, 100)), values) == pytest.approx((0.5, 0.4, 0.6), abs=0.011)


def test_hierarchical_bootstrap_covers() -> None:
    # 12 seeds, 60 problems, both spreads. The variance of the mean is 1/12 + 1/60 + 1/720; problems
    # alone show 0.018 of its 0.101 and cover 59 %. Both: a little under 95 %, seeds being few.
    rng = np.random.default_rng(4)
    inside, alone = [], []
    for _ in range(300):
        values = runs(rng, 12, 60, by_seed=1.0, by_problem=1.0)
        for intervals, rows in ((inside, values), (alone, values.mean(axis=0, keepdims=True))):
            _, low, high = hierarchical_bootstrap(np.zeros_like(rows), rows, resamples=400)
            intervals.append(low < 0 < high)
    assert 0.87 < np.mean(inside) < 0.97
    assert np.mean(alone) < 0.68


def test_paired_problems_by_hand() -> None:
    # Three problems gain in both seeds: 2 of 2^3 sign patterns are as extreme, p = 1/4. McNemar over
    # seeds x problems would see six gains: 2 / 2^6 = 1/32.
    first, second = np.zeros((2, 5), bool), np.tile([True, True, True, False, False], (2, 1))
    assert paired_problems(first, second) == paired_problems(second, first) == pytest.approx(1 / 4)
    assert mcnemar_exact(first.ravel(), second.ravel()) == pytest.approx(1 / 32)
    # Gains 2, 1 and a loss of 1 (sums over seeds): |sum| >= 2 for ++- (2), +-+ (2), +++ (4) and their
    # mirrors: 6 of 8.
    second = np.array([[1, 1, 0], [1, 0, 0]], float)
    assert paired_problems([[0, 0, 1], [0, 0, 0]], second) == pytest.approx(6 / 8)


def test_paired_problems_of_one_seed_is_mcnemar() -> None:
    # Flipping the signs of 1 loss and 8 gains is the binomial: 20 / 512.
    first, second = np.zeros((1, 12), bool), np.zeros((1, 12), bool)
    first[0, 0] = second[0, 1:9] = True
    assert paired_problems(first, second) == pytest.approx(20 / 512)
    assert mcnemar_exact(first[0], second[0]) == pytest.approx(20 / 512)


def test_paired_problems_without_evidence() -> None:
    same = np.ones((2, 3), bool)
    assert paired_problems(same, same) == 1.0
    assert paired_problems([[0.0, 1.0]], [[0.0, 2.0]]) == 1.0  # one problem differs: 2 of 2 patterns
    # A problem lost in one seed and gained in the other is no difference.
    assert paired_problems([[1, 0], [0, 1]], [[0, 1], [1, 0]]) == 1.0


def test_paired_problems_errs_as_often_as_it_says_and_mcnemar_does_not() -> None:
    # No true difference, 4 seeds, outcomes mostly a matter of the problem and the method.
    rng = np.random.default_rng(5)
    honest, naive = [], []
    for _ in range(100):
        ease = rng.normal(size=(2, 1, 40)) * 2
        first, second = rng.normal(size=(2, 4, 40)) < ease
        honest.append(paired_problems(first, second) < 0.05)
        naive.append(mcnemar_exact(first.ravel(), second.ravel()) < 0.05)
    assert np.mean(honest) < 0.09
    assert np.mean(naive) > 0.14


@pytest.mark.parametrize(
    "effect, sd, seeds",
    # Published sample sizes of the paired t-test (power 0.8, level 0.05): d = 0.2, 0.5, 0.8 need 199,
    # 34, 15. The normal approximation ((1.96 + 0.84) / d)^2 would say 197, 32, 13.
    [(0.2, 1, 199), (0.5, 1, 34), (-1, 2, 34), (0.8, 1, 15), (1, 1, 10), (2, 1, 5), (1e3, 1, 2), (1, 0, 2)],
)
def test_required_seeds(effect: float, sd: float, seeds: int) -> None:
    assert required_seeds(effect, sd) == seeds


def test_required_seeds_have_the_power_they_promise() -> None:
    rng = np.random.default_rng(6)
    seeds = required_seeds(1.0, 1.0)
    found = [paired_seeds(np.zeros(seeds), rng.normal(1, 1, seeds)).p < 0.05 for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0.80, abs=0.03)  # 9 seeds have 0.75
    assert required_seeds(1.0, 1.0, power=0.95) > seeds > required_seeds(1.0, 1.0, alpha=0.2)


def test_both_tails_count_as_found() -> None:
    # Without an effect to speak of both tails together hold 0.05, whatever the seeds; one holds 0.025.
    assert required_seeds(1e-6, 1, power=0.04) == 2


def test_no_number_of_seeds_suffices() -> None:
    # (2.8 / d)^2 = 100,000 at d = 0.00886.
    assert required_seeds(0, 1) is None
    assert required_seeds(0.0088, 1) is None
    assert 99_000 < required_seeds(0.0089, 1) <= 100_000


@pytest.mark.parametrize(
    "function, arguments, message",
    [
        (seed_interval, ([],), r"non-empty array of shape \[seeds\]"),
        (seed_interval, ([1.0, np.nan],), "finite, got nan"),
        (seed_interval, ([1, 2], 95), "confidence"),
        (paired_seeds, ([1, 2], [1]), "one shape"),
        (hierarchical_bootstrap, ([1, 2], [1, 2]), r"\[seeds, problems\], got shape \(2,\)"),
        (paired_problems, ([[1, 2]], [[1], [2]]), "one shape"),
        (required_seeds, (1, -1), "sd=-1"),
        (required_seeds, (np.nan, 1), "effect=nan"),
        (required_seeds, (1, 1, 1.0), "power=1.0"),
        (required_seeds, (1, 1, 0.8, 0), "alpha=0"),
    ],
)
def test_mistakes_are_named(function, arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_bootstrap_needs_resamples_and_a_confidence() -> None:
    for option in ({"resamples": 0}, {"confidence": 1.0}):
        with pytest.raises(ValueError, match=next(iter(option))):
            hierarchical_bootstrap([[1]], [[2]], **option)
