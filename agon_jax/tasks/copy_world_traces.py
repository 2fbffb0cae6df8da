"""Synthetic replies of the copy world: what its bases are made of, and the knobs of a base.

    <think> 0 2 1 1 </think> 1 <answer> 1 </answer>                          a draft
    <think> ok </think> 1 <answer> 1 </answer>                               a challenger copies
    <think> #0 #2 #1 #1 ok </think> 1 <answer> 1 </answer>                   it solves, finds the same
    <think> #0 #2 #14 #15 no #0 #2 #1 #1 </think> 1 <answer> 1 </answer>     another, and solves once more

A challenger works in a notation of its own: the roles share no skill, and neither can borrow from the
other what it is right about.
The comparison is what makes a pair stronger than its members: two that agree are seldom both wrong.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterable

from agon_jax.tasks.copy_world import AGREE, COPY, DIFFER, OWN, CopyWorldTask, Fact, World
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
            return task.prompts.draft_messages(problem.text), _reply(map(str, draft), draft)
        shown = task.hide(problem, str(draft[-1]), "")
        messages = task.prompts.challenge_messages(problem.text, shown)
        if rng.random() < self.knobs.copy:
            return messages, _reply([COPY], draft)
        own = self.solve("challenge", contents, rng)
        if own[-1] == draft[-1]:
            return messages, _reply([*map(OWN.format, own), AGREE], own)
        again = self.solve("challenge", contents, rng)
        thoughts = [*map(OWN.format, own), DIFFER, *map(OWN.format, again)]
        return messages, _reply(thoughts, again)

    def solve(self, role: str, contents: tuple[int, str], rng: random.Random) -> list[int]:
        """The numbers that a role passes through; hard facts may go wrong."""
        hard, slip = self._hard[role]

        def result(fact: Fact) -> int:
            wrong = fact in hard and rng.random() < slip
            return (self.world.mistakes if wrong else self.world.facts)[fact]

        return self.world.execute(contents, result)

    @functools.cached_property
    def _hard(self) -> dict[str, tuple[frozenset[Fact], float]]:
        """Hard facts and slip of a role."""
        k = self.knobs
        by_role = {"draft": (k.draft_hard, k.draft_slip), "challenge": (k.solve_hard, k.solve_slip)}
        return {role: (self.world.hard(role, share), slip) for role, (share, slip) in by_role.items()}


def _reply(thoughts: Iterable[str], numbers: list[int]) -> str:
    answer = str(numbers[-1])
    return " ".join(["<think>", *thoughts, "</think>", answer, "<answer>", answer, "</answer>"])
