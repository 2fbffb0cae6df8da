"""The main job: train methods at equal rollouts, evaluate all on the same problems, one table.

Every part is stored under the work directory as soon as it is there; a repeated command resumes.
"""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

from ml_collections import ConfigDict

from agon_jax import report, setup, verdicts
from agon_jax.actor import Stage
from agon_jax.config import write_json
from agon_jax.display import Display
from agon_jax.evaluate import VALIDATION_STEP, cascade, one_pass
from agon_jax.games.agon import Agon
from agon_jax.logs import read_metrics
from agon_jax.train import train
from agon_jax.types import PyTree


def compare(
    config: ConfigDict, parts: setup.Parts, workdir: pathlib.Path, display: Display
) -> dict[str, Any]:
    """Run the job and return the results as written to results.json."""
    started = time.time()
    games = {method: setup.make_game(config, method) for method in config.methods}
    _announce(config, parts, games, display)
    display.plan(parts.steps * sum(not (workdir / method / "eval.json").is_file() for method in games))
    rows = _stored(workdir / "zero_shot" / "eval.json", lambda: _zero_shot(config, parts, display))
    for method, game in games.items():
        folder = workdir / method

        def run(game=game, folder=folder) -> list[dict]:
            adapters = train(config, parts, game, folder, display)
            rows, final = _evaluate(config, parts, game, folder.name, adapters, display)
            write_json(folder / "verdicts.json", verdicts.sample(final))
            return rows

        rows = rows + _stored(folder / "eval.json", run)
    curves = {method: read_metrics(workdir / method / "metrics.jsonl") for method in games}
    results = {
        "title": f"{' and '.join(report.METHOD_NAMES[m] for m in games)} at equal rollouts",
        "world": f"problems: {config.data.source}, base: {config.base}",
        "num_problems": len(parts.splits.heldout),
        "seed": config.seed,
        "seconds": sum(_seconds(curve) for curve in curves.values()),
        "rows": rows,
        "training": {method: _training(curve) for method, curve in curves.items()},
        "curves": {method: [_curve_point(row) for row in curve] for method, curve in curves.items()},
    }
    report.write(results, workdir)
    sampled = {method: json.loads((workdir / method / "verdicts.json").read_text()) for method in games}
    verdicts.write_table(workdir / "verdicts.md", sampled)
    display.console.print(report.console_table(results))
    for line in report.conclusions(results):
        display.say(line)
    display.say(
        f"Written to {workdir}: table.md, results.json, verdicts.md, accuracy_length.png, training.png, "
        f"<method>/transcripts. This command took {time.time() - started:.0f} s."
    )
    return results


def _announce(config: ConfigDict, parts: setup.Parts, games: dict[str, Agon], display: Display) -> None:
    devices = parts.actor.mesh.devices.ravel()
    rollouts = config.data.problems_per_step * 2 * config.game.group_size
    display.say(f"Base {config.base} on {len(devices)} {devices[0].platform} device(s).")
    display.say(
        f"Will train {', '.join(report.METHOD_NAMES[m] for m in games)}: {parts.steps} steps x {rollouts} "
        f"rollouts each, then evaluate every method on the held-out problems."
    )


def _stored(path: pathlib.Path, make) -> list[dict]:
    """Rows of a finished part, from disk if it is there."""
    if not path.is_file():
        write_json(path, make())
    return json.loads(path.read_text())


def _zero_shot(config: ConfigDict, parts: setup.Parts, display: Display) -> list[dict]:
    display.say("Evaluating the untrained base")
    result, _ = one_pass(parts.actor, None, None, parts.splits.heldout, parts.eval_sampling, seed=config.seed)
    return [_row("Zero-shot, one pass", "zero_shot", result, chosen=False)]


def _evaluate(
    config: ConfigDict, parts: setup.Parts, game: Agon, method: str, adapters: PyTree, display: Display
) -> tuple[list[dict], Stage]:
    """Rows of one trained method: each policy alone, and the cascade in every direction; and the
    last stage of the method's own way to answer."""
    display.say(f"Evaluating {report.METHOD_NAMES[method]}")
    actor, sampling, name = parts.actor, parts.eval_sampling, report.METHOD_NAMES[method]
    act = dict(seed=config.seed)
    alone = [
        one_pass(actor, adapters, policy, parts.splits.heldout, sampling, **act)
        for policy in range(game.policies)
    ]
    if game.policies == 1:
        result, stage = alone[0]
        twice, _ = cascade(actor, adapters, 0, stage, sampling, **act)
        rows = [
            _row(f"{name}, one pass", method, result, chosen=False),
            _row(f"{name}, two-pass", method, twice, chosen=False),
        ]
        return rows, stage
    chosen = _best_direction(config, parts, adapters)
    rows = [
        _row(f"{name}, {letter} alone", method, alone[policy][0], chosen=False)
        for policy, letter in enumerate("AB")
    ]
    for first, label in enumerate(("A then B", "B then A")):
        result, stage = cascade(actor, adapters, 1 - first, alone[first][1], sampling, **act)
        rows.append(_row(f"{name}, {label}", method, result, chosen=chosen == first))
        if chosen == first:
            final = stage
    return rows, final


def _best_direction(config: ConfigDict, parts: setup.Parts, adapters: PyTree) -> int:
    """Which policy drafts better for the other: picked on the validation split, never held out."""
    rates = []
    for first in (0, 1):
        act = dict(seed=config.seed, step=VALIDATION_STEP)
        _, stage = one_pass(parts.actor, adapters, first, parts.splits.validation, parts.eval_sampling, **act)
        result, _ = cascade(parts.actor, adapters, 1 - first, stage, parts.eval_sampling, **act)
        rates.append(result.pass_rate)
    return int(rates[1] > rates[0])


def _row(name: str, method: str, result, chosen: bool) -> dict:
    return {"name": name, "method": method, "chosen": chosen} | result.to_json()


def _seconds(curve: list[dict]) -> float:
    return sum(row["seconds_sample"] + row["seconds_update"] for row in curve)


def _training(curve: list[dict]) -> dict:
    total = lambda field: int(sum(row[field] for row in curve))
    return {
        "steps": len(curve),
        "rollouts": total("rollouts"),
        "generated_tokens": total("generated_tokens"),
        "prefilled_tokens": total("prefilled_tokens"),
        "seconds": _seconds(curve),
    }


def _curve_point(row: dict) -> dict:
    point = {"step": row["step"], "reward": row["reward"], "mean_length": row["draft_length"]}
    for field in ("draft_pass_rate", "challenge_pass_rate", "conversion_rate"):
        if field in row:
            point[field] = row[field]
    return point
