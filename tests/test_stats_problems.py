"""Intervals and paired tests against numbers derived by hand."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from agon_jax.stats import clopper_pearson, mcnemar_exact, paired_bootstrap


def outcomes(lost: int, gained: int, both: int = 0, neither: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two bool arrays with the given 2x2 counts; `lost` is right in the first alone."""
    first = [True] * lost + [False] * gained + [True] * both + [False] * neither
    second = [False] * lost + [True] * gained + [True] * both + [False] * neither
    return np.array(first, bool), np.array(second, bool)


@pytest.mark.parametrize(
    "correct, percent",
    # 23, 46 and 61 % of 300. The paper prints [18.4, 28.3], [40.3, 51.8] and [55.2, 66.6]: all but
    # its 28.3 are the exact interval to the digit; the exact end there is 28.18, as the next test
    # confirms from the definition. The normal approximation would give [18.2, 27.8] for 69.
    [(69, (18.4, 28.2)), (138, (40.3, 51.8)), (183, (55.2, 66.6))],
)
def test_clopper_pearson_at_the_papers_size(correct: int, percent: tuple[float, float]) -> None:
    low, high = clopper_pearson(correct, 300)
    assert (round(100 * low, 1), round(100 * high, 1)) == percent


def test_clopper_pearson_is_its_definition() -> None:
    # At the upper end 69 or fewer, at the lower end 69 or more of 300 has probability 2.5 %.
    low, high = clopper_pearson(69, 300)
    for p, counts in [(high, range(70)), (low, range(69, 301))]:
        mass = sum(comb(300, k) * p**k * (1 - p) ** (300 - k) for k in counts)
        assert mass == pytest.approx(0.025, rel=1e-6)


def test_clopper_pearson_closed_forms() -> None:
    # 0 of n: the upper end solves (1 - p)^n = 0.025. n of n: the lower end solves p^n = 0.025.
    assert clopper_pearson(0, 10) == pytest.approx((0.0, 1 - 0.025**0.1), abs=1e-9)
    assert clopper_pearson(10, 10) == pytest.approx((0.025**0.1, 1.0), abs=1e-9)
    # 1 of 1 at 90 %: p^1 = 0.05.
    assert clopper_pearson(1, 1, confidence=0.9) == pytest.approx((0.05, 1.0), abs=1e-9)


def test_clopper_pearson_is_symmetric_and_widens_with_confidence() -> None:
    low, high = clopper_pearson(3, 20)
    # Swapping right and wrong mirrors the interval.
    assert clopper_pearson(17, 20) == pytest.approx((1 - high, 1 - low), abs=1e-9)
    wide_low, wide_high = clopper_pearson(3, 20, confidence=0.99)
    assert wide_low < low < 3 / 20 < high < wide_high


def test_no_problems_say_nothing() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("arguments", [(-1, 5), (6, 5), (1, 0), (0, -1), (1, 5, 0.0), (1, 5, 95)])
def test_clopper_pearson_refuses_nonsense(arguments: tuple) -> None:
    with pytest.raises(ValueError):
        clopper_pearson(*arguments)


@pytest.mark.parametrize(
    "lost, gained, p",
    [
        # Two-sided: 2 P(X <= 1), X ~ Binomial(9, 1/2) = 2 (1 + 9) / 512. One-sided would be half.
        (1, 8, 20 / 512),
        # 2 P(X <= 0), X ~ Binomial(5, 1/2) = 2 / 32.
        (0, 5, 2 / 32),
        # As many lost as gained: no evidence, and a p-value never exceeds 1.
        (4, 4, 1.0),
        (1, 0, 1.0),  # 2 P(X <= 0), X ~ Binomial(1, 1/2) = 1
        (0, 0, 1.0),  # nothing differs
    ],
)
def test_mcnemar_by_hand(lost: int, gained: int, p: float) -> None:
    first, second = outcomes(lost, gained, both=7, neither=11)
    assert mcnemar_exact(first, second) == pytest.approx(p, rel=1e-12)
    # The test knows no direction, and problems on which both agree do not count.
    assert mcnemar_exact(second, first) == pytest.approx(p, rel=1e-12)
    if lost + gained:
        assert mcnemar_exact(*outcomes(lost, gained)) == pytest.approx(p, rel=1e-12)


def test_mcnemar_uses_the_pairing() -> None:
    # 2 right, then 8 right of 10, both times. As 0 lost and 6 gained p is 2 / 64; as 1 lost and 7
    # gained it is 2 (1 + 8) / 256. A test on the totals alone could not tell them apart.
    assert mcnemar_exact(*outcomes(0, 6, both=2, neither=2)) == pytest.approx(2 / 64)
    assert mcnemar_exact(*outcomes(1, 7, both=1, neither=1)) == pytest.approx(18 / 256)


@pytest.mark.parametrize(
    "first, second",
    [
        ([True], [True, False]),
        ([], []),
        ([[True]], [[True]]),
        ([0.7, 0.0], [True, False]),  # would silently count as True
    ],
)
def test_mcnemar_refuses_nonsense(first: list, second: list) -> None:
    with pytest.raises(ValueError):
        mcnemar_exact(first, second)


def test_bootstrap_difference_and_sign() -> None:
    # 1 lost and 8 gained of 20: (8 - 1) / 20 = +0.35, and the swap mirrors it.
    first, second = outcomes(1, 8, both=5, neither=6)
    difference, low, high = paired_bootstrap(first, second)
    assert difference == pytest.approx(0.35)
    assert low < 0.35 < high
    assert paired_bootstrap(second, first)[0] == pytest.approx(-0.35)


def test_bootstrap_interval_matches_the_binomial_it_samples_from() -> None:
    # No losses, 50 gains of 100: a resampled difference is Binomial(100, 1/2) / 100, whose 2.5 %
    # and 97.5 % quantiles are 0.40 and 0.60.
    _, low, high = paired_bootstrap(*outcomes(0, 50, both=25, neither=25))
    assert (low, high) == pytest.approx((0.40, 0.60), abs=0.011)


def test_bootstrap_keeps_pairs_together() -> None:
    # Lengths that vary wildly between problems and always shrink by exactly 3 tokens: every
    # resample gives -3. Resampling the two sides apart would give an interval hundreds wide.
    first = np.array([10, 500, 3000, 42, 8000])
    assert paired_bootstrap(first, first - 3) == (-3.0, -3.0, -3.0)


def test_bootstrap_is_deterministic_per_seed() -> None:
    values = np.random.default_rng(7).normal(size=(2, 40))
    assert paired_bootstrap(*values, seed=1) == paired_bootstrap(*values, seed=1)
    assert paired_bootstrap(*values, seed=1) != paired_bootstrap(*values, seed=2)
    narrow, wide = (paired_bootstrap(*values, confidence=c) for c in (0.5, 0.99))
    assert wide[1] < narrow[1] < narrow[2] < wide[2]


def test_bootstrap_refuses_nonsense() -> None:
    for first, second in [([1, 2], [1]), ([], []), ([1], [2]), ([1.0, np.nan], [0.0, 1.0])]:
        with pytest.raises(ValueError):
            paired_bootstrap(first, second)
    with pytest.raises(ValueError):
        paired_bootstrap([1, 2], [3, 4], confidence=95)
