"""Which methods are compared, and the sentence that the data allow on each pair.

A difference is always first minus second, on the seeds that both have and on the same problems.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from agon_jax import budget
from agon_jax.report import schema
from agon_jax.report.formats import count, interval, p_value, plural, points
from agon_jax.stats import (
    hierarchical_bootstrap,
    mcnemar_exact,
    paired_bootstrap,
    paired_problems,
    paired_seeds,
    required_seeds,
)

LEVEL = 0.05
SMALL_EFFECT = 0.02  # the effect that an experiment should be able to see, 2 points
INFERENCE_TOLERANCE = 0.1  # tokens a problem that differ by less are called alike
_TOKENS = ("generated_tokens", "prefilled_tokens")


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
    Pair("shared_opponent", "grpo", "Does an opponent that is never shown help?"),
    Pair("hidden_drafts", "shared_opponent", "Does a rival of one's own help while drafts stay hidden?"),
    Pair("margin", "coop", "Does the margin reward differ from cooperation? (expected: no)"),
    Pair("fixed_roles", "adv", "What is lost when roles do not swap?"),
    Pair("tie_break", "adv", "What does the tie-break on length change?"),
    Pair("grpo", "zero_shot", "What does training bring?"),
    Pair("moa", "zero_shot", "What does a second pass bring without training?"),
)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Whether two methods spent the same on training."""

    status: str  # "matched", "NOT MATCHED", "unknown", "untrained"
    sentence: str


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
      level: "unmatched", "single", "higher", "lower", "open", "none": what the verdict may claim.
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
            "unmatched": "NOT MATCHED", "single": "one seed", "higher": "shown: higher",
            "lower": "shown: lower", "open": "not settled", "none": "no difference shown",
        }[self.level]  # fmt: skip

    @property
    def figures(self) -> str:
        """+4.1 points [+1.0, +7.2]"""
        return f"{points(self.effect)} points {interval(self.low, self.high, points)}"

    @property
    def verdict(self) -> str:
        """What may be said, and nothing more."""
        return " ".join(sentence for sentence in (self._claim(), self._reach(), self._costs()) if sentence)

    def _claim(self) -> str:
        first, second = self.names
        if self.over == "problems":
            relation = "differ" if self.holm < LEVEL else "are not shown to differ"
            return (
                f"One seed: these two runs {relation} on these problems, {self.figures}; that says nothing "
                "of the methods, since no other seed was tried."
            )
        over = plural(len(self.seeds), "seed")
        if not _excludes_zero(self.low, self.high):
            down, up = (points(abs(end))[1:] for end in (self.low, self.high))
            return f"No difference shown: {self.figures} over {over} fits a loss of {down} as well as a gain of {up}."
        if self.level in ("higher", "lower"):
            side = "above" if self.level == "higher" else "below"
            return (
                f"{first} is {side} {second}: {self.figures} over {over}. The interval over seeds and problems "
                f"together excludes 0 too, and so does the test corrected for {self.family} comparisons."
            )
        doubts = [f"{first} minus {second}: {self.figures} over {over}."]
        if not _excludes_zero(*self.wide):
            doubts.append("The interval over seeds and problems together includes 0.")
        if self.holm >= LEVEL:
            doubts.append(f"Corrected for {self.family} comparisons {p_value(self.holm)}.")
        return " ".join(doubts)

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

    def _costs(self) -> str:
        training = "" if self.budget.status == "matched" else self.budget.sentence
        inference = "" if self.same_inference else f"Inference is not alike: {self.inference}."
        return f"{training} {inference}".strip()


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
    names = [results["methods"].get(key, {}).get("name", key) for key in absent]
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
    sentence, alike = _inference(methods, rows, results["num_problems"])
    known = dict(
        pair=pair, names=tuple(method["name"] for method in methods), seeds=seeds, inference=sentence,
        same_inference=alike, budget=training_budget(results, pair.first, pair.second, seeds),
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
    if comparison.budget.status in ("NOT MATCHED", "unknown"):
        return "unmatched"
    if comparison.over == "problems":
        return "single"
    if not _excludes_zero(comparison.low, comparison.high):
        return "none"
    if adjusted >= LEVEL or not _excludes_zero(*comparison.wide):
        return "open"
    return "higher" if comparison.effect > 0 else "lower"


def _excludes_zero(low: float, high: float) -> bool:
    return low > 0 or high < 0


def training_budget(results: dict, first: str, second: str, seeds: tuple[int, ...]) -> Budget:
    """Whether the checkpoints of two methods cost the same number of rollouts, seed by seed."""
    names = [results["methods"][key]["name"] for key in (first, second)]
    untrained = [key in schema.UNTRAINED for key in (first, second)]
    if all(untrained):
        return Budget("matched", "Neither is trained.")
    if any(untrained):
        trained, base = names if untrained[1] else names[::-1]
        return Budget("untrained", f"{base} is not trained: the difference includes all that training brings.")
    costs = [schema.trainings(results, key) for key in (first, second)]
    if not all(seed in cost for cost in costs for seed in seeds):
        return Budget("unknown", "Training budget unknown: the difference may come from the budget.")
    first_costs, second_costs = ([cost[seed] for seed in seeds] for cost in costs)
    if all(
        budget.matched({"first": a, "second": b}, "first", "second")
        for a, b in zip(first_costs, second_costs, strict=True)
    ):
        each = _mean(first_costs, "rollouts")
        tokens = _ratio(_mean(first_costs, *_TOKENS), _mean(second_costs, *_TOKENS))
        return Budget("matched", f"Training rollouts are matched, {each:,.0f} each; training tokens {tokens}.")
    ratio = _ratio(_mean(first_costs, "rollouts"), _mean(second_costs, "rollouts"))
    return Budget(
        "NOT MATCHED",
        f"NOT MATCHED: {names[0]} was trained on {ratio} the rollouts of {names[1]}, so the difference may "
        "come from the budget.",
    )


def _mean(costs: list[dict], *quantities: str) -> float:
    return sum(cost[quantity] for cost in costs for quantity in quantities) / len(costs)


def _ratio(first: float, second: float) -> str:
    return f"{first / second:.2f} times" if second else "equal" if not first else "infinitely many times"


def _inference(methods: list[dict], rows: list[list[dict]], problems: int) -> tuple[str, bool]:
    """(what both spend on a problem, whether that is about the same)."""
    spent = [np.mean([sum(schema.tokens(row, problems)) for row in each]) for each in rows]
    texts = [
        f"{method['name']} {plural(method['passes'], 'pass')}, {count(each)} tokens a problem"
        for method, each in zip(methods, spent, strict=True)
    ]
    alike = abs(spent[0] - spent[1]) <= INFERENCE_TOLERANCE * max(spent)
    same_passes = methods[0]["passes"] == methods[1]["passes"]
    return f"{texts[0]}; {texts[1]} ({_ratio(*spent)})", alike and same_passes
