"""Hiding an answer: the gold cannot be read off what a rival is shown."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agon_jax.tasks.hiding import HIDDEN, hide_answer
from agon_jax.text.completion import parse

ANSWERS = st.sampled_from(
    ["3", "-17", "3.5", "1/2", "\\frac{1}{2}", "x^2+1", "(0, 3]", "\\text{even}", "12,345", "2\\sqrt{3}", "B"]
)
WORDS = st.lists(st.sampled_from(["so", "we", "get", "=", "13", "x", "and", "hence", "."]), max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    ANSWERS, WORDS, WORDS, st.sampled_from(["{}", "${}$", "\\boxed{{{}}}", "\\fbox{{ {} }}", "**{}**", "{}."])
)
def test_the_gold_cannot_be_read_off(answer, before, after, form):
    """Whatever surrounds it, the answer does not stand there as a thing of its own."""
    summary = " ".join([*before, form.format(answer), *after])
    shown = hide_answer(summary, answer)
    assert HIDDEN in shown
    squeezed = lambda text: re.sub(r"\s+", " ", text)
    assert not re.search(rf"(?<![\w.]){re.escape(answer)}(?!\w|\.\d)", squeezed(shown))


@settings(max_examples=100, deadline=None)
@given(ANSWERS)
def test_hiding_twice_is_hiding_once(answer):
    once = hide_answer(f"a {answer} b \\boxed{{{answer}}}", answer)
    assert hide_answer(once, answer) == once


@pytest.mark.parametrize(
    "summary, answer, shown",
    [
        (
            "half is \\frac{1}{2}, that is \\frac{ 1 }{ 2 }",
            "\\frac{1}{2}",
            f"half is {HIDDEN}, that is {HIDDEN}",
        ),
        ("x ^ 2 + 1 is least", "x^2+1", f"{HIDDEN} is least"),  # spacing is no difference
        ("13 and 3.5 and x3, then 3", "3", f"13 and 3.5 and x3, then {HIDDEN}"),
        ("no answer", "", "no answer"),
    ],
)
def test_by_hand(summary, answer, shown):
    assert hide_answer(summary, answer) == shown


def test_the_answer_block_is_never_part_of_the_summary():
    """The summary ends where the answer begins, so hiding works on the write-up alone."""
    reply = parse("<think>2 + 2</think>We add. It is \\boxed{4}.<answer>4</answer>", finished=True)
    assert reply.summary == "We add. It is \\boxed{4}." and reply.answer == "4"
    assert hide_answer(reply.summary, reply.answer) == f"We add. It is {HIDDEN}."
