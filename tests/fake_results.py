"""Made-up results of an experiment: every optional field is there, drawn with a fixed seed."""

from __future__ import annotations

from typing import Any

import numpy as np

PROBLEMS = 200
SKILL = {"zero_shot": 0.20, "grpo": 0.42, "grpo_cascade": 0.47, "coop": 0.50, "adv": 0.58}
NAMES = {
    "zero_shot": "Zero-shot", "grpo": "GRPO", "grpo_cascade": "GRPO, two passes", "moa": "Mixture of agents",
    "self_refine": "Self-refine", "shared_opponent": "Shared opponent", "hidden_drafts": "Hidden drafts",
    "coop": "Coop", "adv": "Agon", "margin": "Margin", "fixed_roles": "Fixed roles", "tie_break": "Tie-break",
}  # fmt: skip
SINGLE = {"zero_shot", "grpo", "grpo_cascade", "moa", "self_refine"}
ONE_PASS = {"zero_shot", "grpo", "shared_opponent", "hidden_drafts"}


def make(skill: dict[str, float] = SKILL, seeds: int = 3, problems: int = PROBLEMS, steps: int = 60) -> dict:
    """Results of the methods in `skill` (key -> pass@1), as `agon_jax.report` describes them."""
    rng = np.random.default_rng(0)
    difficulty = rng.uniform(size=problems)
    methods = {key: _method(key, level, seeds, difficulty, steps, rng) for key, level in skill.items()}
    return {
        "title": "Agon against GRPO and cooperation",
        "world": "operators: the bundled tiny world; base: 0.6M parameters",
        "num_problems": problems, "steps": steps, "seeds": list(range(seeds)), "config_hash": "3f9a1c",
        "methods": methods,
    }  # fmt: skip


def few_curves(results: dict) -> dict:
    """The same with three quantities over training steps: quicker to draw."""
    kept = {"step", "draft_pass_rate", "challenge_pass_rate", "kl"}
    for method in results["methods"].values():
        for member in method["members"]:
            member["curve"] = [{name: point[name] for name in kept & set(point)} for point in member["curve"]]
    return results


def without_curves(results: dict) -> dict:
    """The same without anything over training steps: quick to draw."""
    for method in results["methods"].values():
        for member in method["members"]:
            member["curve"] = member["evaluations"] = None
    return results


def _method(key: str, level: float, seeds: int, difficulty: np.ndarray, steps: int, rng) -> dict[str, Any]:
    cascade, two = key not in ONE_PASS, key not in SINGLE
    members = []
    for seed in range(seeds):
        skill = level + rng.normal(0, 0.01)
        rows = [
            _row("A alone" if two else "one pass", 1, skill * 0.85 if cascade else skill, difficulty, rng)
        ]
        if two:
            rows.append(_row("B alone", 1, skill * 0.83, difficulty, rng))
        if cascade:
            names = ("A then B", "B then A") if two else ("two passes",)
            rows += [_row(name, 2, skill - 0.01 * i, difficulty, rng) for i, name in enumerate(names)]
        chosen = next(i for i, row in enumerate(rows) if len(row["stages"]) == 1 + cascade)
        for i, row in enumerate(rows):
            row["headline"] = i == chosen
        member: dict[str, Any] = {"seed": seed, "rows": rows}
        if two:
            member["pair"] = {"disagreement": 0.2, "error_overlap": 0.7, "both_wrong": 0.4, "phi": 0.55}
        if key not in ("zero_shot", "moa", "grpo_cascade"):
            member |= _training(skill, cascade, two, steps, rng)
        members.append(member)
    method = {"name": NAMES[key], "passes": 1 + cascade, "policies": 1 + two, "members": members}
    return method | ({"trained_as": "grpo"} if key == "grpo_cascade" else {})


def _row(name: str, stages: int, skill: float, difficulty: np.ndarray, rng) -> dict[str, Any]:
    solved = rng.normal(0, 0.15, len(difficulty)) + difficulty < skill
    draft = rng.normal(0, 0.15, len(difficulty)) + difficulty < skill * 0.85
    counts = [int(draft.sum())] * (stages - 1) + [int(solved.sum())]
    row = {
        "name": name, "headline": False, "validation": float(skill), "mean_length": float(60 - 30 * skill),
        "outcomes": "".join("01"[int(right)] for right in solved),
        "stages": [
            {
                "role": ("draft", "challenge")[index], "policy": "ab"[index], "correct": correct,
                "generated_tokens": 45 * len(solved), "prefilled_tokens": (9 + 20 * index) * len(solved),
                "truncated": 0.02, "well_formed": 0.97,
            }
            for index, correct in enumerate(counts)
        ],
        "samples": {
            "n": 8, "problems": 128,
            "pass_at": {str(k): float(1 - (1 - skill) ** k**0.5) for k in (1, 2, 4, 8)},
            "majority_at": {str(k): float(min(1, skill + 0.01 * k)) for k in (1, 4, 8)},
        },
    }  # fmt: skip
    if stages == 2:
        cells = {
            "kept": draft & solved,
            "lost": draft & ~solved,
            "gained": ~draft & solved,
            "failed": ~draft & ~solved,
        }
        row["flips"] = {cell: int(where.sum()) for cell, where in cells.items()}
    return row


def _training(skill: float, cascade: bool, two: bool, steps: int, rng) -> dict[str, Any]:
    curve = []
    for step in range(steps):
        grown = 0.2 + (skill - 0.2) * (1 - np.exp(-step / (steps / 4)))
        noisy = lambda value, spread=0.03: float(value + rng.normal(0, spread))
        point = {
            "step": step, "reward": noisy(2 * grown + 0.4, 0.08), "draft_pass_rate": noisy(0.9 * grown),
            "draft_length": noisy(52 - 20 * grown, 1), "kl": abs(noisy(0.08 * step / steps, 0.004)),
            "zero_variance": noisy(0.35 - 0.2 * grown), "truncated": abs(noisy(0.03, 0.01)),
        }  # fmt: skip
        if cascade:
            point |= {
                "challenge_pass_rate": noisy(grown), "challenge_length": noisy(50 - 22 * grown, 1),
                "conversion_rate": noisy(0.4 * grown), "keep_rate": noisy(0.85),
                "copy_rate": noisy(0.4 - 0.2 * grown), "boundary_margin": noisy(0.1, 0.02),
            }  # fmt: skip
        if two:
            point["pair_divergence"] = abs(noisy(0.05 * step / steps, 0.003))
        curve.append(point)
    ways = ("A then B", "B then A") if two and cascade else ("one pass",)
    evaluations = [
        {"step": step, "rates": {way: float(0.2 + (skill - 0.2) * step / steps) for way in ways}}
        for step in range(0, steps + 1, max(1, steps // 4))
    ]
    spent = {"steps": steps, "rollouts": 256 * steps, "generated_tokens": 11_000 * steps}
    costs = spent | {"prefilled_tokens": (3_000 + 4_000 * cascade) * steps}
    return {"training": costs, "curve": curve, "evaluations": evaluations}
