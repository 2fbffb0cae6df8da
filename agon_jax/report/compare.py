"""Which methods are compared, and the sentence that the data allow on each pair.

A difference is always first minus second, on the seeds that both have and on the same problems.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from agon_jax.report import schema
from agon_jax.report.budgets import Budget, inference, training
from agon_jax.report.formats import interval, p_value, percent, plural, points
from agon_jax.stats import (
    hierarchical_bootstrap,
    mcnemar_exact,
    paired_bootstrap,
    paired_problems,
    paired_seeds,
    required_seeds,
)

LEVEL = 0.05
_UNSETTLED_BUDGETS = {"NOT MATCHED": "unmatched", "unknown": "unknown"}  # -> level
SMALL_EFFECT = 0.02  # the effect that an experiment should be able to see, 2 points


class Pair(NamedTuple):
    """Two methods, and what their difference tells."""

    first: str
    second: str
    question: str


HEADLINES = (
    Pair("adv", "coop", "Does competition help beyond cooperation?"),
    Pair("adv", "grpo_cascade", "Does competition help beyond GRPO, both with two passes?"),
    Pair("coop", "grpo_cascade", "Does training on the exchange help beyond GRPO, both with two passes?"),
)
PAIRS = (
    *HEADLINES,
    Pair("adv", "self_refine", "Does a rival help beyond refining one's own draft?"),
    Pair("coop", "self_refine", "Does a partner help beyond refining one's own draft?"),
    Pair("coop", "grpo", "Does the exchange, with its second pass, help beyond one pass of GRPO?"),
    Pair("shared_opponent", "plain_pair", "Does one opponent for all, never shown, help? (expected: no)"),
    Pair("shared_opponent", "grpo", "Does a pair of which none sees the other help beyond one policy?"),
    Pair("hidden_drafts", "shared_opponent", "Does a rival of one's own help while drafts stay hidden?"),
    Pair("margin", "coop", "Does the margin reward differ from cooperation? (expected: no)"),
    Pair("fixed_roles", "adv", "What is lost when roles do not swap?"),
    Pair("tie_break", "adv", "What does the tie-break on length change?"),
    Pair("grpo", "zero_shot", "What does training bring?"),
    Pair("moa", "zero_shot", "What does a second pass bring without training?"),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """first minus second; fractions, not points.

    Attributes:
      low, high, p: over seeds (paired t); over problems (bootstrap, McNemar) if there is one seed.
      holm: p after Holm's correction over the `family` of comparisons it belongs to: the headlines,
        or the others.
      wide: (low, high) over seeds and problems together; None with one seed.
      p_problems: with these trained seeds, over problems.
      sd: of the paired differences between seeds, nan with one.
      level: what the verdict may claim: "unmatched" or "unknown" (the budget), "single" (seed), "higher",
        "lower", "open", "none".
    """

    pair: Pair
    names: tuple[str, str]
    seeds: tuple[int, ...]
    effect: float
    low: float
    high: float
    p: float
    wide: tuple[float, float] | None
    p_problems: float
    sd: float
    seeds_for_effect: int | None
    seeds_for_small: int | None
    budget: Budget
    inference: str
    same_inference: bool
    family: int = 1
    holm: float = math.nan
    level: str = "none"

    @property
    def over(self) -> str:
        """What the interval and p are taken over."""
        return "problems" if len(self.seeds) == 1 else "seeds"

    @property
    def badge(self) -> str:
        """The verdict in two words."""
        return {
            "unmatched": "NOT MATCHED", "unknown": "budget unknown", "single": "one seed",
            "higher": "shown: higher", "lower": "shown: lower", "open": "not settled",
            "none": "no difference shown",
        }[self.level]  # fmt: skip

    @property
    def figures(self) -> str:
        """+4.1 points [+1.0, +7.2]"""
        return f"{points(self.effect)} points {interval(self.low, self.high, points)}"

    @property
    def claim(self) -> str:
        """What may be said of the difference, and nothing more; says nothing of budgets."""
        return f"{self._difference()} {self._reach()}".strip()

    @property
    def verdict(self) -> str:
        """The claim, with every budget that is not the same."""
        spent = "" if self.budget.status == "matched" else self.budget.sentence
        answering = "" if self.same_inference else f"Inference is not alike: {self.inference}."
        return " ".join(sentence for sentence in (self.claim, spent, answering) if sentence)

    def _difference(self) -> str:
        first, second = self.names
        if self.over == "problems":
            relation = "differ" if self.holm < LEVEL else "are not shown to differ"
            return (
                f"One seed: these two runs {relation} on these problems, {self.figures}; that says nothing "
                "of the methods, since no other seed was tried."
            )
        over = plural(len(self.seeds), "seed")
        if not _excludes_zero(self.low, self.high):
            down, up = (percent(abs(end)) for end in (self.low, self.high))
            fits = f"fits a loss of {down} as well as a gain of {up}"
            return f"No difference shown: {self.figures} over {over} {fits}."
        if self.level in ("higher", "lower"):
            side = "above" if self.level == "higher" else "below"
            return (
                f"{first} is {side} {second}: {self.figures} over {over}. The interval over seeds and "
                f"problems together excludes 0 too; {self._corrected()}."
            )
        doubts = [f"{first} minus {second}: {self.figures} over {over}."]
        if not _excludes_zero(*self.wide):
            doubts.append("The interval over seeds and problems together includes 0.")
        if self.holm >= LEVEL:
            doubts.append(f"Not settled: {self._corrected()}.")
        return " ".join(doubts)

    def _corrected(self) -> str:
        return f"corrected for {plural(self.family, 'comparison')}, {p_value(self.holm)}"

    def _reach(self) -> str:
        if self.over == "problems":
            return "At least two seeds are needed for any statement on the methods."
        if _excludes_zero(self.low, self.high):
            return ""
        asked = [
            f"{plural(seeds, 'seed')} for {of}"
            for seeds, of in (
                (self.seeds_for_effect, f"the observed {points(self.effect)} points"),
                (self.seeds_for_small, f"{100 * SMALL_EFFECT:g} points"),
            )
            if seeds is not None
        ]
        return f"80 % power would take {' and '.join(asked)}." if asked else ""


def comparisons(results: dict) -> list[Comparison]:
    """The pairs of `PAIRS` whose methods share a seed.

    Holm's correction is over the headlines for these, and over all others for the others: a question
    asked beforehand does not pay for the ablations.
    """
    present = schema.methods(results)
    found = []
    for family in (HEADLINES, PAIRS[len(HEADLINES) :]):
        pairs = [pair for pair in family if pair.first in present and pair.second in present]
        members = [each for each in (_compare(results, pair) for pair in pairs) if each is not None]
        for each, p in zip(members, holm([each.p for each in members]), strict=True):
            found.append(dataclasses.replace(each, family=len(members), holm=p, level=_level(each, p)))
    return found


def unanswered(results: dict, pair: Pair) -> str:
    """Why a pair is not compared."""
    absent = [key for key in (pair.first, pair.second) if key not in schema.methods(results)]
    names = [results["methods"].get(key, {}).get("name", schema.NAMES.get(key, key)) for key in absent]
    return f"Not answered: no run of {' and of '.join(names)}." if names else "Not answered: no common seed."


def holm(ps: list[float]) -> list[float]:
    """p-values adjusted by Holm's step-down procedure (Holm 1979); nan counts as 1."""
    ps = [1.0 if math.isnan(p) else p for p in ps]
    adjusted, running = [0.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        running = max(running, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = running
    return adjusted


def _compare(results: dict, pair: Pair) -> Comparison | None:
    methods = [results["methods"][key] for key in pair[:2]]
    have = [{member["seed"] for member in method["members"]} for method in methods]
    seeds = tuple(sorted(have[0] & have[1]))
    if not seeds:
        return None
    rows = [schema.headlines(method, seeds) for method in methods]
    first, second = (schema.outcomes(each) for each in rows)  # [S, n]
    sentence, alike = inference(methods, rows, results["num_problems"])
    known = dict(
        pair=pair, names=tuple(method["name"] for method in methods), seeds=seeds, inference=sentence,
        same_inference=alike, budget=training(results, pair.first, pair.second, seeds),
    )  # fmt: skip
    if len(seeds) == 1:
        p = mcnemar_exact(second[0], first[0])
        effect, low, high = _one_seed(second[0], first[0])
        return Comparison(
            effect=effect, low=low, high=high, p=p, wide=None, p_problems=p, sd=math.nan,
            seeds_for_effect=None, seeds_for_small=None, **known,
        )  # fmt: skip
    over_seeds = paired_seeds(second.mean(1), first.mean(1))
    _, *wide = hierarchical_bootstrap(second, first)
    needed = lambda effect: required_seeds(effect, over_seeds.sd) if effect and over_seeds.sd else None
    return Comparison(
        effect=over_seeds.mean, low=over_seeds.low, high=over_seeds.high, p=over_seeds.p, wide=tuple(wide),
        p_problems=paired_problems(second, first), sd=over_seeds.sd,
        seeds_for_effect=needed(abs(over_seeds.mean)), seeds_for_small=needed(SMALL_EFFECT), **known,
    )  # fmt: skip


def _one_seed(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    if len(first) > 1:
        return paired_bootstrap(first, second)
    return float(second.mean() - first.mean()), -1.0, 1.0  # one problem: nothing to resample


def _level(comparison: Comparison, adjusted: float) -> str:
    if comparison.budget.status in _UNSETTLED_BUDGETS:
        return _UNSETTLED_BUDGETS[comparison.budget.status]
    if comparison.over == "problems":
        return "single"
    if not _excludes_zero(comparison.low, comparison.high):
        return "none"
    if adjusted >= LEVEL or not _excludes_zero(*comparison.wide):
        return "open"
    return "higher" if comparison.effect > 0 else "lower"


def _excludes_zero(low: float, high: float) -> bool:
    return low > 0 or high < 0
