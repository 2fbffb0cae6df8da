"""What an answer can be: number, list, point, matrix, equation, word. And where its parts are."""

from __future__ import annotations

import dataclasses
import re

from agon_jax.verify.math_expr import Node
from agon_jax.verify.math_tokens import Unreadable

MAX_ITEMS = 200


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A number or expression. `decimals` counts the digits of a plain decimal, else None."""

    node: Node
    unit: str | None = None
    percent: bool = False
    decimals: int | None = None


@dataclasses.dataclass(frozen=True)
class Based:
    """A numeral with its base."""

    digits: str
    base: int


@dataclasses.dataclass(frozen=True)
class Listing:
    """Values in no order; `braces` when written as a set."""

    items: tuple
    braces: bool = False


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Values in order between brackets: a point, a vector, or an interval with symbolic ends."""

    items: tuple
    brackets: str


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple, ...]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """variable = value."""

    variable: str
    value: object


@dataclasses.dataclass(frozen=True)
class Relation:
    """left (= or < or <=) right, in several variables or not solved for one."""

    sign: str
    left: Node
    right: Node


@dataclasses.dataclass(frozen=True)
class Words:
    """A short text answer."""

    text: str


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Notation outside the reader: equal to the same spelling only."""

    text: str


# Splitting.

_OPEN_CLOSE = re.compile(r"\\[{}]|\\[lr]angle|\\[lr](?:floor|ceil|vert)|[()\[\]{}«»]|\\begin|\\end")
_OPENERS = {"(", "[", "{", "\\{", "«", "\\langle", "\\lfloor", "\\lceil", "\\begin", "\\lvert"}


def top_level(text: str) -> str:
    """The text with everything between brackets blanked, so that positions stay."""
    out, depth, at = [], 0, 0
    for match in _OPEN_CLOSE.finditer(text):
        piece = text[at : match.start()]
        out.append(piece if depth == 0 else "\0" * len(piece))
        depth += 1 if match.group() in _OPENERS else -1
        if depth < 0 or depth > 60:
            raise Unreadable("brackets")
        out.append("\0" * len(match.group()))
        at = match.end()
    if depth:
        raise Unreadable("brackets")
    return "".join(out) + text[at:]


def split(text: str, pattern: str) -> tuple[list[str], list[str]]:
    """Pieces between top-level matches, and the matches."""
    top, pieces, found, at = top_level(text), [], [], 0
    for match in re.finditer(pattern, top):
        pieces.append(text[at : match.start()].strip())
        found.append(match.group())
        at = match.end()
    if len(pieces) > MAX_ITEMS:
        raise Unreadable("too many parts")
    return [*pieces, text[at:].strip()], found


def enclosed(text: str) -> tuple[str, str, str] | None:
    """(opener, inside, closer) when one pair of brackets holds all of the text."""
    match = re.match(r"\\\{|\\langle|[(\[{]", text)
    end = re.search(r"(\\\}|\\rangle|[)\]}])$", text)
    if not match or not end or end.start() < match.end():
        return None
    depth = 0
    for piece in _OPEN_CLOSE.finditer(text):
        depth += 1 if piece.group() in _OPENERS else -1
        if depth == 0:
            return (
                (match.group(), text[match.end() : end.start()], end.group())
                if piece.end() == len(text)
                else None
            )
    return None
