"""Procedural problems of the reasoning-gym library, judged by its own scorers."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from agon_jax.tasks.hiding import hide_answer
from agon_jax.text.prompts import MATH
from agon_jax.types import Problem, Progress
from agon_jax.verify.grade import Grade


class ReasoningGymTask:
    """Referee of reasoning_gym: right is a full score. A reference is JSON: {"dataset", "entry"}."""

    prompts = MATH

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        return [self._one(problem, answer) for problem, answer in zip(problems, answers, strict=True)]

    def _one(self, problem: Problem, answer: str | None) -> Grade:
        if not (answer or "").strip():
            return Grade(False, None, "no answer")
        reference = json.loads(problem.reference)
        try:
            score = float(_scorer(reference["dataset"]).score_answer(answer.strip(), reference["entry"]))
        except Exception as error:  # a scorer's own fault with strange text: never paid
            return Grade(False, answer, f"scorer: {type(error).__name__}")
        return Grade(score >= 1.0, answer, "full score" if score >= 1.0 else f"score {score:.2f}")

    def fault(self, reference: str) -> str | None:
        return None

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        return hide_answer(summary, answer)

    def close(self) -> None:
        """It has no processes."""


@functools.cache
def _scorer(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=1, seed=0)
