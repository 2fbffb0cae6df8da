"""What a problem is, when an answer is right, and what a summary must not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agon_jax.text.prompts import TERSE, PromptSet
from agon_jax.types import Problem, Progress
from agon_jax.verify.grade import Grade

TASKS = ("operators", "copy_world", "math", "code", "reasoning_gym")
PROMPTS = ("task", "terse")


class Task(Protocol):
    """The referee of the game.

    A task that can tell whether a challenger took the draft's answer unread has a further method,
    `copied(completion) -> bool`.
    """

    prompts: PromptSet

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        """A verdict on the text of each answer block; None, no answer, is wrong. `progress` is called
        with the answers judged so far and their number."""

    def fault(self, reference: str) -> str | None:
        """Why no answer could ever be graded against a reference; None when it is fine."""

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The summary as a rival may see it: the final answer hidden."""

    def close(self) -> None:
        """End the referee's own processes."""


def make_task(
    name: str,
    *,
    prompts: str = "task",
    workers: int = 2,
    allow_unsandboxed: bool = False,
    detect: float = 0.0,
) -> Task:
    """The task called `name`.

    Args:
      name: one of TASKS.
      prompts: one of PROMPTS: the task's own, or `terse`, the bare problem and attempt, for a base that
        was made for the task.
      workers: processes of the referee.
      allow_unsandboxed: run programs of task "code" without a sandbox where there is none: they can
        then do whatever the user can.
      detect: of task "copy_world": share of wrong drafts that carry a mark.
    """
    if prompts not in PROMPTS:
        raise ValueError(f"unknown prompts {prompts!r}: use {', '.join(PROMPTS)}")
    task = _make(name, workers, allow_unsandboxed, detect)
    if prompts == "terse":
        task.prompts = TERSE
    return task


def _make(name: str, workers: int, allow_unsandboxed: bool, detect: float) -> Task:
    if name == "operators":
        from agon_jax.tasks.operators import OperatorsTask

        return OperatorsTask()
    if name == "copy_world":
        from agon_jax.tasks.copy_world import CopyWorldTask

        return CopyWorldTask(detect=detect)
    if name == "math":
        from agon_jax.tasks.math import MathTask

        return MathTask(workers)
    if name == "code":
        from agon_jax.tasks.code import CodeTask

        return CodeTask(workers, allow_unsandboxed)
    if name == "reasoning_gym":
        from agon_jax.tasks.reasoning_gym import ReasoningGymTask

        return ReasoningGymTask()
    raise ValueError(f"unknown task {name!r}: use {', '.join(TASKS)}")
