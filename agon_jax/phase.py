"""The job `phase`: when does competition pay? A matrix of methods on each base of the copy world.

The points differ in p / q at the start, the methods in the weight of the conversion bonus; the rest are
controls. What is finished is skipped, what was cut resumes. docs/copy_or_solve.md has the theory.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from agon_jax import copy_base, matrix, setup
from agon_jax.config import claim, write_json
from agon_jax.display import Display
from agon_jax.exchange import boundary_ratio, escape_step
from agon_jax.logs import member_folder, read_metrics
from agon_jax.methods import METHODS
from agon_jax.report import phase as phase_report

_WINDOW = 10  # steps that a rate is averaged over


def run(config: ConfigDict, workdir: pathlib.Path, display: Display) -> dict[str, Any]:
    """Make the bases that are not there, run the matrix on each, and write phase.json, phase.md and
    phase.png."""
    bases = workdir / "bases"
    missing = [p for p in config.copy_base.points if not (bases / p / "point.json").is_file()]
    if missing:
        copy_base.run(_only(config, missing), bases, display.console)
    for point in config.copy_base.points:
        own = config.copy_and_resolve_references()
        with own.unlocked():
            own.job, own.base, own.matrix.title = "matrix", str(bases / point), f"Copy or solve: {point}"
        if all(unit.finished(workdir / point) for unit in matrix.units(own)):
            continue
        display.say(f"Point {point}")
        parts = setup.make_parts(own)
        try:
            claim(workdir / point, own)
            matrix.run(own, parts, workdir / point, display)
        finally:
            parts.actor.task.close()
    return summarise(config, workdir, display)


def _only(config: ConfigDict, points: list[str]) -> ConfigDict:
    """The config with some of the points."""
    own = config.copy_and_resolve_references()
    chosen = [config.copy_base.points.index(point) for point in points]
    with own.unlocked():
        own.copy_base.points = tuple(points)
        own.copy_base.solve_hard = tuple(config.copy_base.solve_hard[i] for i in chosen)
    return own


def summarise(config: ConfigDict, workdir: pathlib.Path, display: Display) -> dict[str, Any]:
    """The figures of the points that are there, written to phase.json, phase.md and phase.png."""
    points = []
    for name in config.copy_base.points:
        if (workdir / name / "results.json").is_file():
            points.append({"name": name} | _point(config, workdir, name))
    results = {"points": points, "seeds": setup.seeds(config), "steps": config.grpo.steps}
    write_json(workdir / "phase.json", results)
    phase_report.write(results, workdir)
    display.say(f"Written to {workdir}: phase.json, phase.md, phase.png")
    return results


def _point(config: ConfigDict, workdir: pathlib.Path, name: str) -> dict[str, Any]:
    measured = json.loads((workdir / "bases" / name / "point.json").read_text())["measured"]
    methods = json.loads((workdir / name / "results.json").read_text())["methods"]
    found = {}
    for key, own in methods.items():
        source = METHODS[key].trained_as or key
        if METHODS[source].game is None:
            continue
        game = setup.make_game(config, source)
        bonus = {"coop": 0.0, "adv": game.weights.conversion}.get(game.reward)
        found[key] = {
            "name": own["name"],
            "bonus": bonus if game.policies == 2 else None,  # its place in the diagram
            "members": [_member(workdir / name / source, key, member) for member in own["members"]],
        }
    boundary = {
        str(bonus): boundary_ratio(measured["q"], config.game.weights.correct, bonus)
        for bonus in (0.0, 0.5, 1.0, 2.0)
    }
    return {"base": measured, "boundary": boundary, "methods": found}


def _member(folder: pathlib.Path, key: str, member: dict) -> dict[str, Any]:
    """One run: pass rates by length (both directions averaged: no choice is made), and its path."""
    rows = read_metrics(member_folder(folder, member["seed"]) / "metrics.jsonl")
    passes = METHODS[key].passes
    finals = [row for row in member["rows"] if len(row["stages"]) == passes]
    share = lambda text: text.count("1") / len(text)
    tokens = np.cumsum([row["generated_tokens"] for row in rows])
    out: dict[str, Any] = {
        "seed": member["seed"],
        "heldout": float(np.mean([share(row["outcomes"]) for row in finals])),
        "validation": {
            str(point["step"]): float(np.mean(list(point["rates"].values())))
            for point in member.get("evaluations") or ()
        },
        "tokens": {str(step): int(tokens[step - 1]) for step in range(_WINDOW, len(rows) + 1, _WINDOW)},
    }
    if "copy_rate" in rows[-1]:
        path = {name: [row.get(name) for row in rows] for name in ("copy_rate", "q", "p", "v")}
        copies = [float(value) for value in path["copy_rate"]]
        out |= {
            "escape": escape_step(copies, window=_WINDOW),
            "path": {name: _averaged(values) for name, values in path.items()},
            "margin": _averaged([row.get("boundary_margin") for row in rows]),
        }
    return out


def _averaged(values: list[float | None]) -> list[float | None]:
    """Means over windows of steps; None where a window has no value."""
    windows = [values[i : i + _WINDOW] for i in range(0, len(values), _WINDOW)]
    kept = [[value for value in window if value is not None] for window in windows]
    return [float(np.mean(window)) if window else None for window in kept]
