"""Does the challenger copy or solve, and which of the two pays? Diagnostics of an exchange.

A challenger that reads a draft may give the draft's answer or solve the problem by itself:

  q      P(draft right)
  p      P(challenger right when it solves)
  v      P(challenger right | it solves, draft wrong)
  kappa  P(challenger copies)

Without the terms for format, copying earns w_c q and solving w_c p + w_v (1 - q) v, with w_c the
weight of correctness and w_v that of conversion. The boundary margin is the second minus the first:
above 0 the reward pulls towards solving, below 0 towards copying.

Copying is seldom seen; agreement of answers is, and two who solve the same problem agree often
without having read each other. Each problem has K drafts, and challenge i read draft i alone. The
other drafts show how often challenge i would agree with an answer it never saw:

  own draft:     kappa + (1 - kappa) s    where s = how often a solver agrees with a draft
  other drafts:  kappa D + (1 - kappa) s  where D = how often two drafts agree

The difference is kappa (1 - D), and so kappa is found without knowing s. It is how often the draft
that was read decided the answer. Then, copies being as right as their drafts,

  P(challenger right) = kappa q + (1 - kappa) p
  P(challenger right | draft wrong) = (1 - kappa) v

give p and v. Assumed: a challenger copies right and wrong drafts alike, and one that does not copy
is not swayed by which draft it read.

Pure NumPy on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

Answers = Sequence[Sequence[str | None]]


def diagnose(
    draft_answers: Answers,
    challenge_answers: Answers,
    draft_correct: ArrayLike,
    challenge_correct: ArrayLike,
    *,
    copied: ArrayLike | None = None,
    correct_weight: float,
    conversion_weight: float,
) -> dict[str, float]:
    """The figures of the module's docstring, over all groups given.

    A figure that cannot be estimated is left out: the copy rate where no problem has two drafts
    with different answers, p and v where fewer than one challenge is expected to have solved
    (for v: with a wrong draft), payoffs where they need such a figure.

    One step is noisy: with 128 challenges the copy rate has a standard deviation of some 0.06 and
    the margin one of 0.2 to 0.3. Give the groups of many steps at once for precise figures; an
    average of clipped ones is biased.

    Args:
      draft_answers, challenge_answers: [G][K] of G problems, in a canonical form (equal strings are
        the same answer); None where there is none, which agrees with nothing. Challenge i of a
        problem read draft i.
      draft_correct, challenge_correct: [G, K] bool.
      copied: [G, K] bool, where the task sees which challenges copied. Then copy_rate, p and v are
        counts; else estimates from agreement.
      correct_weight, conversion_weight: w_c and w_v of the reward (w_v = 0 for cooperation).

    Returns:
      agreement, agreement_by_chance: how often a challenge gives the answer of its own draft, and of
        the other drafts of its problem. Over the challenges whose draft has an answer and is not the
        only such draft of its problem.
      copy_rate_raw: kappa as estimated from these; noise may take it outside [0, 1].
      copy_rate: kappa within [0, 1]; a draft without an answer cannot be copied and does not count.
        With `copied` the share of all challenges that did.
      q, p, v: the probabilities above, within [0, 1].
      payoff_copy, payoff_solve, boundary_margin: as above, in units of reward.

    Raises:
      ValueError: the arguments do not share one non-empty shape [G, K], or outcomes are not bool.
    """
    drafts, challenges = _numbered(draft_answers, challenge_answers)
    draft_right = _outcomes("draft_correct", draft_correct, drafts.shape)
    challenge_right = _outcomes("challenge_correct", challenge_correct, drafts.shape)
    figures = _agreement(drafts, challenges)
    figures["q"] = float(draft_right.mean())

    if copied is not None:
        copies = _outcomes("copied", copied, drafts.shape)
        figures["copy_rate"] = float(copies.mean())
        right_by_solving = challenge_right & ~copies
    elif "copy_rate_raw" in figures:
        figures["copy_rate"] = min(max(figures["copy_rate_raw"], 0.0), 1.0)
        copies = figures["copy_rate"] * (drafts >= 0)  # the probability of each challenge
        right_by_solving = challenge_right - copies * draft_right  # expected
    else:
        return figures | _payoffs(figures, correct_weight, conversion_weight)

    for name, among in (("p", np.ones_like(draft_right)), ("v", ~draft_right)):
        solvers = float((1.0 - copies)[among].sum())
        if solvers >= 1:
            figures[name] = min(max(float(right_by_solving[among].sum()) / solvers, 0.0), 1.0)
    return figures | _payoffs(figures, correct_weight, conversion_weight)


def _agreement(drafts: np.ndarray, challenges: np.ndarray) -> dict[str, float]:
    """Agreement with the own draft and with the others, and the copy rate beyond chance.

    All three averages are over the same challenges, so that problems of unlike difficulty weigh the
    same in each and what solvers agree on by themselves cancels problem by problem.
    """
    answered = drafts >= 0  # [G, K]
    same_draft = drafts[:, :, None] == drafts[:, None, :]  # [G, i, j]
    same_answer = challenges[:, :, None] == drafts[:, None, :]
    # Pairs (challenge i, draft j) with i != j where draft i and draft j hold an answer.
    others = answered[:, :, None] & answered[:, None, :] & ~np.eye(drafts.shape[1], dtype=bool)
    count = others.sum(axis=2)
    compared = count > 0
    if not compared.any():
        return {}
    over_others = lambda same: float(((same & others).sum(axis=2)[compared] / count[compared]).mean())
    own = float((challenges == drafts)[compared].mean())
    chance, repeats = over_others(same_answer), over_others(same_draft)
    figures = {"agreement": own, "agreement_by_chance": chance}
    if repeats < 1:
        figures["copy_rate_raw"] = (own - chance) / (1 - repeats)
    return figures


def _payoffs(figures: dict[str, float], correct_weight: float, conversion_weight: float) -> dict[str, float]:
    """What copying and solving earn, as far as known."""
    payoffs = {"payoff_copy": correct_weight * figures["q"]}
    bonus = conversion_weight * (1 - figures["q"])
    if "p" in figures and (bonus == 0 or "v" in figures):
        # Without a bonus to win, v does not matter (and is unknown where no draft is wrong).
        payoffs["payoff_solve"] = correct_weight * figures["p"] + bonus * figures.get("v", 0.0)
        payoffs["boundary_margin"] = payoffs["payoff_solve"] - payoffs["payoff_copy"]
    return payoffs


def boundary_ratio(q: float, correct_weight: float, conversion_weight: float) -> float:
    """p / q at which copying and solving earn the same, if errors are independent (v = p).

    w_c q = w_c p + w_v (1 - q) p gives p / q = w_c / (w_c + w_v (1 - q)). Above it solving pays;
    without a conversion bonus it is 1.

    Raises:
      ValueError: q is not within [0, 1], correct_weight is not positive or conversion_weight is
        negative.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q is a probability, got {q}")
    if not (correct_weight > 0 and conversion_weight >= 0):
        raise ValueError(
            "need correct_weight > 0 and conversion_weight >= 0, "
            f"got correct_weight={correct_weight}, conversion_weight={conversion_weight}"
        )
    return correct_weight / (correct_weight + conversion_weight * (1 - q))


def escape_step(copy_rates: ArrayLike, *, below: float = 0.5, window: int = 10) -> int | None:
    """The first step from which on the challengers no longer copy.

    That is, the first index at which the mean of the last `window` rates, its own included, is
    below `below` and stays so to the end. A run that never copied has escaped at the first full
    window, `window - 1`. None if the last full window is not below, or there is none.

    Args:
      copy_rates: [T], one rate a step.
      below: the rate under which copying counts as escaped.
      window: steps of the trailing mean.

    Raises:
      ValueError: `copy_rates` is not 1-D or holds a value that is not finite; window is below 1.
    """
    rates = np.asarray(copy_rates, float)
    if rates.ndim != 1 or not np.isfinite(rates).all():
        raise ValueError(f"copy_rates must be finite and [T], got shape {rates.shape}")
    if window < 1:
        raise ValueError(f"window must be at least 1 step, got {window}")
    if len(rates) < window:
        return None
    means = np.lib.stride_tricks.sliding_window_view(rates, window).mean(axis=1)
    copying = np.flatnonzero(means >= below)
    first = int(copying[-1]) + 1 if copying.size else 0
    return first + window - 1 if first < len(means) else None


def _numbered(draft_answers: Answers, challenge_answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """[G, K] int, twice: equal answers have equal numbers, a missing one has -1."""
    lengths = {len(row) for rows in (draft_answers, challenge_answers) for row in rows}
    if len(draft_answers) != len(challenge_answers) or len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"answers must be [G][K] with one K >= 1, got {len(draft_answers)} groups of drafts and "
            f"{len(challenge_answers)} of challenges, of sizes {sorted(lengths)}"
        )
    numbers: dict[str, int] = {}
    number = lambda answer: -1 if answer is None else numbers.setdefault(answer, len(numbers))
    table = lambda rows: np.array([[number(answer) for answer in row] for row in rows])
    return table(draft_answers), table(challenge_answers)


def _outcomes(name: str, values: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype != bool or values.shape != shape:
        raise ValueError(f"{name} must be bool {shape} as the answers, got {values.dtype} {values.shape}")
    return values
