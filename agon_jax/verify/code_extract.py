"""Which part of a completion is the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

MAX_CHARS = 200_000  # a longer completion holds no honest program
_MAX_ENDS = 20  # closing fences tried for one block
_MAX_ASKED = 8  # blocks with a choice; beyond, the first closing fence ends a block
_OPEN = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*")
_PYTHON = {"", "py", "python", "python3", "py3"}


def extract(completion: str, first_python: Callable[[list[str]], int]) -> str | None:
    """The program: the last complete fenced block; without any fence, all of it if that is Python.

    A fence inside of a string of the program does not end the block: of all lines that could, the first
    one that leaves valid Python does (the first of all if none does). A block that never ends does not
    count, nor does one that names another language.

    Args:
      first_python: the index of the first of some texts that is Python, -1 for none. Asked only when
        there is a choice.
    """
    if len(completion) > MAX_CHARS:
        return None
    lines = completion.replace("\r\n", "\n").split("\n")
    program, fenced, asked, i = None, False, 0, 0
    while i < len(lines):
        opening = _OPEN.fullmatch(lines[i])
        i += 1
        if not opening:
            continue
        fenced = True
        fence = opening[1]
        closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*")
        ends = list(islice((j for j in range(i, len(lines)) if closing.fullmatch(lines[j])), _MAX_ENDS))
        if not ends:
            break
        python = opening[2].lower() in _PYTHON
        chosen = 0
        if python and len(ends) > 1 and asked < _MAX_ASKED:
            asked += 1
            chosen = max(0, first_python(["\n".join(lines[i:end]) for end in ends]))
        if python:
            program = "\n".join(lines[i : ends[chosen]])
        i = ends[chosen] + 1
    if not fenced and completion.strip() and first_python([completion]) == 0:
        return completion
    return program if program and program.strip() else None
