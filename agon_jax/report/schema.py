"""What the results of an experiment must hold, and the questions that the rest of the report asks of them.

The dict itself is described in `agon_jax.report`. Fields that may be missing may also be None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

ORDER = (
    *("zero_shot", "moa", "grpo", "grpo_cascade", "self_refine", "plain_pair"),
    *("shared_opponent", "hidden_drafts", "coop", "adv", "margin", "fixed_roles", "tie_break"),
)  # of the lines of every table; a method not named here comes last
NAMES = {"adv": "Agon", "coop": "Coop", "grpo_cascade": "GRPO with two passes"}  # where results hold none
UNTRAINED = frozenset({"zero_shot", "moa"})

_RESULTS = ("title", "world", "num_problems", "steps", "seeds", "methods")
_METHOD = ("name", "passes", "policies", "members")
_ROW = ("name", "headline", "outcomes", "mean_length", "stages")
_STAGE = ("role", "generated_tokens", "prefilled_tokens", "truncated", "well_formed", "correct")
_OPTIONAL = {
    "pair": ("disagreement", "error_overlap", "both_wrong", "phi"),
    "training": ("steps", "rollouts", "generated_tokens", "prefilled_tokens"),
}
_FLIPS = ("kept", "lost", "gained", "failed")
_SAMPLES = ("n", "problems", "pass_at", "majority_at")


def check(results: dict) -> None:
    """Raises ValueError that names the field, and where, if `results` cannot be reported."""
    _require(results, "results", _RESULTS)
    for key, method in results["methods"].items():
        where = f"methods[{key!r}]"
        _require(method, where, _METHOD)
        for index, member in enumerate(method["members"]):
            _check_member(member, f"{where}.members[{index}]", results["num_problems"])
        seeds = [member["seed"] for member in method["members"]]
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"{where}: two members with one seed: {seeds}")


def _check_member(member: dict, where: str, problems: int) -> None:
    _require(member, where, ("seed", "rows"))
    for index, row in enumerate(member["rows"]):
        place = f"{where}.rows[{index}]"
        _require(row, place, _ROW)
        if problems < 1 or len(row["outcomes"]) != problems or not set(row["outcomes"]) <= {"0", "1"}:
            raise ValueError(f"{place}: 'outcomes' must be 'num_problems' = {problems} zeros and ones")
        if not row["stages"]:
            raise ValueError(f"{place}: 'stages' is empty")
        for number, stage in enumerate(row["stages"]):
            _require(stage, f"{place}.stages[{number}]", _STAGE)
        for field, names in (("flips", _FLIPS), ("samples", _SAMPLES)):
            if row.get(field) is not None:
                _require(row[field], f"{place}.{field}", names)
    if sum(bool(row["headline"]) for row in member["rows"]) != 1:
        raise ValueError(f"{where}: exactly one row must be the 'headline'")
    for field, names in _OPTIONAL.items():
        if member.get(field) is not None:
            _require(member[field], f"{where}.{field}", names)
    for field, names in (("curve", ("step",)), ("evaluations", ("step", "rates"))):
        for index, point in enumerate(member.get(field) or ()):
            _require(point, f"{where}.{field}[{index}]", names)


def _require(mapping: dict, where: str, fields: Iterable[str]) -> None:
    for field in fields:
        if field not in mapping:
            raise ValueError(f"{where}: missing field {field!r}")


def methods(results: dict) -> dict[str, dict]:
    """The methods of which at least one member is there, in `ORDER`."""
    rank = {key: index for index, key in enumerate(ORDER)}
    present = [key for key, method in results["methods"].items() if method["members"]]
    return {key: results["methods"][key] for key in sorted(present, key=lambda k: rank.get(k, len(rank)))}


def missing(results: dict) -> list[str]:
    """One sentence for every method of which some planned seed is not there."""
    sentences = []
    for method in results["methods"].values():
        seeds = {member["seed"] for member in method["members"]}
        planned = method.get("seeds") or results["seeds"]
        absent = [str(seed) for seed in planned if seed not in seeds]
        if absent:
            have, all_ = len(planned) - len(absent), len(planned)
            sentences.append(
                f"{method['name']}: {have} of {all_} seeds are there (without {', '.join(absent)})."
            )
    return sentences


def headline(member: dict) -> dict:
    """The row that counts as the member's result."""
    return next(row for row in member["rows"] if row["headline"])


def ways(method: dict) -> dict[str, list[dict]]:
    """name of a row -> that row of every member that has it, names in the order of their appearance."""
    rows: dict[str, list[dict]] = {}
    for member in method["members"]:
        for row in member["rows"]:
            rows.setdefault(row["name"], []).append(row)
    return rows


def outcomes(rows: Iterable[dict]) -> np.ndarray:
    """[S, n] bool: whether each of n problems was solved, one line a row."""
    return np.array([list(row["outcomes"]) for row in rows]) == "1"


def headlines(method: dict, seeds: Iterable[int]) -> list[dict]:
    """The headline rows of these seeds, in their order."""
    by_seed = {member["seed"]: headline(member) for member in method["members"]}
    return [by_seed[seed] for seed in seeds]


def trainings(results: dict, key: str) -> dict[int, dict[str, Any]]:
    """seed -> what it cost to train the checkpoint that the method uses, where that is known."""
    source = results["methods"].get(results["methods"][key].get("trained_as") or key, {"members": ()})
    costs = {member["seed"]: member.get("training") for member in source["members"]}
    return {seed: training for seed, training in costs.items() if training is not None}


def tokens(row: dict, problems: int) -> tuple[float, float]:
    """(generated, prefilled) tokens a problem, summed over the stages."""
    total = lambda field: sum(stage[field] for stage in row["stages"]) / problems
    return total("generated_tokens"), total("prefilled_tokens")


def curves(method: dict, field: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(steps, values) of a logged quantity, one pair a member that has any finite value of it."""
    for member in method["members"]:
        points = [(point["step"], point.get(field)) for point in member.get("curve") or ()]
        points = [(step, value) for step, value in points if value is not None and np.isfinite(value)]
        if points:
            steps, values = np.array(points, float).T
            yield steps, values
