"""The math referee's own part: nothing is right by default, and a rival cannot read the answer."""

import pytest

from agon_jax.tasks.hiding import HIDDEN
from agon_jax.tasks.math import MathTask
from agon_jax.types import Problem

TASK = MathTask(workers=1)


@pytest.fixture(scope="module", autouse=True)
def referee():
    yield
    TASK.close()


def problem(reference):
    return Problem(uid=1, text="?", reference=reference)


@pytest.mark.parametrize(
    "reference, answer, right",
    [
        ("\\frac{1}{2}", "0.5", True),
        ("\\frac{1}{2}", "$\\frac{2}{4}$", True),
        ("42", "\\boxed{42}", True),
        ("42", "41", False),
        ("42", "", False),
        ("", "", False),  # an empty gold must never match an empty answer
        ("", "42", False),
        ("42", "   ", False),
    ],
)
def test_verify(reference, answer, right):
    assert [grade.correct for grade in TASK.grade([problem(reference)], [answer])] == [right]


@pytest.mark.parametrize(
    "summary, answer, shown",
    [
        ("So x = 3.", "3", f"So x = {HIDDEN}."),
        ("13, 3.5 and x3 stay, 3 goes", "3", f"13, 3.5 and x3 stay, {HIDDEN} goes"),
        ("thus \\boxed{\\frac{1}{2}} holds", "\\frac{1}{2}", f"thus {HIDDEN} holds"),
        ("\\boxed{a \\boxed{7}} and \\fbox{7}", "8", f"{HIDDEN} and {HIDDEN}"),
        ("never closed \\boxed{\\frac{1}{2", "5", f"never closed {HIDDEN}"),
        ("half is \\frac12 here", "$\\boxed{\\frac12}$", f"half is {HIDDEN} here"),
        ("no answer given", "", "no answer given"),
    ],
)
def test_hide(summary, answer, shown):
    assert TASK.hide(problem("?"), summary, answer) == shown
