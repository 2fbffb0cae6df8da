"""Whether two methods were given the same, in training and in answering, in words."""

from __future__ import annotations

import dataclasses

import numpy as np

from agon_jax import budget
from agon_jax.report import schema
from agon_jax.report.formats import count, plural

INFERENCE_TOLERANCE = 0.1  # tokens a problem that differ by less are called alike
_TOKENS = ("generated_tokens", "prefilled_tokens")


@dataclasses.dataclass(frozen=True)
class Budget:
    """Whether two methods spent the same on training."""

    status: str  # "matched", "NOT MATCHED", "unknown", "untrained"
    sentence: str


def training(results: dict, first: str, second: str, seeds: tuple[int, ...]) -> Budget:
    """Whether the checkpoints of two methods cost the same number of rollouts, seed by seed."""
    names = [results["methods"][key]["name"] for key in (first, second)]
    untrained = [key in schema.UNTRAINED for key in (first, second)]
    if all(untrained):
        return Budget("matched", "Neither is trained.")
    if any(untrained):
        base = names[untrained.index(True)]
        return Budget(
            "untrained", f"{base} is not trained: the difference includes all that training brings."
        )
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
        return Budget("matched", f"Rollouts are matched, {each:,.0f} each; training tokens {tokens}.")
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


def inference(methods: list[dict], rows: list[list[dict]], problems: int) -> tuple[str, bool]:
    """(what both spend on a problem, whether that is about the same)."""
    spent = [np.mean([sum(schema.tokens(row, problems)) for row in each]) for each in rows]
    texts = [
        f"{method['name']}: {plural(method['passes'], 'pass')}, {count(each)} tokens a problem"
        for method, each in zip(methods, spent, strict=True)
    ]
    alike = abs(spent[0] - spent[1]) <= INFERENCE_TOLERANCE * max(spent)
    same_passes = methods[0]["passes"] == methods[1]["passes"]
    return f"{texts[0]}; {texts[1]} ({_ratio(*spent)})", alike and same_passes
