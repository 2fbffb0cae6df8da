"""Sets of real numbers: unions of intervals in one canonical order, so that equal sets look alike."""

from __future__ import annotations

import dataclasses

from agon_jax.verify.math_expr import Node
from agon_jax.verify.math_forms import Listing, Scalar, Sequence
from agon_jax.verify.math_tokens import Unreadable
from agon_jax.verify.math_value import equal, infinite, sort_value

_INFINITY: Node = ("const", "inf")


@dataclasses.dataclass(frozen=True)
class Part:
    """An interval with constant ends."""

    low: Node
    low_closed: bool
    high: Node
    high_closed: bool


@dataclasses.dataclass(frozen=True)
class Reals:
    """Disjoint parts in order. `variable` is the name an inequality used, None for an interval."""

    parts: tuple[Part, ...]
    variable: str | None = None

    @classmethod
    def line(cls) -> Reals:
        """All real numbers."""
        return cls((Part(("neg", _INFINITY), False, _INFINITY, False),))


def interval(
    low: Node, low_closed: bool, high: Node, high_closed: bool, variable: str | None = None
) -> Reals:
    """One interval. Raises Unreadable unless its ends are real constants in order."""
    a, b = sort_value(low), sort_value(high)
    if a is None or b is None or a > b or (infinite(low) and low_closed) or (infinite(high) and high_closed):
        raise Unreadable("ends of an interval")
    if (a == b or equal(low, high)) and not (low_closed and high_closed):
        raise Unreadable("an empty interval")
    return Reals((Part(low, low_closed, high, high_closed),), variable)


def union(sets: list[Reals]) -> Reals:
    """Union; parts that touch are merged."""
    parts = sorted((p for s in sets for p in s.parts), key=lambda p: (sort_value(p.low), not p.low_closed))
    merged: list[Part] = []
    for part in parts:
        if merged and _touch(merged[-1], part):
            last = merged.pop()
            high, closed = _higher(last, part)
            part = Part(
                last.low, last.low_closed or (part.low_closed and equal(last.low, part.low)), high, closed
            )
        merged.append(part)
    return Reals(tuple(merged), sets[0].variable if sets else None)


def _touch(left: Part, right: Part) -> bool:
    if equal(left.high, right.low):
        return left.high_closed or right.low_closed
    return sort_value(right.low) < sort_value(left.high)


def _higher(a: Part, b: Part) -> tuple[Node, bool]:
    if equal(a.high, b.high):
        return a.high, a.high_closed or b.high_closed
    part = a if sort_value(a.high) > sort_value(b.high) else b
    return part.high, part.high_closed


def intersection(sets: list[Reals]) -> Reals:
    """Intersection of two or more sets."""
    result = sets[0]
    for other in sets[1:]:
        parts = [part for a in result.parts for b in other.parts if (part := _common(a, b))]
        result = Reals(tuple(parts), result.variable)
    return union([result])


def _common(a: Part, b: Part) -> Part | None:
    low, low_closed = _inner(a.low, a.low_closed, b.low, b.low_closed, larger=True)
    high, high_closed = _inner(a.high, a.high_closed, b.high, b.high_closed, larger=False)
    if equal(low, high):
        return Part(low, True, high, True) if low_closed and high_closed else None
    return Part(low, low_closed, high, high_closed) if sort_value(low) < sort_value(high) else None


def _inner(x: Node, x_closed: bool, y: Node, y_closed: bool, *, larger: bool) -> tuple[Node, bool]:
    if equal(x, y):
        return x, x_closed and y_closed
    return (x, x_closed) if (sort_value(x) > sort_value(y)) == larger else (y, y_closed)


def difference(whole: Reals, holes: list[Node]) -> Reals:
    """The set without some points."""
    if any(sort_value(hole) is None or infinite(hole) for hole in holes):
        raise Unreadable("a hole that is no real constant")
    parts = list(whole.parts)
    for hole in holes:
        at = sort_value(hole)
        kept = []
        for part in parts:
            at_low, at_high = equal(part.low, hole), equal(part.high, hole)
            if at_low or at_high:
                closed = (part.low_closed and not at_low, part.high_closed and not at_high)
                if not (at_low and at_high):
                    kept.append(Part(part.low, closed[0], part.high, closed[1]))
            elif sort_value(part.low) < at < sort_value(part.high):
                kept.append(Part(part.low, part.low_closed, hole, False))
                kept.append(Part(hole, False, part.high, part.high_closed))
            else:
                kept.append(part)
        parts = kept
    return Reals(tuple(parts), whole.variable)


def same_reals(a: Reals, b: Reals) -> bool:
    """Equality of canonical sets; two different variable names differ."""
    if a.variable and b.variable and a.variable != b.variable:
        return False
    return len(a.parts) == len(b.parts) and all(
        (p.low_closed, p.high_closed) == (q.low_closed, q.high_closed)
        and equal(p.low, q.low)
        and equal(p.high, q.high)
        for p, q in zip(a.parts, b.parts, strict=True)
    )


def to_reals(form: object) -> Reals | None:
    """The set of reals that a form can be read as: brackets with two ends, or a set of numbers."""
    if isinstance(form, Reals):
        return form
    try:
        if isinstance(form, Sequence) and len(form.items) == 2 and "<" not in form.brackets:
            low, high = form.items
            if isinstance(low, Scalar) and isinstance(high, Scalar):
                return interval(low.node, form.brackets[0] == "[", high.node, form.brackets[1] == "]")
        if isinstance(form, Listing) and form.braces and all(isinstance(i, Scalar) for i in form.items):
            return union([interval(i.node, True, i.node, True) for i in form.items])
    except Unreadable:
        pass
    return None
