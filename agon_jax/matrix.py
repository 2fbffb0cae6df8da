"""The job `matrix`: every method under every seed, trained at equal rollouts, judged on the same
problems, one report.

The work is cut into units (a method and the seeds that are trained in one program). What is finished
is on disk and skipped; what was cut resumes: repeat the command.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from typing import Any

from ml_collections import ConfigDict

from agon_jax import report, setup, verdicts
from agon_jax.actor import Players
from agon_jax.checkpoint import populations
from agon_jax.config import stored, write_json
from agon_jax.display import Display
from agon_jax.evaluate import Evaluation, evaluate, validate
from agon_jax.logs import member_folder, read_metrics
from agon_jax.methods import METHODS, Method
from agon_jax.train import train

_CURVE = (
    "step", "reward", "draft_pass_rate", "challenge_pass_rate", "draft_length", "challenge_length",
    "conversion_rate", "keep_rate", "copy_rate", "q", "p", "v", "boundary_margin", "pair_divergence",
)  # fmt: skip
_TOTALS = ("rollouts", "generated_tokens", "prefilled_tokens")


@dataclasses.dataclass(frozen=True)
class Unit:
    """Seeds of one method that share a program."""

    key: str
    seeds: tuple[int, ...]

    @property
    def method(self) -> Method:
        return METHODS[self.key]

    def files(self, workdir: pathlib.Path) -> list[pathlib.Path]:
        """The results of its members."""
        return [member_folder(workdir / self.key, seed) / "eval.json" for seed in self.seeds]

    def finished(self, workdir: pathlib.Path) -> bool:
        return all(path.is_file() for path in self.files(workdir))

    def programs(self, workdir: pathlib.Path) -> list[Unit]:
        """What is left of it, by the programs that train it. A population that was begun stays together,
        since its checkpoints hold all its members; those that are left over make a new one."""
        begun = populations(workdir / (self.method.trained_as or self.key))
        cut, left = [], self.seeds
        for seeds in sorted(begun, key=len, reverse=True):
            if set(seeds) <= set(left):
                cut.append(Unit(self.key, seeds))
                left = tuple(seed for seed in left if seed not in seeds)
        cut.append(Unit(self.key, tuple(s for s in left if not Unit(self.key, (s,)).finished(workdir))))
        return [unit for unit in cut if not unit.finished(workdir)]


def seeds_of(config: ConfigDict, key: str) -> tuple[int, ...]:
    """The seeds of a method: those of the one that it is trained as, so that they share checkpoints."""
    more = (METHODS[key].trained_as or key) in config.matrix.more_methods
    return setup.seeds(config) + (tuple(config.matrix.more_seeds) if more else ())


def units(config: ConfigDict) -> list[Unit]:
    """All work, in order: `matrix.population` seeds of every method, then the next ones."""
    size = config.matrix.population
    most = max(len(seeds_of(config, key)) for key in config.methods)
    cut = [(key, seeds_of(config, key)[i : i + size]) for i in range(0, most, size) for key in config.methods]
    return [Unit(key, seeds) for key, seeds in cut if seeds]


def run(config: ConfigDict, parts: setup.Parts, workdir: pathlib.Path, display: Display) -> dict[str, Any]:
    """Run the job and return the results as written to results.json."""
    started = time.time()
    work = units(config)
    _announce(config, parts, work, display)
    pending = [unit for unit in work if not unit.finished(workdir)]
    display.board([(unit.method.name, unit.seeds, unit.finished(workdir)) for unit in work])
    trained = [unit for unit in pending if unit.method.game is not None]
    display.plan(parts.steps * sum(len(unit.programs(workdir)) for unit in trained))
    for number, unit in enumerate(work):
        if unit in pending:
            display.on_board(number, "running")
            for program in unit.programs(workdir):
                _run_unit(config, parts, program, workdir, display)
            display.on_board(number, "done", [_rate(path) for path in unit.files(workdir)])
    results = write_report(workdir, display)
    display.say(
        f"Written to {workdir}: index.html, table.md, results.json, verdicts.md and plots; transcripts "
        f"under <method>/seed_<n>. This command took {time.time() - started:.0f} s."
    )
    return results


def _run_unit(
    config: ConfigDict, parts: setup.Parts, unit: Unit, workdir: pathlib.Path, display: Display
) -> None:
    """Train and judge one unit."""
    method, started = unit.method, time.time()
    evaluation = Evaluation(
        parts.splits.heldout,
        parts.splits.validation,
        parts.eval_sampling,
        config.eval.samples,
        config.eval.sampled_problems,
    )
    source = method.trained_as or unit.key
    if METHODS[source].game is None:
        players = Players(None, unit.seeds, 0)
    else:
        players = train(
            config, parts, setup.make_game(config, source), unit.seeds, workdir / source, display,
            validate=lambda players: validate(parts.actor, players, METHODS[source], evaluation),
        )  # fmt: skip
    display.say(f"Evaluating {method.name}")
    records, answers = evaluate(parts.actor, players, method, evaluation)
    for path, record, ans in zip(unit.files(workdir), records, answers, strict=True):
        write_json(path.with_name("verdicts.json"), verdicts.sample(ans.stages[-1]))
        write_json(path, record)  # last: its presence says that the member is finished
    write_json(
        workdir / unit.key / f"timing_{'_'.join(map(str, unit.seeds))}.json",
        {"seconds_since_start_or_resume": time.time() - started, "seeds": unit.seeds},
    )


def _rate(path: pathlib.Path) -> float:
    """The pass rate of a finished member."""
    result = next(row for row in json.loads(path.read_text())["rows"] if row["headline"])
    return result["outcomes"].count("1") / len(result["outcomes"])


def collect(workdir: pathlib.Path) -> dict[str, Any]:
    """Everything a report needs, from the files of a run: finished members alone. A pure function of
    config and seeds: it holds no times."""
    config = stored(workdir)
    methods = {}
    for key in config.methods if config.job == "matrix" else ():
        paths = [(seed, member_folder(workdir / key, seed) / "eval.json") for seed in seeds_of(config, key)]
        members = [_member(workdir, key, seed, path) for seed, path in paths if path.is_file()]
        if members:
            method = METHODS[key]
            game = METHODS[method.trained_as or key].game or {}
            methods[key] = {
                "name": method.name,
                "passes": method.passes,
                "policies": game.get("policies", 0),
                "exchange": game.get("exchange", False),
                "seeds": seeds_of(config, key),
                "members": members,
            }
            if method.trained_as:
                methods[key]["trained_as"] = method.trained_as
    if not methods:
        raise ValueError(f"{workdir}: no finished method there yet; run the job `matrix`")
    some = next(iter(methods.values()))["members"][0]
    return {
        "title": config.matrix.title or f"{len(methods)} methods at equal rollouts",
        "world": f"problems: {config.data.source}, base: {config.base}",
        "num_problems": len(some["rows"][0]["outcomes"]),
        "steps": config.grpo.steps,
        "seeds": sorted({member["seed"] for own in methods.values() for member in own["members"]}),
        "methods": methods,
    }


def _member(workdir: pathlib.Path, key: str, seed: int, path: pathlib.Path) -> dict[str, Any]:
    """One member's record with its training."""
    record = json.loads(path.read_text())
    folder = member_folder(workdir / (METHODS[key].trained_as or key), seed)
    if METHODS[METHODS[key].trained_as or key].game is None:
        return record
    curve = read_metrics(folder / "metrics.jsonl")
    totals = {name: int(sum(row[name] for row in curve)) for name in _TOTALS}
    record["training"] = {"steps": len(curve)} | totals
    if not METHODS[key].trained_as:
        record["curve"] = [_curve_point(row) for row in curve]
        evaluations = folder / "evaluations.jsonl"
        if evaluations.is_file():
            record["evaluations"] = read_metrics(evaluations)
    return record


def _curve_point(row: dict) -> dict:
    point = {name: row[name] for name in _CURVE if name in row}
    for name, ends in (("kl", "kl/"), ("zero_variance", "_zero_variance"), ("truncated", "_truncated")):
        values = [v for field, v in row.items() if field.startswith(ends) or field.endswith(ends)]
        if values:
            point[name] = sum(values) / len(values)
    return point


def write_report(workdir: pathlib.Path, display: Display) -> dict[str, Any]:
    """The job `report`: results.json, tables, plots, page and verdicts of what is finished."""
    results = collect(workdir)
    report.write(results, workdir, transcripts=_transcripts(workdir, results))
    first = {key: own["members"][0]["seed"] for key, own in results["methods"].items()}
    sampled = {key: member_folder(workdir / key, seed) / "verdicts.json" for key, seed in first.items()}
    verdicts.write_table(
        workdir / "verdicts.md", {key: json.loads(path.read_text()) for key, path in sampled.items()}
    )
    display.console.print(report.console_table(results))
    for line in report.conclusions(results):
        display.say(line)
    return results


def _transcripts(workdir: pathlib.Path, results: dict, files: int = 3) -> dict[str, list[dict]]:
    """For the page: of each method's first member the transcripts of the first, a middle and the last
    step that has some."""
    found = {}
    for key, own in results["methods"].items():
        folder = member_folder(workdir / key, own["members"][0]["seed"]) / "transcripts"
        paths = sorted(folder.glob("step_*.jsonl")) if folder.is_dir() else []
        picked = {round(i * (len(paths) - 1) / (files - 1)) for i in range(files)} if paths else ()
        found[key] = [record for i in sorted(picked) for record in read_metrics(paths[i])]
    return {key: records for key, records in found.items() if records}


def _announce(config: ConfigDict, parts: setup.Parts, work: list[Unit], display: Display) -> None:
    devices = parts.actor.mesh.devices.ravel()
    rollouts = config.data.problems_per_step * 2 * config.game.group_size
    display.say(f"Base {config.base} on {len(devices)} {devices[0].platform} device(s).")
    names = dict.fromkeys(unit.method.name for unit in work)
    runs = sum(len(unit.seeds) for unit in work)
    display.say(
        f"{', '.join(names)}: {runs} runs; those that train make {parts.steps} steps x {rollouts} "
        "rollouts each. All are judged on the held-out problems."
    )
