"""What a problem is, when an answer is right, and what a summary must not show."""

from __future__ import annotations

from typing import Protocol

from agon_jax.text.prompts import PromptSet
from agon_jax.types import Problem


class Task(Protocol):
    """The referee of the game: pure functions on strings."""

    prompts: PromptSet

    def verify(self, problem: Problem, answer: str) -> bool:
        """True when `answer` (the text of the answer block) solves the problem."""

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The summary as a rival may see it: the final answer hidden."""


def make_task(name: str) -> Task:
    """The task called `name`: "operators" (the bundled tiny world) or "math"."""
    if name == "operators":
        from agon_jax.tasks.operators import OperatorsTask

        return OperatorsTask()
    if name == "math":
        from agon_jax.tasks.math import MathTask

        return MathTask()
    raise ValueError(f"unknown task {name!r}: use 'operators' or 'math'")
