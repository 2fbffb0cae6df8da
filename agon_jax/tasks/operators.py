"""The bundled tiny world: fill in the operators.

Given `45 10 8 5 5 = 73`, find signs so that the chain, computed from left to right, ends on the
target: `+ + + +`. Every running total stays within 0..99, so one token per number suffices. Truth
is computable, difficulty is the number of operands, and problems never run out.

What hiding means here: a summary is the derivation with running totals; its outcome (the last
total) is hidden. The operators stay visible: they are the argument, and a reader has to add up.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence

from agon_jax.tasks.generated import content_hash
from agon_jax.text import prompts
from agon_jax.types import Problem, Progress
from agon_jax.verify.grade import Grade

OPERATORS = ("+", "-")
HIDDEN = "?"


@dataclasses.dataclass(frozen=True)
class World:
    """Sizes of the world; the defaults are the quickstart's."""

    num_operands: int = 5
    first: tuple[int, int] = (20, 49)
    others: tuple[int, int] = (1, 15)
    max_total: int = 99

    def running_totals(self, numbers: list[int], signs: list[str]) -> list[int] | None:
        """Totals after each operand, or None when one leaves 0..max_total."""
        total, totals = numbers[0], []
        for sign, number in zip(signs, numbers[1:], strict=True):
            total = total + number if sign == "+" else total - number
            if not 0 <= total <= self.max_total:
                return None
            totals.append(total)
        return totals

    def solutions(self, numbers: list[int], target: int) -> list[list[str]]:
        """All sign patterns that reach the target."""
        found = []
        for signs in itertools.product(OPERATORS, repeat=len(numbers) - 1):
            totals = self.running_totals(numbers, list(signs))
            if totals and totals[-1] == target:
                found.append(list(signs))
        return found

    def draw(self, rng: random.Random) -> tuple[list[int], int]:
        """Random numbers and the target of one random valid sign pattern."""
        numbers = [rng.randint(*self.first)]
        numbers += [rng.randint(*self.others) for _ in range(self.num_operands - 1)]
        return numbers, self.random_signs(numbers, rng)[1]

    def random_signs(self, numbers: list[int], rng: random.Random) -> tuple[list[str], int]:
        """Random signs whose running totals stay in range, and their outcome."""
        while True:
            total, signs = numbers[0], []
            for number in numbers[1:]:
                allowed = [s for s in OPERATORS if 0 <= _step(total, s, number) <= self.max_total]
                if not allowed:
                    break
                signs.append(rng.choice(allowed))
                total = _step(total, signs[-1], number)
            else:
                return signs, total

    def key(self, contents: tuple[list[int], int]) -> str:
        """The numbers, not the target: one tuple lies in one split only."""
        return " ".join(map(str, contents[0]))

    def problem(self, contents: tuple[list[int], int]) -> Problem:
        """The problem as text; the reference is its first solution."""
        numbers, target = contents
        text = f"{self.key(contents)} = {target}"
        return Problem(content_hash(text), text, " ".join(self.solutions(numbers, target)[0]))


def _step(total: int, sign: str, number: int) -> int:
    return total + number if sign == "+" else total - number


def parse_problem(text: str) -> tuple[list[int], int]:
    """`45 10 8 5 5 = 73` -> ([45, 10, 8, 5, 5], 73)."""
    left, _, right = text.partition("=")
    try:
        numbers, target = [int(word) for word in left.split()], int(right)
    except ValueError:
        numbers, target = [], 0
    if len(numbers) < 2:
        raise ValueError(f"not a problem of the operators world: {text!r} (want '20 3 4 = 19')")
    return numbers, target


@dataclasses.dataclass(frozen=True)
class OperatorsTask:
    """Referee of the operators world."""

    world: World = World()
    prompts: prompts.PromptSet = prompts.OPERATORS

    def verify(self, problem: Problem, answer: str) -> bool:
        """Right when the signs, applied from left to right, end on the target."""
        numbers, target = parse_problem(problem.text)
        signs = answer.split()
        if len(signs) != len(numbers) - 1 or not set(signs) <= set(OPERATORS):
            return False
        totals = self.world.running_totals(numbers, signs)
        return totals is not None and totals[-1] == target

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        """Verdicts by `verify`."""
        grades = []
        for problem, answer in zip(problems, answers, strict=True):
            right = answer is not None and self.verify(problem, answer)
            grades.append(Grade(right, answer, "no answer" if answer is None else "" if right else "total"))
        return grades

    def fault(self, reference: str) -> str | None:
        return None

    def close(self) -> None:
        """It has no processes."""

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The derivation with its outcome, the last number whatever follows it, replaced by `?`."""
        words = summary.split()
        numbers = [i for i, word in enumerate(words) if word.isdecimal()]
        if numbers:
            words[numbers[-1]] = HIDDEN
        return " ".join(words)
