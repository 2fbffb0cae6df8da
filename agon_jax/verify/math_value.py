"""Values of expressions, and whether two expressions are equal.

Numbers are compared exactly where they are (complex) rationals. Everything else is evaluated with
mpmath: constants at two precisions, functions at several real points of both signs. Two closed forms
that agree to hundreds of digits, relatively, are equal; nothing is ever rounded to some decimals, so
3^-40 differs from 3^-41.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from fractions import Fraction

import mpmath

from agon_jax.verify.math_exact import TooBig, Undefined, exact
from agon_jax.verify.math_expr import Node, children, symbols

MAX_LOG = 2000  # natural log of a number that is not exact: what _HIGH digits can tell from 0
_LOW, _HIGH = 60, 1000  # digits
_TINY = 1e-100
_LOCK = threading.RLock()  # mpmath shares its caches of constants between contexts


@functools.cache
def _context(digits: int):
    context = mpmath.mp.clone()
    context.dps = digits
    return context


class _Numeric:
    """Evaluation at some precision and point."""

    def __init__(self, digits: int, point: dict[str, str]):
        self.ctx = _context(digits)
        self.point = {name: self.ctx.mpf(value) for name, value in point.items()}

    def __call__(self, node: Node):
        try:
            value = self._value(node)
        except (ZeroDivisionError, ValueError, OverflowError, mpmath.libmp.NoConvergence) as error:
            raise Undefined from error
        if not self.ctx.isfinite(value):
            raise Undefined
        return value

    def _value(self, node: Node):
        kind, ctx = node[0], self.ctx
        if kind == "num":
            return ctx.mpf(node[1].numerator) / node[1].denominator
        if kind == "sym":
            return self.point[node[1]]
        if kind == "const":
            return {"pi": ctx.pi, "e": ctx.e, "i": ctx.mpc(0, 1)}[node[1]] + 0
        if kind == "add":
            return ctx.fsum(self._value(part) for part in node[1])
        if kind == "mul":
            return ctx.fprod(self._value(part) for part in node[1])
        if kind == "neg":
            return -self._value(node[1])
        if kind == "div":
            return self._value(node[1]) / self._value(node[2])
        if kind == "pow":
            return self._power(self._value(node[1]), self._value(node[2]))
        if kind == "root":
            return self._root(node)
        if kind == "fact":
            return self._bounded(ctx.factorial, self._value(node[1]))
        return self._function(node[1], [self._value(part) for part in node[2:]])

    def _power(self, base, exponent):
        if not base:
            if self.ctx.re(exponent) <= 0:
                raise Undefined
            return base
        if abs(exponent) * abs(self.ctx.log(base)) > MAX_LOG or 0 < abs(exponent) < _TINY:
            raise TooBig
        return base**exponent

    def _root(self, node: Node):
        degree, value = self._value(node[1]), self._value(node[2])
        # An odd root of a negative real number is the real one.
        if self.ctx.isint(degree) and int(degree) % 2 and not self.ctx.im(value) and self.ctx.re(value) < 0:
            return -self._power(-value, 1 / degree)
        return self._power(value, 1 / degree)

    def _bounded(self, function, *args):
        if any(abs(arg) > 1000 for arg in args):
            raise TooBig
        return function(*args)

    def _function(self, name: str, args: list):
        ctx, x = self.ctx, args[0]
        if name.startswith("?"):
            return self._unknown(name, x)
        if name == "abs":
            return abs(x)
        if name in ("floor", "ceil"):
            return getattr(ctx, name)(x)
        if name == "lg":
            return ctx.log10(x)
        if name == "log":
            return ctx.ln(x)
        if name == "exp":
            return self._power(ctx.e + 0, x)
        if name == "binom":
            return self._bounded(ctx.binomial, *args)
        if name in ("Gamma", "zeta", "erf"):
            return self._bounded(getattr(ctx, name.lower()), x)
        name = name.replace("arc", "a") if name.startswith("arc") else name
        limit = MAX_LOG if name.endswith("h") else 1e9
        if abs(x) > limit or 0 < abs(x) < _TINY:  # the cosine of a tiny number is 1 to any precision
            raise TooBig
        return getattr(ctx, name)(x)

    def _unknown(self, name: str, x):
        """A fixed generic function for a name: f(2x) and 2f(x) differ, f(x+x) and f(2x) do not."""
        seed = int(hashlib.sha256(name.encode()).hexdigest()[:6], 16)
        return self.ctx.cos(x + seed % 997) + x / (seed % 991 + 2)


def infinite(node: Node) -> int:
    """1 or -1 for a signed infinity, 0 for everything else."""
    if node == ("const", "inf"):
        return 1
    return -infinite(node[1]) if node[0] == "neg" else 0


def contains_infinity(node: Node) -> bool:
    """Whether an infinity is part of the expression."""
    if node == ("const", "inf"):
        return True
    return any(map(contains_infinity, children(node)))


# Real points of both signs and no relation between them. Names are dealt to points by their sorted
# order, so both sides see the same.
_POINTS = (
    ("1.7320618", "0.4142735", "2.2360179", "0.6180739", "1.3247579", "0.8346268", "1.9021605", "0.5671432"),
    ("0.3183198", "1.6449341", "0.7390951", "2.0801338", "0.9159655", "1.2020569", "0.2614972", "1.4513692"),
    ("-1.2720496", "0.8862769", "-0.5772356", "1.7724739", "-2.1319295", "0.3678894", "-0.6922406", "1.1"),
    ("0.5432359", "-1.4142435", "1.0986322", "-0.6931571", "0.4812118", "-1.8393767", "1.2599310", "-0.7"),
    (
        "-0.9189485",
        "-0.2799634",
        "-1.5707463",
        "-1.0471475",
        "-0.7853781",
        "-2.3025951",
        "-0.4342844",
        "-1.6",
    ),
)
_NEEDED_POINTS = 3
# Where floor(x) and ceil(x) - 1 differ.
_INTEGERS = (("3", "5", "2", "7", "4", "6", "9", "8"), ("-2", "4", "-5", "3", "-1", "6", "-7", "1"))


def equal(a: Node, b: Node) -> bool:
    """Whether two expressions are the same function (or number).

    Raises:
      TooBig: when the numbers are too large to tell.
    """
    if a == b:
        return True
    if contains_infinity(a) or contains_infinity(b):
        return infinite(a) != 0 and infinite(a) == infinite(b)
    names = sorted(symbols(a) | symbols(b))
    try:
        if not names:
            exact_a, exact_b = exact(a), exact(b)
            if exact_a is not None and exact_b is not None:
                return exact_a == exact_b
        with _LOCK:
            return _equal_constants(a, b) if not names else _equal_functions(a, b, names)
    except Undefined:
        return False


def is_defined(node: Node) -> bool:
    """False for a constant without a value, such as 1/0. Infinities and functions pass."""
    if symbols(node) or infinite(node):
        return True
    if contains_infinity(node):
        return False
    try:
        if exact(node) is None:
            with _LOCK:
                _Numeric(_LOW, {})(node)
    except Undefined:
        return False
    return True


def ratio_constant(a: Node, b: Node) -> complex | None:
    """The constant c with a = c b, if there is one that is not 0; None otherwise."""
    names = sorted(symbols(a) | symbols(b))
    if len(names) > len(_POINTS[0]) or not names:
        return None
    ratios = []
    try:
        for values in _POINTS:
            point = dict(zip(names, map(Fraction, values), strict=False))
            x, y = exact(a, point), exact(b, point)
            if x is None or y is None or x[1] or y[1] or not x[0] or not y[0]:
                break
            ratios.append(x[0] / y[0])
        else:
            return complex(ratios[0]) if len(set(ratios)) == 1 else None
    except (Undefined, OverflowError):
        pass
    ratios = []
    with _LOCK:
        for values in _POINTS:
            evaluate = _Numeric(_LOW, dict(zip(names, values, strict=False)))
            try:
                x, y = evaluate(a), evaluate(b)
            except Undefined:
                continue
            if abs(x) < 1e-30 or abs(y) < 1e-30:
                return None
            ratios.append(x / y)
        if len(ratios) < _NEEDED_POINTS or any(abs(r / ratios[0] - 1) > 1e-40 for r in ratios):
            return None
        return complex(ratios[0])


def _equal_constants(a: Node, b: Node) -> bool:
    low = _Numeric(_LOW, {})
    x, y = low(a), low(b)
    if max(abs(x), abs(y)) > 1e-20 and abs(x - y) > 1e-30 * max(abs(x), abs(y)):
        return False
    return _agree(_Numeric(_HIGH, {}), a, b, (x, y))


def _equal_functions(a: Node, b: Node, names: list[str]) -> bool:
    if len(names) > len(_POINTS[0]):
        return False
    verdict = _equal_exactly(a, b, names)
    return _equal_numerically(a, b, names) if verdict is None else verdict


def _equal_exactly(a: Node, b: Node, names: list[str]) -> bool | None:
    """Rational functions at rational points, without any rounding; None for other functions."""
    agreed = 0
    for values in _POINTS + _steps(a, b):
        point = dict(zip(names, map(Fraction, values), strict=False))
        try:
            sides = exact(a, point), exact(b, point)
        except Undefined:
            continue
        if None in sides:
            return None
        if sides[0] != sides[1]:
            return False
        agreed += 1
    return agreed >= _NEEDED_POINTS or None


def _equal_numerically(a: Node, b: Node, names: list[str]) -> bool:
    agreed = 0
    for values in _POINTS:
        point = dict(zip(names, values, strict=False))
        low = _Numeric(_LOW, point)
        sides = []
        for node in (a, b):
            try:
                sides.append(low(node))
            except Undefined:
                sides.append(None)
        x, y = sides
        if (x is None) != (y is None):
            return False
        if x is None:
            continue
        if max(abs(x), abs(y)) > 1e-20 and abs(x - y) > 1e-30 * max(abs(x), abs(y)):
            return False
        agreed += 1
    if agreed < _NEEDED_POINTS:
        return False
    for values in _POINTS[:1] + _POINTS[-1:] + _steps(a, b):
        point = dict(zip(names, values, strict=False))
        try:
            low = tuple(_Numeric(_LOW, point)(node) for node in (a, b))
            if not _agree(_Numeric(_HIGH, point), a, b, low):
                return False
        except Undefined:
            continue
    return True


def _steps(a: Node, b: Node) -> tuple:
    return _INTEGERS if _has_steps(a) or _has_steps(b) else ()


def _has_steps(node: Node) -> bool:
    return node[:2] in (("fn", "floor"), ("fn", "ceil")) or any(map(_has_steps, children(node)))


def _agree(high: _Numeric, a: Node, b: Node, low: tuple) -> bool:
    """Relative agreement to hundreds of digits. A value that shrinks with precision is 0."""
    x, y = high(a), high(b)
    x, y = (0 if abs(v) < 1e-100 * abs(w) else v for v, w in zip((x, y), low, strict=True))
    scale = max(abs(x), abs(y))
    return scale == 0 or abs(x - y) <= scale * high.ctx.mpf(10) ** (60 - _HIGH)


def sort_value(node: Node):
    """A real number to order end points by; None for what is not a real constant."""
    if infinite(node):
        return mpmath.inf * infinite(node)
    if symbols(node) or contains_infinity(node):
        return None
    try:
        with _LOCK:
            value = _Numeric(_LOW, {})(node)
    except Undefined:
        return None
    return None if mpmath.im(value) else mpmath.re(value)
