"""Exact arithmetic on complex rationals, with limits on their size."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from fractions import Fraction

from agon_jax.verify.math_expr import Node

MAX_BITS = 1 << 21  # of an exact number
MAX_FACTORIAL = 5_000


class TooBig(ArithmeticError):
    """The number is too large to be compared."""


class Undefined(ArithmeticError):
    """The expression has no value here."""


Exact = tuple[Fraction, Fraction]  # real and imaginary part


def _small(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooBig
    return value


def _times(a: Exact, b: Exact) -> Exact:
    if not a[1] and not b[1]:
        return _small(a[0] * b[0]), Fraction(0)
    return _small(a[0] * b[0] - a[1] * b[1]), _small(a[0] * b[1] + a[1] * b[0])


def _inverse(a: Exact) -> Exact:
    norm = a[0] * a[0] + a[1] * a[1]
    if not norm:
        raise Undefined
    return a[0] / norm, -a[1] / norm


def _exact_power(base: Exact, exponent: Exact) -> Exact | None:
    if exponent[1] or exponent[0].denominator != 1:
        return None
    n = int(exponent[0])
    if not any(base):
        if n < 0:
            raise Undefined
        return (Fraction(0 if n else 1), Fraction(0))
    bits = max(max(part.numerator.bit_length(), part.denominator.bit_length()) for part in base)
    if base not in _UNITS and bits * abs(n) > MAX_BITS:
        raise TooBig
    if n < 0:
        base, n = _inverse(base), -n
    if not base[1]:
        return base[0] ** (n if base not in _UNITS else n % 2), Fraction(0)
    n = n % 4 if base in _UNITS else n
    result = (Fraction(1), Fraction(0))
    while n:
        if n & 1:
            result = _times(result, base)
        base, n = (_times(base, base) if n > 1 else base), n >> 1
    return result


_NOWHERE: Mapping[str, Fraction] = types.MappingProxyType({})
_UNITS = {(Fraction(a), Fraction(b)) for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1))}


def exact(node: Node, point: Mapping[str, Fraction] = _NOWHERE) -> Exact | None:
    """The value at a point if it is a complex rational that arithmetic alone gives; None otherwise."""
    kind = node[0]
    if kind == "sym":
        return (point[node[1]], Fraction(0)) if node[1] in point else None
    if kind == "num":
        return node[1], Fraction(0)
    if kind == "const":
        return (Fraction(0), Fraction(1)) if node[1] == "i" else None
    if kind in ("add", "mul"):
        total = (Fraction(kind == "mul"), Fraction(0))
        for part in node[1]:
            value = exact(part, point)
            if value is None:
                return None
            total = (
                _times(total, value)
                if kind == "mul"
                else (_small(total[0] + value[0]), _small(total[1] + value[1]))
            )
        return total
    if kind == "neg":
        value = exact(node[1], point)
        return value and (-value[0], -value[1])
    if kind in ("div", "pow"):
        left, right = exact(node[1], point), exact(node[2], point)
        if left is None or right is None:
            return None
        return _times(left, _inverse(right)) if kind == "div" else _exact_power(left, right)
    if kind == "root":
        return _exact_root(exact(node[1], point), exact(node[2], point))
    if kind == "fact":
        value = exact(node[1], point)
        if value is None or value[1] or value[0].denominator != 1 or value[0] < 0:
            return None
        if value[0] > MAX_FACTORIAL:
            raise TooBig
        return Fraction(math.factorial(int(value[0]))), Fraction(0)
    if kind == "fn":
        return _exact_function(node, point)
    return None


def _exact_root(degree: Exact | None, value: Exact | None) -> Exact | None:
    if degree != (Fraction(2), Fraction(0)) or value is None or value[1] or value[0] < 0:
        return None
    roots = [math.isqrt(part) for part in (value[0].numerator, value[0].denominator)]
    root = Fraction(*roots)
    return (root, Fraction(0)) if root * root == value[0] else None


def _exact_function(node: Node, point: Mapping[str, Fraction]) -> Exact | None:
    values = [exact(part, point) for part in node[2:]]
    if any(value is None or value[1] for value in values):
        return None
    args = [value[0] for value in values]
    zero = Fraction(0)
    if node[1] == "abs":
        return abs(args[0]), zero
    if node[1] in ("floor", "ceil"):
        return Fraction(args[0] // 1 if node[1] == "floor" else -(-args[0] // 1)), zero
    if node[1] == "binom" and all(arg.denominator == 1 and arg >= 0 for arg in args):
        if args[0] > MAX_FACTORIAL:
            raise TooBig
        return Fraction(math.comb(int(args[0]), int(args[1]))), zero
    return None
