"""When a program's output is the expected one."""

from __future__ import annotations

import math
import re

RELATIVE = 1e-6
_FLOAT = re.compile(rb"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LONGEST = 400  # of a token that is read as a float


def same_output(got: bytes, expected: bytes) -> bool:
    """True when both are the same tokens in the same order.

    Blanks and line ends only separate. A token that is expected as a float (it has a point or an
    exponent) is met by any finite number within `tolerance`; every other token, integers among them, by
    itself only: same digits, sign and letter case.
    """
    left, right = got.split(), expected.split()
    return len(left) == len(right) and all(map(_same_token, left, right))


def tolerance(expected: float) -> float:
    """How far from `expected` a float may be.

    1e-6, relative or absolute, whichever is larger; but never more than a thousandth of a value that is
    not zero, or a program could answer 0 wherever the numbers are tiny.
    """
    size = abs(expected)
    return max(RELATIVE * size, min(RELATIVE, 1e-3 * size) if size else RELATIVE)


def _same_token(got: bytes, expected: bytes) -> bool:
    if got == expected:
        return True
    if max(len(got), len(expected)) > _LONGEST:
        return False
    if not _FLOAT.fullmatch(expected) or not _NUMBER.fullmatch(got):
        return False
    want, have = float(expected), float(got)
    return math.isfinite(want) and math.isfinite(have) and abs(have - want) <= tolerance(want)
