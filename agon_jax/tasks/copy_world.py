"""Copy or solve: a tiny world in which a wrong draft cannot be seen.

`7 a c b d`: apply the operators to the number, from left to right. A fact is (operator, operand),
say `a` of 7 is 19: there are 96, arbitrary, so that skill is learnt fact by fact. Every operator
permutes the numbers: all facts are met equally often, and right steps never undo a wrong one.

What a challenger sees of a draft is its final number alone, and checking it means to solve. So
nothing is hidden in this world (`hide`): it exists to study copying, and copying needs a number.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence

from agon_jax.tasks.generated import content_hash
from agon_jax.text import prompts
from agon_jax.text.completion import Completion
from agon_jax.types import Problem, Progress
from agon_jax.verify.grade import Grade

COPY = AGREE = "ok"  # as a first thought: the draft's number is taken unread
DIFFER = "no"
OWN = "#{}"  # a number in the notation of challengers
MARK = "!"  # stands behind a wrong number where mistakes can be seen
Fact = tuple[str, int]  # operator, operand
Contents = tuple[int, str]  # start, operators


@dataclasses.dataclass(frozen=True)
class World:
    """The facts; `seed` decides the results, the mistakes and the order of hardness."""

    numbers: int = 16
    operators: str = "abcdef"
    length: int = 4
    seed: int = 0

    @functools.cached_property
    def facts(self) -> dict[Fact, int]:
        """The right result of every fact."""
        rng, numbers = random.Random(f"{self.seed}/facts"), range(self.numbers)
        rows = {operator: rng.sample(numbers, len(numbers)) for operator in self.operators}
        return {(operator, n): row[n] for operator, row in rows.items() for n in numbers}

    @functools.cached_property
    def mistakes(self) -> dict[Fact, int]:
        """The one wrong result of every fact."""
        rng = random.Random(f"{self.seed}/mistakes")
        return {
            fact: (right + rng.randrange(1, self.numbers)) % self.numbers
            for fact, right in self.facts.items()
        }

    def hard(self, role: str, share: float) -> frozenset[Fact]:
        """The share of all facts that is hard in a role. A larger share holds a smaller one; the
        orders of two roles are independent."""
        order = list(self.facts)
        random.Random(f"{self.seed}/hard/{role}").shuffle(order)
        return frozenset(order[: round(share * len(order))])

    def execute(self, contents: Contents, result: Callable[[Fact], int] | None = None) -> list[int]:
        """The number after each operator; `result` of a fact is the right one by default."""
        number, operators = contents
        passed = []
        for operator in operators:
            number = (result or self.facts.__getitem__)((operator, number))
            passed.append(number)
        return passed

    def draw(self, rng: random.Random) -> Contents:
        """A random start and random operators."""
        return rng.randrange(self.numbers), "".join(rng.choices(self.operators, k=self.length))

    def key(self, contents: Contents) -> str:
        """The whole problem."""
        return " ".join(map(str, (contents[0], *contents[1])))

    def problem(self, contents: Contents) -> Problem:
        """The problem as text; the reference is the last number."""
        text = self.key(contents)
        return Problem(content_hash(text), text, str(self.execute(contents)[-1]))


@dataclasses.dataclass(frozen=True)
class CopyWorldTask:
    """Referee of the copy world.

    Attributes:
      detect: share of the wrong numbers whose mistake can be seen: a mark stands behind them. Which
        ones is decided by problem and number. Right numbers carry none, so 0 is detection at chance.
    """

    detect: float = 0.0
    prompts: prompts.PromptSet = prompts.TERSE

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        """Right is the reference's number alone."""
        grades = []
        for problem, answer in zip(problems, answers, strict=True):
            right = answer is not None and answer.strip() == problem.reference
            grades.append(Grade(right, answer, "no answer" if answer is None else "" if right else "number"))
        return grades

    def fault(self, reference: str) -> str | None:
        return None

    def close(self) -> None:
        """It has no processes."""

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The last number of the summary, NOT hidden, and nothing else; with its mark, if any."""
        numbers = [word for word in summary.split() if word.isdecimal()]
        if not numbers:
            return ""
        shown = numbers[-1]
        seen = content_hash(f"{problem.text} = {shown}") < self.detect * 2**31
        return f"{shown} {MARK}" if seen and shown != problem.reference else shown

    def copied(self, completion: Completion) -> bool:
        """Whether a challenger took the draft's number unread: its first thought says so."""
        return completion.reasoning.split()[:1] == [COPY]
