"""What a run writes down: metrics.jsonl, TensorBoard events, sampled transcripts."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from agon_jax.games.agon import Round


class RunLog:
    """Logs of one method. Lines of steps that a resumed run will repeat are dropped first."""

    def __init__(self, workdir: pathlib.Path, first_step: int, tensorboard: bool):
        workdir.mkdir(parents=True, exist_ok=True)
        self._transcripts = workdir / "transcripts"
        path = workdir / "metrics.jsonl"
        if path.is_file():
            kept = [row for row in read_metrics(path) if row["step"] < first_step]
            temporary = path.with_suffix(".tmp")
            temporary.write_text("".join(json.dumps(row) + "\n" for row in kept))
            temporary.replace(path)
        self._file = path.open("a")
        self._writer = None
        if tensorboard:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(workdir / "tensorboard"), purge_step=first_step)

    def metrics(self, step: int, metrics: dict[str, float]) -> None:
        """One line of metrics.jsonl and the same scalars for TensorBoard."""
        self._file.write(json.dumps({"step": step} | metrics) + "\n")
        self._file.flush()
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, step)

    def transcripts(self, step: int, round_: Round, groups: int = 1) -> None:
        """The first `groups` groups of a round, each draft with its challenge."""
        self._transcripts.mkdir(exist_ok=True)
        rows = groups * round_.drafts.rewards.shape[1]
        lines = []
        for row in range(rows):
            line: dict[str, Any] = {"step": step, "problem": round_.drafts.stage.problems[row].text}
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


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl; a last line torn by a kill is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
