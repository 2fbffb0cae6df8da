"""The code judge: what counts as the program, as its output and as an answer; and that nothing else does."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agon_jax.verify import code_eval, code_values, sandbox
from agon_jax.verify.code import CodeJudge, grade
from agon_jax.verify.code_asserts import Ungradable, plan
from agon_jax.verify.code_compare import same_output
from agon_jax.verify.code_extract import MAX_CHARS, extract


@pytest.fixture(autouse=True)
def contained():
    try:
        sandbox.best_backend()
    except sandbox.SandboxUnavailable as error:
        pytest.skip(str(error))


def fenced(program):
    return f"Some reasoning.\n```python\n{program}\n```\nDone."


def io_tests(*pairs):
    return [{"input": given, "output": expected} for given, expected in pairs]


# Recursion through C: the stack of the first thread is the limit, from Python 3.12 on Python's own.
DEEP = "20000" if sys.version_info < (3, 12) else "200"
SUMS = io_tests(("1 2\n", "3\n"), ("10 -4", "6"), ("0 0", "0"))

# One sample of each kind: programs that read and write, and functions.
READERS = [
    (
        """
a, b = map(int, input().split())
print(a + b)
""",
        SUMS,
    ),
    (
        """
import sys
print(sum(map(int, sys.stdin.read().split())))
""",
        SUMS,
    ),
    (
        """
import sys
sys.stdout.buffer.write(b'%d' % sum(map(int, sys.stdin.buffer.readline().split())))
""",
        SUMS,
    ),
    (
        """
import os, io
r = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline
os.write(1, b'%d' % sum(map(int, r().split())))
""",
        SUMS,
    ),
    (
        """
for line in open(0):
    print(eval(line.replace(' ', '+', 1)))
""",
        SUMS,
    ),
    (
        """
import sys
def main():
    print(sum(map(int, sys.stdin.readline().split())))
    sys.exit(0)
if __name__ == '__main__':
    main()
""",
        SUMS,
    ),
    (
        """
import sys, threading
threading.stack_size(1 << 26)
sys.setrecursionlimit(10**6)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
t = threading.Thread(target=lambda: print(f(int(input()))))
t.start()
t.join()
""",
        io_tests(("50000", "50000")),
    ),
    (
        """
from functools import lru_cache
import sys
sys.setrecursionlimit(10**6)
@lru_cache(None)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
print(f(int(input())))
""",
        io_tests((DEEP, DEEP)),
    ),
    (
        """
import heapq, collections, bisect, math, itertools, decimal, fractions, re
print(math.comb(*map(int, input().split())))
""",
        io_tests(("60 30", "118264581564861424")),
    ),
    (
        """
n = int(input())
for _ in range(n):
    print(f'{float(input()) ** .5:.6f}')
""",
        io_tests(("2\n2\n16", "1.414213562373095\n4.0"), ("1\n0", "0.000000000")),
    ),
    (
        """
import asyncio
async def main(): print(input())
asyncio.run(main())
""",
        io_tests(("é ü 漢", "é ü 漢")),
    ),
    (
        """
while True:
    try: print(input().upper())
    except EOFError: break
""",
        io_tests(("a\nb\n\nc", "A\nB\n\nC")),
    ),
    (
        """
open('/tmp/x', 'w').write(input())
print(open('/tmp/x').read())
exit()
""",
        io_tests(("a", "a"), ("b", "b")),
    ),
    (
        "out = open(1, 'w', closefd=False)\nout.write(input())",
        io_tests(("left in a buffer", "left in a buffer")),
    ),
    (
        """
import sys
class Out:
    def __init__(self): self.text = []
    def write(self, s): self.text.append(s)
    def flush(self): sys.__stdout__.write("".join(self.text)); self.text.clear()
sys.stdout = Out()
print(input())
""",
        io_tests(("own stream", "own stream")),
    ),
]
FUNCTIONS = [
    (
        "def add(a, b): return a + b",
        """
assert add(2, 3) == 5
assert add(-1, 1) == 0, 'message'
""",
    ),
    (
        "def f(x): return x / 3",
        """
import math
assert abs(f(1) - 0.3333333) < 1e-6
assert math.isclose(f(2), 2 / 3)
""",
    ),
    (
        "def f(x): return sorted(set(x))",
        """
data = [3, 1, 3]
assert f(data) == [1, 3]
assert f([]) == []
assert len(f(list(range(50)))) == 50
""",
    ),
    (
        "def f(x): return {'a': (1, 2.5), 'b': {x, None}, b'c': True}",
        "assert f('z') == {'b': {None, 'z'}, 'a': (1, 2.5), b'c': True}",
    ),
    (
        "def is_even(n): return n % 2 == 0",
        """
assert is_even(4)
assert not is_even(3)
assert is_even(2) is True
assert is_even(5) == False
""",
    ),
    (
        "def f(n): return None if n else 2 ** 200",
        """
assert f(1) is None
assert f(0) == 2**200
assert f(0) > 10 ** 50 and f(0) % 7 == 2**200 % 7
""",
    ),
    (
        """
class Solution:
    def twice(self, n): return [n, n]
""",
        """
assert Solution().twice(n=3) == [3, 3]
assert Solution().twice('a')[0] in ('a', 'b')
""",
    ),
    (
        "def inc(n): return n + 1",
        """
METADATA = {'author': 'x'}

def check(candidate):
    '''doc'''
    limit = 3
    assert candidate(1) == 2
    assert candidate(candidate(1)) == limit

check(inc)
""",
    ),
    (
        """
total = 0
def add(n):
    global total
    total += n
    return total
""",
        """
assert add(1) == 1
assert add(5) == 6
""",
    ),
    (
        """
import sys
def f(s):
    print('noise', s)
    return s[::-1]
""",
        """
assert f('abc') == 'cba'
r = f('xy')
assert r == 'y' + 'x'
assert sorted(f('ba'), reverse=True) == ['b', 'a']
""",
    ),
]


@pytest.mark.parametrize("program, tests", READERS + FUNCTIONS)
def test_a_right_program_passes(program, tests):
    verdict = grade(fenced(program), tests)
    assert verdict.correct and verdict.extracted == program and verdict.reason == "passed", verdict


@pytest.mark.parametrize("program, tests", READERS)
def test_one_other_character_in_the_output_fails(program, tests):
    for at, test in enumerate(tests):
        expected = test["output"].rstrip()
        first = "9" if expected[0] != "9" else "8"
        wrong = [dict(test) for test in tests]
        wrong[at]["output"] = first + expected[1:]
        assert grade(fenced(program), wrong).reason == f"wrong output on test {at}"


YES = """
class Yes:
    def yes(self, *_, **__): return True
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = yes
    def __call__(self, *_, **__): return Yes()
    def __getattr__(self, name): return Yes()
    def __abs__(self): return self
    __sub__ = __rsub__ = __getitem__ = __mod__ = __call__
    def __hash__(self): return 0
"""
FAKES = {
    "always equal": YES + "def f(*a, **k): return Yes()",
    "always equal, a subclass": """
class Int(int):
    def __eq__(self, o): return True
def f(*a, **k): return Int(1)
""",
    "always equal inside": YES + "def f(*a, **k): return [Yes(), Yes()]",
    "exit": """
import os
def f(*a, **k): os._exit(0)
""",
    "exit before": """
import sys
sys.exit(0)
""",
    "raise": "def f(*a, **k): raise SystemExit(0)",
    "no assertions": """
import builtins
builtins.AssertionError = Exception
class AssertionError(Exception): pass
def f(*a, **k): return object()
""",
    "trace": """
import sys
sys.settrace(lambda *a: None)
sys.setprofile(lambda *a: None)
def f(*a, **k): return NotImplemented
""",
    "exit hook": """
import atexit, os
atexit.register(lambda: os._exit(0))
def f(*a, **k): raise KeyError
""",
    "own builtins": """
import builtins
for n in ('abs', 'len', 'sorted', 'bool', 'isinstance', 'repr', 'type', 'eval'):
    setattr(builtins, n, lambda *a, **k: True)
abs = len = sorted = lambda *a, **k: True
def f(*a, **k): return 'x'
""",
    "own modules": """
import sys, types
m = types.ModuleType('math')
m.isclose = lambda *a, **k: True
sys.modules['math'] = math = m
def f(*a, **k): return 1e99
""",
    "own encoder": """
import sys
m = sys.modules['code_values']
m.encode = lambda *a: ['yes', 'passed']
def f(*a, **k): return 1j
""",
    "answers on the socket": """
import os
for _ in range(9):
    t = b'["value", ["str", "passed"]]'
    os.write(3, len(t).to_bytes(4, 'little') + t)
def f(*a, **k): pass
""",
    "noise on the socket": """
import os
os.write(3, bytes(range(256)) * 4)
def f(*a, **k): pass
""",
    "deep answer on the socket": """
import os
t = b'[' * 200000
os.write(3, len(t).to_bytes(4, 'little') + t)
def f(*a, **k): pass
""",
    "endless answer": r"""
import os
os.write(3, b'\xff' * 4)
while True: os.write(3, b'x' * 4096)
""",
    "closes the socket": """
import os
def f(*a, **k): os.close(3)
""",
    "prints": """
print('passed')
print('all tests passed')
def f(*a, **k): return 'passed'
""",
    "nothing": "pass",
    "nan": "def f(*a, **k): return float('nan')",
    "huge": "def f(*a, **k): return 1 << (1 << 24)",
    "itself": """
def f(*a, **k):
    x = []
    x.append(x)
    return x
""",
}


@pytest.mark.parametrize("name", FAKES)
def test_no_fake_is_right_where_the_values_are_wrong(name):
    for tests in (
        "assert f(2, 3) == 5",
        "assert f(2) in (4, 5)",
        "assert abs(f(2) - 4.5) < 1e-6",
        "import math\nassert math.isclose(f(2), 4.5)",
        "assert f(2) is True",
        "assert len(f(2)) == 7",
        "def check(candidate):\n    assert candidate(2) == [1, 2]\ncheck(f)",
    ):
        verdict = CodeJudge(timeout_s=0.5).grade(fenced(FAKES[name]), tests)
        assert not verdict.correct, (tests, verdict)


@pytest.mark.parametrize(
    "value, expected, right",
    [
        ("1", "1", True), ("True", "1", False), ("1.0", "1", False), ("1", "True", False),
        ("0", "False", False),
        ("[1]", "[1]", True), ("(1,)", "[1]", False), ("[True]", "[1]", False), ("{1: 2}", "{1.0: 2}", False),
        ("{True}", "{1}", False), ("{(1, 2)}", "{(1, 2)}", True), ("'1'", "1", False), ("b'a'", "'a'", False),
        ("10**18 + 1", "10**18", False), ("-0.0", "0.0", True), ("float('nan')", "0.5", False),
        ("None", "None", True), ("frozenset({1})", "{1}", False), ("range(2)", "[0, 1]", False),
        ("{'a': [1, (2, None)]}", "{'a': [1, (2, None)]}", True), ("1 + 0j", "1", False),
        ("type('Int', (int,), {})(1)", "1", False), ("type('L', (list,), {})()", "[]", False),
    ],
)  # fmt: skip
def test_answers_are_compared_with_their_types(value, expected, right):
    assert grade(fenced(f"def f(): return {value}"), f"assert f() == {expected}").correct is right


def test_one_check_for_two_functions_judges_both():
    tests = "def check(candidate):\n    assert candidate(2) == 4\ncheck(f)\ncheck(g)"
    assert grade(fenced("def f(x): return x * x\ndef g(x): return x + x"), tests).correct
    assert not grade(fenced("def f(x): return x * x\ndef g(x): return x"), tests).correct


@pytest.mark.parametrize(
    "tests",
    [
        "", "   ", "x = 1", "assert True", "assert 1 == 1", "this is not Python", "assert f(", "f(1)",
        "assert f(1) == g(1)", "a = f(1)\nb = g(1)\nassert a == b", "for i in range(3): assert f(i) == i",
        "assert f(1).startswith('a')", "assert f(1).__eq__(2)", "assert check(f(1))",
        "assert is_ok(f(1)) == True",
        "assert isinstance(f(1), int)", "assert all(f(i) for i in range(3))", "assert np.allclose(f(1), 2)",
        "import numpy as np\nassert f(1) == 2", "from math import isclose\nassert isclose(f(1), 2)",
        "assert sum([1, 2]) == 3", "assert str.upper('a') == 'A'", "assert eval('f(1)') == 1",
        "x = [1]\nf(x)\nassert x == []",
        "def check(candidate):\n    assert candidate(1) == 2", "try:\n    f(1)\nexcept ValueError: pass",
        "import os\nos.system('true')\nassert f(1) == 1", "assert f is not None", "assert f(1) is 1",
        "data = [2, 1]\nassert f(data) is None\nassert data == [1, 2]",
        "data = [2, 1]\nassert f(data) == sorted(data)", "assert callable(f)",
        "assert (lambda: 1)() == 1", "assert f(1) is f(2)", "assert math.prod(f(1)) == 2",
        "assert f(*a) == 1 or open('x')",
    ],
)  # fmt: skip
def test_assertions_that_prove_nothing_are_ungradable(tests):
    with pytest.raises(Ungradable):
        plan(tests)
    verdict = grade(fenced("def f(x): return x"), tests)
    assert not verdict.correct and verdict.reason.startswith("ungradable: ")


@pytest.mark.parametrize(
    "tests",
    [
        [], (), [{}], [{"input": "1"}], [{"output": "1"}], [{"input": 1, "output": "1"}], ["x"], [None],
        io_tests(("1", "")), io_tests(("1", " \n"), ("2", "")), [{"input": "", "output": None}],
    ],
)  # fmt: skip
def test_examples_that_prove_nothing_are_ungradable(tests):
    verdict = grade(fenced("pass"), tests)
    assert not verdict.correct and verdict.reason.startswith("ungradable: ")


@pytest.mark.parametrize(
    "got, expected, same",
    [
        ("0.142857\n", "0.142857142857\n", True), ("0.1429\n", "0.142857142857\n", False),
        ("8 21 40\r\n", "8 21 40\n", True), ("8 21 40 \n\n", "8 21 40", True), ("1 2\n3\n", "1 2 3\n", True),
        ("7.25\n", "-7.25\n", False), ("1000000000000000001\n", "1000000000000000000\n", False),
        ("nan\n", "0.5\n", False), ("YES\n", "Yes\n", False), ("", "0\n", False), ("-5", "5", False),
        ("5.0", "5", False), ("5", "5.0", True), ("5.0000001", "5.0", True), ("5.0000001", "5", False),
        ("05", "5", False), ("+5", "5", False), ("1e3", "1000", False), ("1000", "1e3", True),
        ("inf", "1e999", False), ("1e999", "1e400", False), ("inf", "1.5", False), ("1_0.0", "10.0", False),
        ("0x1p3", "8.0", False), ("0", "0.0000001", False), ("0.00000010001", "0.0000001", True),
        ("0.0000002", "0.0000001", False), ("1e-9", "0.0", True), ("0.00001", "0.0", False),
        ("1000000.5", "1000000.0", True), ("1000002", "1000000.0", False), ("1 2 3", "1 2", False),
        ("1 2", "1 2 3", False), ("1,2", "1.2", False), ("3 .5", "3.5", False), ("a\x00", "a", False),
        ("１", "1", False), ("-0", "0", False), ("9" * 5000, "9" * 5000, True),
        ("9" * 5000 + ".0", "1.5", False),
    ],
)  # fmt: skip
def test_output_is_compared_by_tokens(got, expected, same):
    assert same_output(got.encode(), expected.encode()) is same


F, G = "def f(x): return 0", "def f(x): return x * x"
INNER = "def f(x):\n    '''doc\n    ```\n    f(2) -> 4\n    ```\n    '''\n    return x*x"


@pytest.mark.parametrize(
    "completion, program",
    [
        (f"```python\n{F}\n```\nFinal:\n```python\n{G}\n```\n", G),
        (f"```python\n{G}\n```\nand then\n```python\n{F}", G),  # cut off: not complete
        (f"```py\n{G}\n```", G), (f"```\n{G}\n```", G), (f"``` Python3\n{G}\n```", G),
        (f"~~~python\n{G}\n~~~", G),
        (f"````python\n{G}\n```\n````", f"{G}\n```"),
        (f"```python\r\n{G}\r\n```\r\n", G),
        (f"```python\n{G}\n```\nOutput:\n```text\n9\n```", G),
        ("```cpp\nint main() {}\n```", None),
        (f"Sketch:\n```python\n{F}\n```\nFinal:\n```python\n{INNER}\n```\n", INNER),
        (f"```python\n{INNER.replace('    ```', '```')}\n```\nDone.", INNER.replace("    ```", "```")),
        ("```python\ns = '''\n```python\n```\n'''\n```", "s = '''\n```python\n```\n'''"),
        (f"```python\nx = (\n```\nthen\n```python\n{G}\n```", G),
        (f"   ```python\n{G}\n   ```", G),
        ("use ```f(x)``` here", None), ("", None), ("   \n", None), ("```python\n```", None),
        ("```python\n\n\n```", None),
        (G, G), ("print(int(input()) + 1)", "print(int(input()) + 1)"), ("I would add them up.", None),
        (f"The answer: {G}", None), ("x" * (MAX_CHARS + 1), None), ("```python\nprint(1)", None),
    ],
)  # fmt: skip
def test_the_last_complete_block_is_the_program(completion, program):
    assert extract(completion, CodeJudge()._first_python) == program


def test_extraction_takes_no_time_on_a_hostile_text():
    start = time.monotonic()
    fences = ["```\n" * 49_000, "```python\n" * 19_000, "~~~\n```\n" * 20_000]
    for text in (*fences, "(" * 190_000, "{[" * 90_000, "-" * MAX_CHARS):
        CodeJudge(timeout_s=0.5).grade(text, SUMS)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "program, reason",
    [
        ("print(3)", "wrong output on test 1"), ("while True: pass", "timeout on test 0"),
        ("x = [0] * 10**9", "memory on test 0"), ("import os\nos.abort()", "crash (SIGABRT) on test 0"),
        ("import sys\nsys.exit(7)", "exit code 7 on test 0"),
        ("while True: print('x' * 9999)", "output limit on test 0"),
        ("print(", "syntax error"), ("def f(:", "syntax error"), ("x = '\ud800'", "syntax error"),
        ("\0", "syntax error"),
        ("print(3)\nraise SystemExit('no')", "exit code 1 on test 0"),
        ("# only a comment", "wrong output on test 0"),
    ],
)  # fmt: skip
def test_reasons(program, reason):
    judge = CodeJudge(timeout_s=0.6, memory_mb=128, output_mb=1)
    assert judge.grade(fenced(program), SUMS).reason == reason


@pytest.mark.parametrize(
    "program, reason",
    [
        ("def f(x): return x", "wrong answer on assertion 1"),
        ("def f(x): raise KeyError", "raised an exception"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def f(x): return object()", "answer is not plain data"),
        ("def f(x): return 'x' * (2 << 20)", "answer is not plain data"),
        ("import os\nos._exit(0)", "ended before all assertions"),
        ("import os\nos.abort()", "crash (SIGABRT)"), ("x = = 1", "syntax error"), ("1 / 0", "exit code 1"),
        ("def g(x): pass", "raised an exception"),
    ],
)  # fmt: skip
def test_reasons_with_assertions(program, reason):
    assert (
        CodeJudge(timeout_s=0.6).grade(fenced(program), "assert f(1) == 1\nassert f(2) == 4").reason == reason
    )


def test_expected_outputs_never_enter_the_sandbox():
    leak = """
import sys
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen.append(repr({k: v for k, v in frame.f_locals.items() if k not in ('frame', 'seen')})[:100_000])
        frame = frame.f_back
    return 'SECRET' + str(77) in ''.join(seen)
"""
    verdict = grade(fenced(leak), "assert f(1) == 'SECRET77'\nassert f(2) == False")
    assert verdict.reason == "wrong answer on assertion 0"
    assert grade(fenced(leak), "y = 'SECRET77'\nassert f(1) != y\nassert not f(1)").correct


def test_many_keep_their_order_and_waiting_is_not_counted():
    programs = [f"import time\ntime.sleep(0.3)\nprint({i})" for i in range(6)]
    items = [(fenced(program), io_tests(("", str(i % 4)))) for i, program in enumerate(programs)]
    seen = []
    verdicts = CodeJudge(timeout_s=1.5).grade_many(items, workers=1, progress=lambda *a: seen.append(a))
    assert [verdict.correct for verdict in verdicts] == [True] * 4 + [False] * 2
    assert seen == [(i + 1, 6) for i in range(6)]
    assert CodeJudge().grade_many([]) == []


def test_a_killed_sandbox_costs_only_its_item(monkeypatch):
    started = sandbox.Sandbox.run

    def run(self, stdin, timeout_s):
        if b"victim" in stdin:
            children = pathlib.Path(
                f"/proc/{self._process.pid}/task/{self._process.pid}/children"
            ).read_text()
            threading.Timer(0.2, os.kill, (int(children.split()[0]), signal.SIGKILL)).start()
        return started(self, stdin, timeout_s)

    monkeypatch.setattr(sandbox.Sandbox, "run", run)
    program = fenced("import time\nx = input()\ntime.sleep(3 * (x == 'victim'))\nprint(x)")
    items = [(program, io_tests((name, name))) for name in ("one", "victim", "two")]
    verdicts = CodeJudge().grade_many(items, workers=2)
    assert [verdict.correct for verdict in verdicts] == [True, False, True]
    assert verdicts[1].reason == "sandbox killed"


@pytest.mark.parametrize(
    "limits", [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"memory_mb": 1}, {"output_mb": 0}]
)
def test_limits_without_sense(limits):
    with pytest.raises(ValueError):
        CodeJudge(**limits)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers(), inner),
    max_leaves=12,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["int", "dict", "set", "x"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(PLAIN)
@settings(deadline=None, max_examples=100)
def test_plain_data_survives_the_crossing(value):
    crossed = code_values.decode(json.loads(json.dumps(code_values.encode(value))))
    assert code_eval.same(crossed, value)


@given(JSON)
@settings(deadline=None, max_examples=200)
def test_anything_else_is_refused(data):
    with contextlib.suppress(code_values.NotPlain):
        code_values.decode(data)


@pytest.mark.parametrize(
    "tests",
    [
        "assert f() * 10**9 == 1", "assert 'x' * f() == 1", "assert f() ** f() == 1", "assert 1 << f() == 1",
        "assert sum(range(f())) == 1", "assert list(range(f())) == 1", "assert round(f(), -f()) == 1",
        "assert [0] * f() == 1", "assert str(f()) == 1", "assert 2 ** f() == 1", "assert f() * f() == 1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["10**18", "1 << 3_000_000", "range(10**9)", "'%9999999d'"])
def test_a_large_answer_does_not_stop_the_judge(tests, value):
    start = time.monotonic()
    assert not grade(fenced(f"def f(): return {value}"), tests).correct
    assert time.monotonic() - start < 5


def test_colliding_keys_do_not_stop_the_judge():
    program = "def f(): return [i * (2**61 - 1) for i in range(9_000)]\ndef g(): return set(f())"
    start = time.monotonic()
    assert not grade(fenced(program), "assert set(f()) == {1}").correct
    assert time.monotonic() - start < 20
