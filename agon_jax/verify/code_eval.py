"""Evaluates the judge's side of an assertion over plain data, in bounded time and memory.

The values may come from a hostile program: nothing here may take long or grow without a limit, whatever
they are. Equality is exact in the type, too: 1, 1.0 and True are three different answers.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

_MAX_ITEMS = 100_000  # of a sequence that is made here
_MAX_BITS = 100_000  # of an integer that is made here
_MAX_KEYS = 10_000  # of a set that is made here: a program may choose numbers that all collide

# Evaluates a piece of source in the sandbox, with plain values for some names.
Call = Callable[[str, dict[str, object]], object]


class Unsafe(ValueError):
    """An operation that is not done here: its result could be too large, or its operands do not fit."""


def evaluate(node: ast.expr, names: dict, call: Call, is_program_call: Callable) -> object:
    """The value of an expression.

    Args:
      names: plain data by name.
      call: takes the source of a call of the program and the values of the names in it.
      is_program_call: (node, names) -> whether `call` has to evaluate it.

    Raises:
      Unsafe, TypeError, ValueError, ArithmeticError, LookupError: there is no value.
    """
    if is_program_call(node, names):
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & names.keys()
        return call(ast.unparse(node), {name: names[name] for name in used})
    value = lambda part: evaluate(part, names, call, is_program_call)
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.Attribute():
            return _CONSTANTS[node.attr]
        case ast.Tuple():
            return tuple(map(value, node.elts))
        case ast.List():
            return list(map(value, node.elts))
        case ast.Set():
            return _set(map(value, node.elts))
        case ast.Dict():
            return {value(key): value(item) for key, item in zip(node.keys, node.values, strict=True)}
        case ast.Subscript():
            return value(node.value)[value(node.slice)]
        case ast.Slice():
            return slice(
                *(None if end is None else value(end) for end in (node.lower, node.upper, node.step))
            )
        case ast.UnaryOp():
            return _UNARY[type(node.op)](value(node.operand))
        case ast.BinOp():
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        case ast.IfExp():
            return value(node.body) if value(node.test) else value(node.orelse)
        case ast.BoolOp():
            for part in node.values:
                last = value(part)
                if bool(last) is isinstance(node.op, ast.Or):
                    break
            return last
        case ast.Compare():
            left = value(node.left)
            for op, side in zip(node.ops, node.comparators, strict=True):
                right = value(side)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
        case ast.Call():
            named = {keyword.arg: value(keyword.value) for keyword in node.keywords}
            return _function(node.func)[0](*map(value, node.args), **named)
    raise Unsafe(type(node).__name__)


def can_call(node: ast.Call) -> bool:
    """Whether the call is one of the few functions that are evaluated here."""
    function = _function(node.func)
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    return function is not None and plain and {keyword.arg for keyword in node.keywords} <= function[1]


def can_evaluate(node: ast.expr) -> bool:
    """Whether the node itself, not its parts, is evaluated here."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in _CONSTANTS
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return type(node.op) in _UNARY or type(node.op) in _BINARY
    if isinstance(node, ast.Dict):
        return None not in node.keys
    return isinstance(node, _NODES)


def same(left: object, right: object) -> bool:
    """Equal in value and in every type; floats as Python compares them.

    Raises:
      RecursionError: nested deeper than Python's limit.
    """
    if type(left) is not type(right):
        return False
    if type(left) in (list, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is dict:
        if len(left) != len(right):
            return False
        keys = {_tagged(key): item for key, item in right.items()}
        return all(_tagged(key) in keys and same(item, keys[_tagged(key)]) for key, item in left.items())
    if type(left) in (set, frozenset):
        return len(left) == len(right) and set(map(_tagged, left)) == set(map(_tagged, right))
    return left == right


def _tagged(key: object) -> tuple:
    """A key that is equal to another's only when `same` holds."""
    if type(key) is tuple:
        return ("tuple", *map(_tagged, key))
    if type(key) is frozenset:
        return ("frozenset", frozenset(map(_tagged, key)))
    return (type(key).__name__, key)


def _within(items: object, container: object) -> bool:
    if type(container) in (str, bytes):
        return items in container
    return any(same(items, item) for item in container)


def _numbers(*values: object) -> bool:
    return all(type(value) in (int, float, complex, bool) for value in values)


def _bits(value: object) -> int:
    return value.bit_length() if type(value) is int else 64


def _bounded(condition: bool) -> None:
    if not condition:
        raise Unsafe("the result would be too large, or the operands do not fit")


def _add(left, right):
    _bounded(_numbers(left, right) or (type(left) is type(right) and type(left) in (str, bytes, list, tuple)))
    return left + right


def _multiply(left, right):
    if _numbers(left, right):
        _bounded(_bits(left) + _bits(right) <= _MAX_BITS)
    else:
        sequence, count = (right, left) if type(left) is int else (left, right)
        fits = type(sequence) in (str, bytes, list, tuple) and type(count) is int
        _bounded(fits and len(sequence) * max(count, 0) <= _MAX_ITEMS)
    return left * right


def _power(left, right):
    _bounded(_numbers(left, right) and _bits(right) <= 64)
    if type(left) is int and type(right) is int:
        _bounded(abs(right) * _bits(left) <= _MAX_BITS)
    return left**right


def _shift(left, right):
    _bounded(type(left) is int and type(right) is int and _bits(left) + abs(right) <= _MAX_BITS)
    return left << right


def _on_numbers(function: Callable) -> Callable:
    def apply(left, right):
        _bounded(_numbers(left, right) and _bits(left) + _bits(right) <= _MAX_BITS)
        return function(left, right)

    return apply


def _on_numbers_or_sets(function: Callable) -> Callable:
    def apply(left, right):
        sets = all(type(value) in (set, frozenset) for value in (left, right))
        _bounded(sets or _numbers(left, right))
        return function(left, right)

    return apply


def _set(items) -> set:
    items = list(items)
    _bounded(len(items) <= _MAX_KEYS)
    return set(items)


def _range(*ends: int) -> range:
    made = range(*ends)
    _bounded(-_MAX_ITEMS <= made.start <= _MAX_ITEMS and -_MAX_ITEMS <= made.stop <= _MAX_ITEMS)
    return list(made)


def _round(number, digits=None):
    _bounded(digits is None or (type(digits) is int and abs(digits) <= 400))
    return round(number, digits)


def _sum(items):
    items = list(items)
    _bounded(_numbers(*items) and sum(map(_bits, items)) <= 64 * _MAX_ITEMS)
    return sum(items)


def _text(value: object = "") -> str:
    _bounded(type(value) in (int, float, bool, str) or value is None)
    return str(value)


def _math(function: Callable) -> Callable:
    def apply(*values, **named):
        _bounded(_numbers(*values, *named.values()) and all(_bits(value) <= 1024 for value in values))
        return function(*values, **named)

    return apply


# Function and the keywords it may get.
_NAMED = {
    "abs": (abs, set()), "len": (len, set()), "sum": (_sum, set()), "min": (min, set()), "max": (max, set()),
    "all": (all, set()), "any": (any, set()), "round": (_round, set()), "range": (_range, set()),
    "sorted": (sorted, {"reverse"}), "reversed": (lambda items: list(reversed(items)), set()),
    "int": (int, set()), "float": (float, set()), "bool": (bool, set()), "str": (_text, set()),
    "list": (list, set()), "tuple": (tuple, set()), "set": (_set, set()),
}  # fmt: skip
_MATH = {
    "isclose": (_math(math.isclose), {"rel_tol", "abs_tol"}), "sqrt": (_math(math.sqrt), set()),
    "floor": (_math(math.floor), set()), "ceil": (_math(math.ceil), set()), "fabs": (_math(math.fabs), set()),
    "isnan": (_math(math.isnan), set()), "isinf": (_math(math.isinf), set()),
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}
_NODES = (
    ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Subscript, ast.Slice, ast.IfExp, ast.BoolOp,
)  # fmt: skip
_UNARY = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_BINARY = {
    ast.Add: _add, ast.Mult: _multiply, ast.Pow: _power, ast.LShift: _shift,
    ast.Sub: _on_numbers_or_sets(operator.sub), ast.BitOr: _on_numbers_or_sets(operator.or_),
    ast.BitAnd: _on_numbers_or_sets(operator.and_), ast.BitXor: _on_numbers_or_sets(operator.xor),
    ast.Div: _on_numbers(operator.truediv), ast.FloorDiv: _on_numbers(operator.floordiv),
    ast.Mod: _on_numbers(operator.mod), ast.RShift: _on_numbers(operator.rshift),
}  # fmt: skip
_COMPARE = {
    ast.Eq: same, ast.NotEq: lambda a, b: not same(a, b),
    ast.Is: same, ast.IsNot: lambda a, b: not same(a, b),
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: _within, ast.NotIn: lambda a, b: not _within(a, b),
}  # fmt: skip


def _function(node: ast.expr) -> tuple[Callable, set[str]] | None:
    if isinstance(node, ast.Name):
        return _NAMED.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "math":
        return _MATH.get(node.attr)
    return None
