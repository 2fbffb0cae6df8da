"""What a run writes down: metrics.jsonl, TensorBoard or wandb, evaluations, sampled transcripts."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from agon_jax.actor import Actor
from agon_jax.games.agon import Round


def member_folder(folder: pathlib.Path, seed: int) -> pathlib.Path:
    """Where the logs of one member of a population are, under the folder of its method."""
    return folder / f"seed_{seed}"


class RunLog:
    """Logs of one member. Lines of steps that a resumed run will repeat are dropped first."""

    def __init__(self, folder: pathlib.Path, first_step: int, tensorboard: bool, wandb: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self._transcripts = folder / "transcripts"
        self._evaluations = folder / "evaluations.jsonl"
        path = folder / "metrics.jsonl"
        _keep(path, lambda row: row["step"] < first_step)
        _keep(self._evaluations, lambda row: row["step"] <= first_step)
        self._file = path.open("a")
        self._writer, self._wandb = None, None
        if wandb:
            import wandb as library

            name = "_".join(folder.parts[-2:])
            self._wandb = library.init(
                project="agon_jax", group=folder.parent.name, name=name, dir=str(folder), resume="allow",
                id="_".join(folder.absolute().parts[-3:]), reinit="create_new",
            )  # fmt: skip
        if tensorboard:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def metrics(self, step: int, metrics: dict[str, float]) -> None:
        """One line of metrics.jsonl and the same scalars for TensorBoard and wandb."""
        self._file.write(json.dumps({"step": step} | metrics) + "\n")
        self._file.flush()
        self._scalars(step, metrics)

    def evaluation(self, step: int, rates: dict[str, float]) -> None:
        """One line of evaluations.jsonl: pass rates on the validation split after `step` steps."""
        with self._evaluations.open("a") as file:
            file.write(json.dumps({"step": step, "rates": rates}) + "\n")
        # Under the last of these steps: a run that resumes behind them purges TensorBoard from `step` on.
        self._scalars(step - 1, {f"validation/{way}": rate for way, rate in rates.items()})

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(values, step=step)

    def transcripts(self, step: int, round_: Round, actor: Actor, groups: int = 1) -> None:
        """The first `groups` groups of a round, each draft with its challenge."""
        self._transcripts.mkdir(exist_ok=True)
        rows = groups * round_.drafts.rewards.shape[1]
        drafts = round_.drafts.stage
        lines = []
        for row in range(rows):
            line: dict[str, Any] = {"step": step, "problem": drafts.problems[row].text}
            if round_.challenges is not None:
                line["shown"] = actor.shown_attempt(drafts.problems[row], drafts.completions[row])
            for role, stream in zip(("draft", "challenge"), round_.streams, strict=False):
                stage = stream.stage
                line[role] = {
                    "policy": "ab"[stage.policy],
                    "text": stage.texts[row],
                    "summary": stage.completions[row].summary,
                    "answer": stage.completions[row].answer,
                    "reference": stage.problems[row].reference[:500],
                    "correct": bool(stage.outcome.correct[row]),
                    "verdict": stage.grades[row].reason,
                    "well_formed": bool(stage.outcome.well_formed[row]),
                    "finished": bool(stage.rollouts.finished[row]),
                    "reward": float(stream.rewards.reshape(-1)[row]),
                    "advantage": float(stream.advantages.reshape(-1)[row]),
                }
            lines.append(json.dumps(line))
        path = self._transcripts / f"step_{step:06d}.jsonl"
        path.write_text("\n".join(lines) + "\n")

    def close(self) -> None:
        """Flush and release the files."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()
        if self._wandb is not None:
            self._wandb.finish()


def _keep(path: pathlib.Path, wanted: Callable[[dict], bool]) -> None:
    """The file with the wanted rows alone, in one step."""
    if path.is_file():
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(row) + "\n" for row in read_metrics(path) if wanted(row)))
        temporary.replace(path)


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl; a last line torn by a kill is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
