"""What outcomes on the same problems say: pass@k, majority votes, flips, disagreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import hypergeom

from agon_jax.stats.checks import array, pair


def pass_at_k(correct: ArrayLike, k: int) -> float:
    """The probability that at least one of k samples is right, averaged over problems.

    The unbiased estimate 1 - C(n - c, k) / C(n, k) of Chen et al. 2021 (arXiv 2107.03374, equation
    1): the share of the k-subsets of a problem's n samples that hold one of its c right ones.

    Args:
      correct: [problems, samples] bool.

    Raises:
      ValueError: `correct` is not such an array, or k is not within 1..samples.
    """
    correct = array(correct, "problems samples", only_bool=True)
    samples = correct.shape[1]
    _check_k(k, samples)
    return float(1 - hypergeom.pmf(0, samples, correct.sum(axis=1), k).mean())


def majority_at_k(answers: Sequence[Sequence[str | None]], correct: ArrayLike, k: int) -> float:
    """How often a majority vote over the first k answers of each problem is right.

    Exact for those k answers, nothing is resampled, so the order of the samples counts. Equal
    strings are one answer. A tie goes to the answer that was given first. A missing answer (None)
    has no vote; if all k are missing, the first of them stands.

    Args:
      answers: [problems][samples] in a canonical form, None where there is none.
      correct: [problems, samples] bool, the outcomes of those answers; the vote is as right as the
        first of the answers that won.

    Raises:
      ValueError: the shapes differ, `correct` is not bool, or k is not within 1..samples.
    """
    correct = array(correct, "problems samples", only_bool=True)
    lengths = [len(row) for row in answers]
    if lengths != [correct.shape[1]] * len(correct):
        raise ValueError(
            f"answers must be [problems][samples] as correct {correct.shape}, got rows of {lengths}"
        )
    _check_k(k, correct.shape[1])
    return float(np.mean([right[_winner(row[:k])] for row, right in zip(answers, correct, strict=True)]))


def _winner(votes: Sequence[str | None]) -> int:
    """Index of the first vote for the answer with the most votes."""
    counts = Counter(vote for vote in votes if vote is not None)
    # A Counter keeps the order of first appearance, and max returns the first of the greatest.
    return list(votes).index(max(counts, key=counts.get)) if counts else 0


def _check_k(k: int, samples: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k must be within 1..{samples}, the samples of a problem, got {k}")


def flip_matrix(draft: ArrayLike, final: ArrayLike) -> dict[str, int]:
    """What a second stage did to the first: counts of problems.

    Args:
      draft, final: [problems] bool, outcomes of the two stages.

    Returns:
      kept (right, right), lost (right, wrong), gained (wrong, right), failed (wrong, wrong).

    Raises:
      ValueError: the arrays are not such arrays of one length.
    """
    draft, final = pair(draft, final, "problems", only_bool=True)
    cells = {
        "kept": draft & final,
        "lost": draft & ~final,
        "gained": ~draft & final,
        "failed": ~draft & ~final,
    }
    return {name: int(cell.sum()) for name, cell in cells.items()}


def disagreement(a: ArrayLike, b: ArrayLike) -> dict[str, float]:
    """How differently two policies fail on the same problems.

    Args:
      a, b: [problems] bool, their outcomes.

    Returns:
      disagreement: share of problems that exactly one got right.
      both_wrong: share of problems that both got wrong.
      error_overlap: problems both got wrong / problems either got wrong (Jaccard index of the
        errors); nan if neither made one.
      phi: correlation of the outcomes; nan if one of the two is always or never right.

    Raises:
      ValueError: the arrays are not such arrays of one length.
    """
    a, b = pair(a, b, "problems", only_bool=True)
    both, either = (~a & ~b).sum(), (~a | ~b).sum()
    constant = a.all() or b.all() or not (a.any() and b.any())
    return {
        "disagreement": float((a ^ b).mean()),
        "both_wrong": float(both / len(a)),
        "error_overlap": float(both / either) if either else float("nan"),
        "phi": float("nan") if constant else float(np.corrcoef(a, b)[0, 1]),
    }
