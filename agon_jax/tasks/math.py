"""Mathematics with a reference answer; the referee is `verify.math`, in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence

from agon_jax.tasks.hiding import hide_answer
from agon_jax.text.prompts import MATH
from agon_jax.types import Problem, Progress
from agon_jax.verify.grade import Grade
from agon_jax.verify.math import MathPool, gradable


class MathTask:
    """Referee of free-form mathematics."""

    prompts = MATH

    def __init__(self, workers: int = 2):
        self._workers, self._pool = workers, None

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        """Verdicts; a hung or crashed answer costs its own worker and is wrong."""
        if self._pool is None:  # not before it is needed: processes take a second to start
            self._pool = MathPool(self._workers)
        pairs = [(answer or "", problem.reference) for problem, answer in zip(problems, answers, strict=True)]
        return self._pool.grade_many(pairs, progress, extracted=True)

    def fault(self, reference: str) -> str | None:
        return gradable(reference)

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The summary without boxed forms and without literal repeats of the answer."""
        return hide_answer(summary, answer)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
