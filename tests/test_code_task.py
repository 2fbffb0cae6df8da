"""The task of programs: references in JSON, verdicts in order, no program in what a rival reads."""

import json

import pytest

from agon_jax.tasks import make_task
from agon_jax.tasks.hiding import HIDDEN
from agon_jax.types import Problem
from agon_jax.verify.sandbox import SandboxUnavailable, best_backend

DOUBLE = "```python\nprint(2 * int(input()))\n```"
TRIPLE = DOUBLE.replace("2 *", "3 *")
EXAMPLES = json.dumps([{"input": "4\n", "output": "8\n"}, {"input": "0", "output": "0"}])
ASSERTIONS = json.dumps("assert f(4) == 8\nassert f(0) == 0")
FUNCTION = "```python\ndef f(x):\n    return 2 * x\n```"


@pytest.fixture(scope="module")
def task():
    try:
        best_backend()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return make_task("code", workers=2)


def problem(reference):
    return Problem(uid=1, text="Double it.", reference=reference)


def test_verdicts_in_the_order_of_the_answers(task):
    """Without an answer block there is no program; the second test fails nobody by luck: 3 * 0 is 0."""
    problems = [problem(EXAMPLES)] * 3 + [problem(ASSERTIONS)] * 2
    seen = []
    grades = task.grade(
        problems, [DOUBLE, TRIPLE, None, FUNCTION, DOUBLE], lambda done, total: seen.append((done, total))
    )
    assert [grade.correct for grade in grades] == [True, False, False, True, False]
    assert grades[1].reason == "wrong output on test 0" and grades[2].reason == "no code"
    assert seen == [(i + 1, 5) for i in range(5)]


@pytest.mark.parametrize(
    "reference, fault",
    [
        (EXAMPLES, None),
        (ASSERTIONS, None),
        ("[]", "ungradable"),
        (json.dumps([{"input": "1"}]), "test 0 is not an input and an output"),
        (json.dumps("print(1)"), "ungradable"),
        ("print(1)", "not JSON"),
        ("3", "no known form"),
    ],
)
def test_tests_that_prove_nothing_are_found_when_data_is_loaded(reference, fault):
    found = make_task("code", allow_unsandboxed=True).fault(reference)
    assert found is None if fault is None else fault in found


def test_no_sandbox_is_said_when_the_task_is_made(monkeypatch):
    """Else the run would load its base, sample a step, and end in a traceback."""

    def none(allow_unsandboxed=False):
        raise SandboxUnavailable("nothing contains programs here")

    monkeypatch.setattr("agon_jax.tasks.code.best_backend", none)
    with pytest.raises(ValueError, match=r"config\.task='code': nothing contains programs here"):
        make_task("code")


def test_no_program_in_what_a_rival_reads():
    task = make_task("code", allow_unsandboxed=True)
    summary = f"Read a number. {DOUBLE} Then done. ```\nx = 1"
    assert task.hide(problem(EXAMPLES), summary, DOUBLE) == f"Read a number. {HIDDEN} Then done. {HIDDEN}"
