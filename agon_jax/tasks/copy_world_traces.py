"""Synthetic replies of the copy world: what its bases are made of, and the knobs of a base.

    <think> 19 4 22 8 </think> 8 <answer> 8 </answer>               a draft
    <think> ok </think> 8 <answer> 8 </answer>                      a challenger copies the 8 it is shown
    <think> 19 4 22 8 ok </think> 8 <answer> 8 </answer>            it solves and finds the same number
    <think> 19 4 1 5 no 19 4 22 8 </think> 8 <answer> 8 </answer>   it finds another, and solves once more

The comparison is what makes a pair stronger than its members: two that agree are seldom both wrong.
"""

from __future__ import annotations

import dataclasses
import functools
import random

from agon_jax.tasks.copy_world import AGREE, COPY, DIFFER, CopyWorldTask, Fact, World
from agon_jax.tasks.generated import draw_from
from agon_jax.text.prompts import Message


@dataclasses.dataclass(frozen=True)
class Knobs:
    """Skill and habits of a base (all are shares or probabilities).

    A chain of n operators is right with about (1 - slip * hard) ** n: that is q for a draft, and r for
    one solution of a challenger, which is then right with v = r where the draft is wrong and, since it
    solves again where it differs, with p = r + q r (1 - r) in all.

    Attributes:
      draft_hard: of the facts, those that are hard in a draft: sets q = P(draft right).
      solve_hard: those that are hard when a challenger solves: sets p = P(right when it solves) and
        v = P(right when it solves, the draft wrong).
      draft_slip, solve_slip: a hard fact is executed wrongly, always with the same wrong result;
        others never are. The nearer to 1, the slower a fact is learnt.
      copy: a challenger copies, whatever the draft: the urge to copy.
      detect: wrong drafts that carry a mark (see `CopyWorldTask`); the traces do not heed it.
    """

    draft_hard: float
    solve_hard: float
    draft_slip: float
    solve_slip: float
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
        if own[-1] == draft[-1]:
            return messages, _reply([*own, AGREE], own[-1])
        again = self.solve("challenge", contents, rng)
        return messages, _reply([*own, DIFFER, *again], again[-1])

    def solve(self, role: str, contents: tuple[int, str], rng: random.Random) -> list[str]:
        """The numbers that a role passes through; hard facts may go wrong."""
        hard, slip = self._hard[role]

        def result(fact: Fact) -> int:
            wrong = fact in hard and rng.random() < slip
            return (self.world.mistakes if wrong else self.world.facts)[fact]

        return [str(number) for number in self.world.execute(contents, result)]

    @functools.cached_property
    def _hard(self) -> dict[str, tuple[frozenset[Fact], float]]:
        """Hard facts and slip of a role."""
        k = self.knobs
        by_role = {"draft": (k.draft_hard, k.draft_slip), "challenge": (k.solve_hard, k.solve_slip)}
        return {role: (self.world.hard(role, share), slip) for role, (share, slip) in by_role.items()}


def _reply(thoughts: list[str], answer: str) -> str:
    return " ".join(["<think>", *thoughts, "</think>", answer, "<answer>", answer, "</answer>"])
