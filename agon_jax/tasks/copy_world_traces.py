"""Synthetic replies of the copy world: what its bases are made of, and the knobs of a base.

    <think> 19 4 22 8 </think> 8 <answer> 8 </answer>     a draft, or a challenger that solves
    <think> ok </think> 8 <answer> 8 </answer>            a challenger that copies the 8 it was shown
"""

from __future__ import annotations

import dataclasses
import functools
import random

from agon_jax.tasks.copy_world import COPY, CopyWorldTask, Fact, World
from agon_jax.tasks.generated import draw_from
from agon_jax.text.prompts import Message


@dataclasses.dataclass(frozen=True)
class Knobs:
    """Skill and habits of a base (all are shares or probabilities).

    Attributes:
      draft_hard: of the facts, those that are hard in a draft: sets q = P(draft right).
      solve_hard: those that are hard when a challenger solves: sets p = P(right when it solves).
      slip: a hard fact is executed wrongly, always with the same wrong result; others never are.
        A chain of n operators is right with about (1 - slip * hard) ** n.
      copy: a challenger copies, whatever the draft: the urge to copy.
      detect: wrong drafts that carry a mark (see `CopyWorldTask`); the traces do not heed it.
    """

    draft_hard: float
    solve_hard: float
    slip: float = 0.5
    copy: float = 0.45
    detect: float = 0.0


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes replies on the problems of the train split."""

    knobs: Knobs
    world: World = World()

    def example(self, rng: random.Random, challenger: bool) -> tuple[list[Message], str]:
        """(messages of the prompt, reply) of one drafter or challenger."""
        contents = draw_from(self.world, "train", rng)
        problem, task = self.world.problem(contents), CopyWorldTask(self.knobs.detect)
        draft = self.solve("draft", contents, rng)
        if not challenger:
            return task.prompts.draft_messages(problem.text), _reply(draft, draft[-1])
        shown = task.hide(problem, draft[-1], draft[-1])
        messages = task.prompts.challenge_messages(problem.text, shown)
        if rng.random() < self.knobs.copy:
            return messages, _reply([COPY], draft[-1])
        own = self.solve("challenge", contents, rng)
        return messages, _reply(own, own[-1])

    def solve(self, role: str, contents: tuple[int, str], rng: random.Random) -> list[str]:
        """The numbers that a role passes through; hard facts may go wrong."""

        def result(fact: Fact) -> int:
            wrong = fact in self._hard[role] and rng.random() < self.knobs.slip
            return (self.world.mistakes if wrong else self.world.facts)[fact]

        return [str(number) for number in self.world.execute(contents, result)]

    @functools.cached_property
    def _hard(self) -> dict[str, frozenset[Fact]]:
        shares = {"draft": self.knobs.draft_hard, "challenge": self.knobs.solve_hard}
        return {role: self.world.hard(role, share) for role, share in shares.items()}


def _reply(thoughts: list[str], answer: str) -> str:
    return " ".join(["<think>", *thoughts, "</think>", answer, "<answer>", answer, "</answer>"])
