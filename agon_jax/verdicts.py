"""A sample of the referee's verdicts, so that people can look at the judge."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from agon_jax.actor import Stage

_LONGEST = 160  # characters of a cell


def sample(stage: Stage, count: int = 20) -> list[dict[str, Any]]:
    """`count` rejected and `count / 4` accepted answers of a stage, always the same ones."""
    order = np.random.default_rng(0).permutation(len(stage.problems))
    answered = [i for i in order if stage.completions[i].answer is not None]
    rejected = [i for i in answered if not stage.grades[i].correct][:count]
    accepted = [i for i in answered if stage.grades[i].correct][: count // 4]
    return [
        {
            "problem": stage.problems[i].text,
            "reference": stage.problems[i].reference,
            "answer": stage.completions[i].answer,
            "correct": stage.grades[i].correct,
            "reason": stage.grades[i].reason,
        }
        for i in [*rejected, *accepted]
    ]


def write_table(path: pathlib.Path, rows_by_method: dict[str, list[dict[str, Any]]]) -> None:
    """Markdown: one table a method, rejected answers first."""
    lines = ["# The referee's verdicts, sampled", ""]
    for method, rows in rows_by_method.items():
        lines += [
            f"## {method}",
            "",
            "| verdict | reason | answer | reference | problem |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            verdict = "right" if row["correct"] else "wrong"
            cells = [verdict, *(_cell(row[name]) for name in ("reason", "answer", "reference", "problem"))]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    path.write_text("\n".join(lines))


def _cell(text: str) -> str:
    """One line that no model output can break out of."""
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LONGEST else flat[: _LONGEST - 1] + "…"
    for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;")):
        short = short.replace(mark, escaped)
    return short
