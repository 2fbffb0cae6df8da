"""Synthetic reasoning traces of the operators world: what the tiny base is made of.

A reply searches in `<think>` (up to two attempts with running totals, each judged ok or no), then
writes one derivation up, then answers. Three phases leave a latent skill under noisy behaviour,
so that reinforcement learning has something to bring out again.
"""

from __future__ import annotations

import dataclasses
import random

from agon_jax.tasks.generated import draw_from
from agon_jax.tasks.operators import OPERATORS, OperatorsTask, World
from agon_jax.text.prompts import Message


@dataclasses.dataclass(frozen=True)
class Phase:
    """How well the writer of the traces reasons (all probabilities).

    Attributes:
      slip: a running total is off by up to three.
      solve: the first attempt is a solution.
      repair: a second attempt is the solution nearest to the first attempt.
      flip: a second attempt flips one sign of the first.
      draft_solve: as `solve`, for the attempt shown to a challenger.
      ignore, copy: a challenger ignores the attempt, or copies it unread; otherwise it checks.
      min_tries: attempts that a checking challenger has at least.
    """

    slip: float
    solve: float
    repair: float
    flip: float
    draft_solve: float
    ignore: float
    copy: float
    min_tries: int
    max_tries: int = 2


PHASES = {
    "mixed": Phase(0.02, 0.35, 0.35, 0.35, 0.35, 0.5, 0.25, 1),
    "skill": Phase(0.01, 0.5, 0.85, 0.10, 0.3, 0.3, 0.1, 2),
    "noise": Phase(0.02, 0.15, 0.15, 0.45, 0.15, 0.5, 0.25, 1),
}


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes traces of one phase on the problems of the train split."""

    phase: Phase
    world: World = World()

    def example(self, rng: random.Random, challenger: bool) -> tuple[list[Message], str]:
        """(messages of the prompt, reply) of one drafter or challenger."""
        numbers, target = draw_from(self.world, "train", rng)
        task = OperatorsTask(self.world)
        problem = self.world.problem((numbers, target))
        solver = _Solver(self, numbers, target, rng)
        if not challenger:
            thoughts, signs, derivation = solver.search(self._tries(rng))
            return task.prompts.draft_messages(problem.text), _reply(thoughts, derivation, signs)
        _, draft_signs, draft = solver.search(self._tries(rng), solve=self.phase.draft_solve)
        shown = task.hide(problem, " ".join(draft), " ".join(draft_signs))
        messages = task.prompts.challenge_messages(problem.text, shown)
        return messages, self._challenge(solver, rng, draft_signs, draft)

    def _challenge(self, solver, rng, draft_signs, draft) -> str:
        phase, mood = self.phase, rng.random()
        if mood < phase.ignore:
            thoughts, signs, derivation = solver.search(self._tries(rng))
        elif mood < phase.ignore + phase.copy:
            thoughts, signs, derivation = solver.judged(draft), draft_signs, draft
        else:
            derivation, signs = solver.derive(draft_signs), draft_signs
            thoughts = solver.judged(derivation)
            tries = max(self._tries(rng), phase.min_tries)
            if not solver.reached(derivation) and tries > 1:
                more, signs, derivation = solver.search(tries - 1, previous=draft_signs)
                thoughts = thoughts + more
        return _reply(thoughts, derivation, signs)

    def _tries(self, rng: random.Random) -> int:
        return rng.randint(1, self.phase.max_tries)


class _Solver:
    """Imperfect search on one problem."""

    def __init__(self, writer: Writer, numbers: list[int], target: int, rng: random.Random):
        self.phase, self.world, self.rng = writer.phase, writer.world, rng
        self.numbers, self.target = numbers, target
        self.solutions = self.world.solutions(numbers, target)

    def search(self, tries: int, previous: list[str] | None = None, solve: float | None = None):
        """Up to `tries` attempts, then commit to the last: (thoughts, signs, derivation)."""
        thoughts: list[str] = []
        for _ in range(tries):
            signs = self._attempt(previous, solve)
            derivation = self.derive(signs)
            thoughts += self.judged(derivation)
            previous = signs
            if self.reached(derivation):
                break
        return thoughts, signs, derivation

    def derive(self, signs: list[str]) -> list[str]:
        """`45 + 10 55 - 8 47 ...`, where a running total may slip."""
        total, words = self.numbers[0], [str(self.numbers[0])]
        for sign, number in zip(signs, self.numbers[1:], strict=True):
            total = total + number if sign == "+" else total - number
            if self.rng.random() < self.phase.slip:
                total += self.rng.randint(-3, 3)
            total = min(max(total, 0), self.world.max_total)
            words += [sign, str(number), str(total)]
        return words

    def reached(self, derivation: list[str]) -> bool:
        return int(derivation[-1]) == self.target

    def judged(self, derivation: list[str]) -> list[str]:
        return [*derivation, "ok" if self.reached(derivation) else "no"]

    def _attempt(self, previous: list[str] | None, solve: float | None) -> list[str]:
        phase, rng, luck = self.phase, self.rng, self.rng.random()
        if previous is None:
            if luck < (phase.solve if solve is None else solve):
                return rng.choice(self.solutions)
        elif luck < phase.repair:
            distance = lambda s: sum(x != y for x, y in zip(s, previous, strict=True))
            return min(self.solutions, key=distance)
        elif luck < phase.repair + phase.flip:
            for _ in range(5):
                flipped, i = list(previous), rng.randrange(len(previous))
                flipped[i] = OPERATORS[flipped[i] == OPERATORS[0]]
                if self.world.running_totals(self.numbers, flipped) is not None:
                    return flipped
        return self.world.random_signs(self.numbers, rng)[0]


def _reply(thoughts: list[str], derivation: list[str], signs: list[str]) -> str:
    words = ["<think>", *thoughts, "</think>", *derivation, "<answer>", *signs, "</answer>"]
    return " ".join(words)
