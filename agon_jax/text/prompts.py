"""Every word we say to a model.

The challenger's prompt is the same, word for word, whatever the reward (coop, adv, margin): the
modes differ in the reward alone.
"""

from __future__ import annotations

import dataclasses

Message = dict[str, str]


@dataclasses.dataclass(frozen=True)
class PromptSet:
    """Templates of one task. `plain` has the field {problem}; `challenge` also has {attempt}."""

    system: str | None
    plain: str
    challenge: str

    def draft_messages(self, problem: str) -> list[Message]:
        """The plain prompt: what a drafter and every single-policy baseline sees."""
        return self._messages(self.plain.replace("{problem}", problem))

    def challenge_messages(self, problem: str, attempt: str) -> list[Message]:
        """The prompt of a challenger: the problem and the rival's summary, answer hidden."""
        # One pass over the template: text inside the problem that reads "{attempt}" stays text.
        head, _, tail = self.challenge.partition("{attempt}")
        fill = [part.replace("{problem}", problem) for part in (head, tail)]
        return self._messages(attempt.join(fill))

    def _messages(self, content: str) -> list[Message]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": content}]


OPERATORS = PromptSet(system=None, plain="{problem}", challenge="{problem} <attempt> {attempt} </attempt>")

# For bases that know their task without being told. The problem stands last: a solver's distance to it
# is the same in both roles, and so are its weights.
TERSE = PromptSet(system=None, plain="{problem}", challenge="<attempt> {attempt} </attempt> {problem}")

_FORMAT = (
    "Reason privately inside <think> and </think>. After </think>, write up the solution: the key "
    "steps of the derivation, so that a reader can check them. End with the final answer alone "
    "inside <answer> and </answer>."
)

MATH = PromptSet(
    system=None,
    plain="Solve the problem.\n\n{problem}\n\n" + _FORMAT,
    challenge=(
        "Solve the problem.\n\n{problem}\n\n"
        "Below is a rival's attempt at the same problem, its final answer hidden. It may or may "
        "not be correct.\n\n<attempt>\n{attempt}\n</attempt>\n\n"
        "Do not trust the attempt and do not paraphrase it. Verify each step, solve the problem "
        "independently, and win by being right where the rival is wrong.\n\n" + _FORMAT
    ),
)

_CODE_FORMAT = (
    "Reason privately inside <think> and </think>. After </think>, explain the algorithm in words, so "
    "that a reader can check it. End with the whole program in one ```python block inside <answer> and "
    "</answer>."
)

CODE = PromptSet(
    system=None,
    plain=(
        "Write a Python program that solves the problem. It reads standard input and prints to standard "
        "output.\n\n{problem}\n\n" + _CODE_FORMAT
    ),
    challenge=(
        "Write a Python program that solves the problem. It reads standard input and prints to standard "
        "output.\n\n{problem}\n\n"
        "Below is a rival's attempt at the same problem, its program hidden. It may or may not be "
        "correct.\n\n<attempt>\n{attempt}\n</attempt>\n\n"
        "Do not trust the attempt and do not paraphrase it. Verify each step, solve the problem "
        "independently, and win by being right where the rival is wrong.\n\n" + _CODE_FORMAT
    ),
)
