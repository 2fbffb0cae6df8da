"""Whether an answer has the value of the gold: the same form, every required value and none more."""

from __future__ import annotations

from fractions import Fraction

from agon_jax.verify import math_units
from agon_jax.verify.math_exact import exact
from agon_jax.verify.math_expr import Node, symbols
from agon_jax.verify.math_forms import (
    Assignment,
    Based,
    Listing,
    Matrix,
    Opaque,
    Relation,
    Scalar,
    Sequence,
    Words,
)
from agon_jax.verify.math_reals import Reals, same_reals, to_reals
from agon_jax.verify.math_value import equal, infinite, ratio_constant


def same(gold: object, answer: object) -> bool:
    """Whether the answer is right. Not symmetric: only a gold decimal may be a rounded one."""
    if isinstance(gold, Assignment) or isinstance(answer, Assignment):
        return _assignments(gold, answer)
    if isinstance(gold, Sequence) and isinstance(answer, Listing):
        answer = _named_point(answer) or answer
    if isinstance(gold, Listing) or isinstance(answer, Listing):
        return _listings(gold, answer)
    if isinstance(gold, Reals) or isinstance(answer, Reals):
        left, right = to_reals(gold), to_reals(answer)
        return left is not None and right is not None and same_reals(left, right)
    if type(gold) is not type(answer):
        return False
    if isinstance(gold, Scalar):
        return same_scalars(gold, answer)
    if isinstance(gold, (Based, Words, Opaque)):
        return gold == answer
    if isinstance(gold, Sequence):
        vectors = gold.brackets in _VECTORS and answer.brackets in _VECTORS
        alike = gold.brackets == answer.brackets or (
            vectors and (len(gold.items) > 2 or {gold.brackets, answer.brackets} == {"()", "<>"})
        )
        return alike and _all_same(gold.items, answer.items)
    if isinstance(gold, Matrix):
        return len(gold.rows) == len(answer.rows) and all(
            _all_same(a, b) for a, b in zip(gold.rows, answer.rows, strict=True)
        )
    return isinstance(gold, Relation) and _same_relations(gold, answer)


def _named_point(form: Listing) -> Sequence | None:
    """`x = 1, y = 2` is the point (1, 2), in whatever order it was written."""
    if not all(isinstance(item, Assignment) for item in form.items):
        return None
    items = sorted(form.items, key=lambda item: item.variable)
    if "".join(item.variable for item in items) not in ("xy", "xyz", "ab", "abc", "mn", "pq", "pqr"):
        return None
    return Sequence(tuple(item.value for item in items), "()")


_VECTORS = ("()", "[]", "<>")


def _all_same(gold: tuple, answer: tuple) -> bool:
    """In order. No entry answers a "what percent", so 29% is 0.29 there and never 29."""
    return len(gold) == len(answer) and all(
        _same_inside(_share(a), _share(b)) for a, b in zip(gold, answer, strict=True)
    )


def _same_inside(gold: object, answer: object) -> bool:
    """Inside of other values {1} is not 1."""
    return isinstance(gold, Listing) == isinstance(answer, Listing) and same(gold, answer)


def _share(form: object) -> object:
    if isinstance(form, Scalar) and form.percent:
        return Scalar(("div", form.node, ("num", Fraction(100))))
    return form


def _assignments(gold: object, answer: object) -> bool:
    if isinstance(gold, Assignment) and isinstance(answer, Assignment):
        return gold.variable == answer.variable and same(gold.value, answer.value)
    if isinstance(gold, Relation):
        line = _as_relation(answer)
        return line is not None and _same_relations(gold, line)
    if isinstance(answer, Relation):
        # A line may be written in any way, but an equation to solve is no solution.
        line = _as_relation(gold)
        return line is not None and _several_symbols(gold) and _same_relations(line, answer)
    if isinstance(gold, Assignment):
        return same(gold.value, answer)
    return not isinstance(gold, (Reals, Words)) and same(gold, answer.value)


def _as_relation(form: Assignment) -> Relation | None:
    if not isinstance(form.value, Scalar) or len(form.variable.lstrip("\\")) > 1:
        return None
    return Relation("=", ("sym", form.variable), form.value.node)


def _several_symbols(form: Assignment) -> bool:
    return bool(symbols(form.value.node))


def _listings(gold: object, answer: object) -> bool:
    """Unordered, each item matched once; repeats count outside of braces."""
    if not isinstance(gold, Listing) or not isinstance(answer, Listing):
        listing, other = (gold, answer) if isinstance(gold, Listing) else (answer, gold)
        if isinstance(other, Reals) and listing.braces:
            left, right = to_reals(gold), to_reals(answer)
            return left is not None and right is not None and same_reals(left, right)
        items = _distinct(listing) if listing.braces else listing.items
        if len(items) != 1:
            return False
        return same(items[0], other) if listing is gold else same(other, items[0])
    golds, answers = (_distinct(form) if form.braces else list(form.items) for form in (gold, answer))
    if len(golds) != len(answers):
        return False
    named = {item.variable for item in golds if isinstance(item, Assignment)}
    if len(named) > 1 and not all(isinstance(item, Assignment) for item in answers):
        return False  # x = 1, y = 2 is not the list 1, 2
    left = list(answers)
    for item in golds:
        match = next((i for i, other in enumerate(left) if _same_inside(item, other)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _distinct(form: Listing) -> list:
    kept: list = []
    for item in form.items:
        if not any(same(other, item) for other in kept):
            kept.append(item)
    return kept


# Scalars.


def same_scalars(gold: Scalar, answer: Scalar) -> bool:
    """Equal values in units that agree."""
    if gold.percent != answer.percent:
        return gold.unit is None and answer.unit is None and _percent_and_number(gold, answer)
    if not math_units.agree(gold.unit, answer.unit):
        return False
    if _rounds_to(gold, answer) or equal(gold.node, answer.node):
        return True
    if "degree" in (gold.unit, answer.unit) and None in (gold.unit, answer.unit):
        return equal(*(_radians(side) for side in (gold, answer)))
    return False


def _radians(side: Scalar) -> Node:
    if side.unit is None:
        return side.node
    return ("mul", [side.node, ("div", ("const", "pi"), ("num", Fraction(180)))])


def _percent_and_number(gold: Scalar, answer: Scalar) -> bool:
    """15% is 0.15. It is also the 15 of "what percent", but 0.15% is not 0.15."""
    share, number = (gold, answer) if gold.percent else (answer, gold)
    if infinite(share.node) or infinite(number.node):
        return False
    if equal(("div", share.node, ("num", Fraction(100))), number.node):
        return True
    value = exact(number.node)
    return value is not None and not value[1] and abs(value[0]) > 1 and equal(share.node, number.node)


def _rounds_to(gold: Scalar, answer: Scalar) -> bool:
    """A gold decimal with two digits or more stands for a fraction that no decimal equals."""
    if gold.decimals is None or gold.decimals < 2 or answer.node[0] not in ("div", "neg"):
        return False
    value, target = exact(answer.node), exact(gold.node)
    if value is None or value[1] or target is None:
        return False
    rest = value[0].denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest != 1 and abs(value[0] - target[0]) * 2 <= Fraction(1, 10**gold.decimals)


# Relations.


def _same_relations(gold: Relation, answer: Relation) -> bool:
    """The same solutions because the sides' differences are proportional."""
    if gold.sign != answer.sign:
        return False
    c = ratio_constant(_difference(answer), _difference(gold))
    return c is not None and (gold.sign == "=" or (c.real > 0 and abs(c.imag) < 1e-12))


def _difference(relation: Relation) -> Node:
    return ("add", [relation.left, ("neg", relation.right)])
