"""Tests that are Python assertions: which of them can be judged outside of the program, and how.

The judge reads the assertions itself. Calls of the program's functions, and only those, are evaluated in
the sandbox, and their results come back as plain data; all else is evaluated by `code_eval`, where the
program has no say. A shape that would let the program answer for the judge is refused.
"""

from __future__ import annotations

import ast
import builtins
import copy
import sys
from collections.abc import Iterator

from agon_jax.verify import code_eval
from agon_jax.verify.code_eval import Call, Unsafe

MAX_SOURCE = 200_000
# Modules answer for themselves only here: inside, the program could put something else in their place.
_FOREIGN = frozenset(sys.stdlib_module_names) | {"np", "numpy", "pd", "pandas", "pytest", "torch"}


class Ungradable(ValueError):
    """Tests that cannot be judged outside of the program."""


class WrongAnswer(Exception):
    """An assertion that does not hold."""


def check(steps: list[ast.stmt], call: Call) -> None:
    """Returns when every assertion of a `plan` holds.

    Args:
      call: evaluates a call of the program, see `code_eval`; its exceptions pass through.

    Raises:
      WrongAnswer: an assertion fails, with its index from 0.
    """
    names: dict[str, object] = {}
    index = 0
    for step in steps:
        try:
            if isinstance(step, ast.Assign):
                value = code_eval.evaluate(step.value, names, call, is_program_call)
                names |= {target.id: value for target in step.targets}
                continue
            holds = bool(code_eval.evaluate(step.test, names, call, is_program_call))
        except (Unsafe, TypeError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError):
            holds = False  # plain Python would have raised, or the value is too large to compute with
        if not holds:
            raise WrongAnswer(f"wrong answer on assertion {index}")
        index += 1


def plan(tests: str) -> list[ast.stmt]:
    """The assertions of the tests, and the assignments between them, in order.

    Understood: assertions, assignments to names, `import math`, docstrings, and the form
    `def check(candidate): ...` with `check(name)`.

    Raises:
      Ungradable: anything else, or no assertion about an answer of the program.
    """
    if len(tests) > MAX_SOURCE:
        raise Ungradable("the tests are too long")
    try:
        tree = ast.parse(tests)
        steps = list(_steps(tree.body, {}, {}))
        reader = _Reader()
        judged = 0
        for step in steps:
            if isinstance(step, ast.Assign):
                reader.assign(step)
            else:
                judged += reader.calls(step.test, truth=True)
    except Ungradable:
        raise
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Ungradable("the tests are not Python") from error
    if not judged:
        raise Ungradable("no assertion is about the program")
    return steps


def is_program_call(node: ast.expr, known: dict) -> bool:
    """Whether the node is a call that the sandbox evaluates: `f(...)`, `f.g(...)` or `Class(...).f(...)`.

    Never of a builtin or a module, and never a method of what a function returned: such an object could
    say yes to everything.
    """
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id not in known and not hasattr(builtins, function.id)
    while isinstance(function, ast.Attribute) and not function.attr.startswith("_"):
        function = function.value
    if isinstance(function, ast.Call) and _is_class(function.func):
        function = function.func
    if not isinstance(function, ast.Name):
        return False
    return function.id not in known and not hasattr(builtins, function.id) and function.id not in _FOREIGN


def _is_class(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id[0].isupper()


def _steps(body: list[ast.stmt], checks: dict, names: dict) -> Iterator[ast.stmt]:
    """The statements that count, functions like check(candidate) replaced by their bodies."""
    for node in body:
        if isinstance(node, ast.Assert):
            yield _renamed(node, names)
        elif isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            yield ast.copy_location(ast.Assign(node.targets, _renamed(node.value, names)), node)
        elif _says_nothing(node):
            continue
        elif isinstance(node, ast.FunctionDef) and not names and _is_check(node):
            checks[node.name] = node
        elif isinstance(node, ast.Expr) and not names and _is_use(node.value, checks):
            definition = checks[node.value.func.id]
            yield from _steps(definition.body, {}, {definition.args.args[0].arg: node.value.args[0]})
        else:
            raise Ungradable(f"line {node.lineno}: only assertions and assignments can be judged")


def _says_nothing(node: ast.stmt) -> bool:
    """Docstrings, pass, and the import of what `code_eval` has anyway."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Import):
        return all(alias.name == "math" and alias.asname is None for alias in node.names)
    return isinstance(node, ast.Pass)


def _is_check(node: ast.FunctionDef) -> bool:
    named = node.args
    others = named.posonlyargs or named.kwonlyargs or named.vararg or named.kwarg or named.defaults
    return len(named.args) == 1 and not others and not node.decorator_list


def _is_use(node: ast.expr, checks: dict) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in checks
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Name)
        and not node.keywords
    )


def _renamed(node: ast.AST, names: dict[str, ast.expr]) -> ast.AST:
    """A copy: the same body may be used for another function."""
    return _Rename(names).visit(copy.deepcopy(node)) if names else node


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr]):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self._names.get(node.id)
        return node if name is None else ast.copy_location(ast.Name(name.id, node.ctx), node)


class _Reader:
    """Follows what the names hold, and refuses what cannot be judged."""

    def __init__(self):
        self._known: dict[str, int] = {}  # for each name, how many answers of the program it depends on
        self._fixed: set[str] = set()  # names of what no program can change
        self._lent: set[str] = set()  # names of what a program may have changed, had it been the same object

    def assign(self, step: ast.Assign) -> None:
        calls = self.calls(step.value, truth=False)
        targets = {target.id for target in step.targets}
        self._known |= dict.fromkeys(targets, calls)
        self._lent -= targets
        change = self._fixed.update if isinstance(step.value, ast.Constant) else self._fixed.difference_update
        change(targets)

    def calls(self, node: ast.expr, truth: bool) -> int:
        """How many answers of the program an expression depends on.

        Args:
          truth: whether only the truth of the value counts.

        Raises:
          Ungradable: a part that neither side may evaluate; a comparison of two answers of the program;
            the truth of a call on another call's answer (the outer one could say yes to everything).
        """
        if is_program_call(node, self._known):
            return self._program_call(node, truth)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Name):
            if node.id not in self._known:
                raise Ungradable(f"line {node.lineno}: {node.id} is not plain data")
            if node.id in self._lent:
                raise Ungradable(f"line {node.lineno}: the program may have changed {node.id}")
            return self._known[node.id]
        if isinstance(node, ast.Call):
            if not code_eval.can_call(node):
                raise Ungradable(f"line {node.lineno}: cannot judge a call of {ast.unparse(node.func)[:40]}")
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif not code_eval.can_evaluate(node):
            raise Ungradable(f"line {node.lineno}: cannot judge {type(node).__name__} outside of the program")
        elif isinstance(node, ast.Attribute):  # a constant of math
            parts = []
        else:
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return sum(self.calls(part, truth) for part in parts)

    def _program_call(self, node: ast.Call, truth: bool) -> int:
        inside = [part for part in ast.walk(node) if part is not node]
        constructor = node.func.value if isinstance(node.func, ast.Attribute) else None
        nested = any(part is not constructor and is_program_call(part, self._known) for part in inside)
        if truth and nested:
            raise Ungradable(f"line {node.lineno}: the program would judge its own answer")
        used = {part.id for part in inside if isinstance(part, ast.Name)}
        self._lent |= (used & self._known.keys()) - self._fixed
        return 1

    def _comparison(self, node: ast.Compare) -> int:
        sides = [node.left, *node.comparators]
        yes_or_no = any(isinstance(side, ast.Constant) and isinstance(side.value, bool) for side in sides)
        counts = [self.calls(side, yes_or_no) for side in sides]
        if sum(count > 0 for count in counts) > 1:
            raise Ungradable(f"line {node.lineno}: compares two answers of the program")
        for op, side in zip(node.ops, node.comparators, strict=True):
            constant = isinstance(side, ast.Constant) and type(side.value) in (bool, type(None))
            if isinstance(op, ast.Is | ast.IsNot) and not constant:
                raise Ungradable(f"line {node.lineno}: identity of objects does not leave the program")
        return sum(counts)
