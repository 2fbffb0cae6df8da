"""Hiding a final answer in a write-up: boxed forms and literal repeats."""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*")


def hide_answer(summary: str, answer: str) -> str:
    """The summary without boxed forms and without literal repeats of the answer."""
    hidden = _hide_boxes(summary)
    inner = unboxed(answer).strip(" $")
    for literal in sorted({answer.strip(), inner} - {""}, key=len, reverse=True):
        # Spacing does not tell two answers apart. Not inside a longer number or word: hiding 3 must
        # leave 13 and 3.5 alone.
        spelled = r"\s*".join(map(re.escape, re.findall(r"\\[a-zA-Z]+|\w+|\S", literal)))
        hidden = re.sub(rf"(?<![\w.]){spelled}(?!\w|\.\d)", lambda _: HIDDEN, hidden)
    return hidden


def unboxed(text: str) -> str:
    """Content of the last box, the text itself without one."""
    boxes = _boxes(text)
    return text[boxes[-1][1] : boxes[-1][2]] if boxes else text


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
