"""pass@k, majority votes, flips and disagreement against numbers derived by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from agon_jax.stats import disagreement, flip_matrix, majority_at_k, pass_at_k


def test_pass_at_k_by_hand() -> None:
    # 1 of 4 right: 1 - C(3, 2) / C(4, 2) = 1/2. The biased 1 - (1 - 1/4)^2 would be 7/16.
    assert pass_at_k([[True, False, False, False]], 2) == pytest.approx(1 / 2)
    # Averaged over problems: (1/2 + 0 + 1) / 3. Pooling the samples (5 of 12) would give 0.68.
    correct = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    assert pass_at_k(correct, 2) == pytest.approx(1 / 2)
    assert pass_at_k(correct, 1) == pytest.approx(5 / 12)  # the mean
    assert pass_at_k(correct, 4) == pytest.approx(2 / 3)  # any right


def test_pass_at_k_is_the_share_of_subsets() -> None:
    correct = np.random.default_rng(0).random((5, 7)) < 0.3
    for k in range(1, 8):
        subsets = [
            correct[:, list(chosen)].any(axis=1).mean() for chosen in itertools.combinations(range(7), k)
        ]
        assert pass_at_k(correct, k) == pytest.approx(np.mean(subsets))


def test_pass_at_k_of_many_samples_is_finite() -> None:
    # 1 right of 5000, k = 2500: 1/2. C(5000, 2500) overflows a float.
    assert pass_at_k(np.arange(5000)[None] == 7, 2500) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "answers, right, k, expected",
    [
        (["a", "b", "b"], [1, 0, 0], 3, 0),  # outvoted
        (["a", "b", "b"], [1, 0, 0], 2, 1),  # a tie: the earlier one
        (["b", "a", "b", "a"], [0, 1, 0, 1], 4, 0),  # a tie: the one first given
        ([None, None, "a"], [0, 0, 1], 3, 1),  # two missing answers have no vote
        ([None, None, "a"], [0, 0, 1], 2, 0),  # all missing
        (["a", "b", "b"], [1, 0, 0], 1, 1),
    ],
)
def test_majority_by_hand(answers: list, right: list, k: int, expected: float) -> None:
    correct = np.array([right], bool)
    assert majority_at_k([answers], correct, k) == expected
    # A second problem that is always right: the mean of the two.
    both = np.concatenate([correct, np.ones_like(correct)])
    assert majority_at_k([answers, ["x"] * len(answers)], both, k) == (expected + 1) / 2


@pytest.mark.parametrize("k", [0, 3])
def test_k_must_fit_the_samples(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be within 1..2, the samples of a problem, got {k}"):
        pass_at_k([[True, False]], k)
    with pytest.raises(ValueError, match="k must be within"):
        majority_at_k([["a", "b"]], [[True, False]], k)


def test_bad_outcomes_are_named() -> None:
    with pytest.raises(ValueError, match=r"non-empty array of shape \[problems, samples\], got shape \(2,\)"):
        pass_at_k([True, False], 1)
    with pytest.raises(ValueError, match="must be bool, got int"):
        pass_at_k([[2, 1]], 1)
    with pytest.raises(ValueError, match=r"rows of \[1\]"):
        majority_at_k([["a"]], [[True, False]], 1)
    for function in (flip_matrix, disagreement):
        with pytest.raises(ValueError, match="one shape"):
            function([True], [True, False])
        with pytest.raises(ValueError, match="must be bool"):
            function([1.0], [0.0])
        with pytest.raises(ValueError, match="non-empty"):
            function([], [])


def test_flips_by_hand() -> None:
    draft = np.array([1] * 5 + [0] * 6, bool)
    final = np.array([1] * 4 + [0] * 1 + [1] * 2 + [0] * 4, bool)
    assert flip_matrix(draft, final) == {"kept": 4, "lost": 1, "gained": 2, "failed": 4}
    # The other way round lost and gained swap.
    assert flip_matrix(final, draft) == {"kept": 4, "lost": 2, "gained": 1, "failed": 4}


def test_disagreement_by_hand() -> None:
    # 4 both right, 1 and 2 alone, 3 both wrong, of 10. Errors of either: 6; overlap 3/6.
    # phi = (4 * 3 - 1 * 2) / sqrt(5 * 5 * 6 * 4) = 10 / sqrt(600).
    a = np.array([1] * 4 + [1] + [0] * 2 + [0] * 3, bool)
    b = np.array([1] * 4 + [0] + [1] * 2 + [0] * 3, bool)
    expected = {"disagreement": 0.3, "both_wrong": 0.3, "error_overlap": 0.5, "phi": 10 / 600**0.5}
    assert disagreement(a, b) == disagreement(b, a) == pytest.approx(expected)


def test_disagreement_at_the_ends() -> None:
    some, none = np.array([True, False]), np.array([False, False])
    assert disagreement(some, some) == {
        "disagreement": 0,
        "both_wrong": 0.5,
        "error_overlap": 1,
        "phi": pytest.approx(1),
    }
    assert disagreement(some, ~some) == {
        "disagreement": 1,
        "both_wrong": 0,
        "error_overlap": 0,
        "phi": pytest.approx(-1),
    }
    # Nobody errs: no overlap of nothing. A constant has no correlation.
    perfect = disagreement(~none, ~none)
    assert np.isnan(perfect["error_overlap"]) and np.isnan(perfect["phi"])
    assert np.isnan(disagreement(some, none)["phi"])
    assert disagreement(some, none)["error_overlap"] == 0.5
