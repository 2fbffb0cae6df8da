"""Mathematics with a reference answer: math-verify decides equivalence."""

from __future__ import annotations

import dataclasses
import re

from agon_jax.text import prompts
from agon_jax.types import Problem

HIDDEN = "[hidden]"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*")


@dataclasses.dataclass(frozen=True)
class MathTask:
    """Referee of free-form mathematics."""

    prompts: prompts.PromptSet = prompts.MATH

    def verify(self, problem: Problem, answer: str) -> bool:
        """True when the answer equals the reference; an empty side is never right."""
        from math_verify import parse, verify

        if not answer.strip() or not problem.reference.strip():
            return False
        # No signal-based limits: they fail outside the main thread.
        read = lambda text: parse(_delimited(text), parsing_timeout=None)
        gold = read(problem.reference)
        return bool(gold) and bool(verify(gold, read(answer), timeout_seconds=None))

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The summary without boxed forms and without literal repeats of the answer."""
        hidden = _hide_boxes(summary)
        inner = _unboxed(answer).strip(" $")
        for literal in sorted({answer.strip(), inner} - {""}, key=len, reverse=True):
            # Not inside a longer number or word: hiding 3 must leave 13 and 3.5 alone.
            hidden = re.sub(rf"(?<![\w.]){re.escape(literal)}(?!\w|\.\d)", HIDDEN, hidden)
        return hidden


def _delimited(text: str) -> str:
    """math-verify only looks for LaTeX between delimiters."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def _boxes(text: str) -> list[tuple[int, int, int, int]]:
    """(start, inner start, inner end, end) of each \\boxed{...} with balanced braces."""
    found = []
    for match in _BOXED.finditer(text):
        if not text.startswith("{", match.end()):
            continue
        depth = 0
        for i in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                found.append((match.start(), match.end() + 1, i, i + 1))
                break
        else:  # never closed: everything after it belongs to the box
            found.append((match.start(), match.end() + 1, len(text), len(text)))
    return found


def _hide_boxes(text: str) -> str:
    while boxes := _boxes(text):  # the outermost first: what it holds goes with it
        start, _, _, end = boxes[0]
        text = text[:start] + HIDDEN + text[end:]
    return text


def _unboxed(text: str) -> str:
    boxes = _boxes(text)
    return text[boxes[-1][1] : boxes[-1][2]] if boxes else text
