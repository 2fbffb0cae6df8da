"""Parsing of completions: format, answer, and what a rival may see."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agon_jax.text.completion import parse

OPEN, EMPTY = "<think>\n", "<think>\n\n</think>\n\n"  # what chat templates write ahead of the reply


def visible(completion):
    """All but the reasoning."""
    return completion.summary, completion.answer, completion.well_formed


@pytest.mark.parametrize(
    "text, finished, prefill, reasoning",
    [
        ("<think>a <answer>9</answer> b</think> s <answer>7</answer>", True, "", "a 9 b"),
        ("a\n</think>\ns\n<answer>7</answer>", True, OPEN, "a"),
        ("s\n<answer>7</answer>", True, EMPTY, ""),
        ("<think> a b", False, "", "a b"),  # cut while it reasoned: all of it is private
        ("no tags at all", True, "", ""),
    ],
)
def test_reasoning(text, finished, prefill, reasoning):
    """What stands before the summary, nothing of the summary or the answer block."""
    assert parse(text, finished, prefill).reasoning == reasoning


@pytest.mark.parametrize(
    "text, prefill, summary, answer",
    [
        ("<think>a</think> s <answer>7</answer>", "", "s", "7"),
        # The template opened the reasoning. Judged on the text alone, no reply is ever well formed.
        ("a\n</think>\ns\n<answer>7</answer>", OPEN, "s", "7"),
        # The template switched reasoning off: the block is there and empty.
        ("s\n<answer>7</answer>", EMPTY, "s", "7"),
        # Line breaks anywhere; a `.` that stops at one would call this malformed.
        ("\n<think>a\nb\n\nc</think>\n\ns\nt\n\n<answer>\n7\n8\n</answer>\n", "", "s\nt", "7\n8"),
        # Tags talked about while reasoning are text, also an answer that was tried and given up.
        ("<think>I end with <answer>x</answer>. Try <answer>9</answer>? no</think>s<answer>7</answer>",
         "", "s", "7"),
        ("<think>an <answer> tag comes later</think>s<answer>7</answer>", "", "s", "7"),
        ("<think></think><answer>7</answer>", "", "", "7"),
    ],
)  # fmt: skip
def test_well_formed(text, prefill, summary, answer):
    assert visible(parse(text, True, prefill)) == (summary, answer, True)


@pytest.mark.parametrize(
    "text, prefill, summary, answer",
    [
        # Two answers: the last counts, so naming every candidate does not pay.
        ("<think>a</think>s<answer>3</answer> <answer>4</answer>", "", "s", "4"),
        # Reasoning twice: only what follows the last of it is a summary.
        ("<think>a</think>x<think>b</think>s<answer>3</answer>", "", "s", "3"),
        ("<think>b</think>s<answer>3</answer>", OPEN, "s", "3"),
        ("<think>b</think>s<answer>3</answer>", EMPTY, "s", "3"),
        # The answer before the reasoning is no answer.
        ("<answer>3</answer><think>a</think>", "", "", None),
        ("<answer>3</answer><think>a</think>s<answer>4</answer>", "", "s", "4"),
        # Reasoning that never ends: a value tried on the way is neither answer nor summary.
        ("<think>maybe <answer>3</answer>", "", "", None),
        ("maybe <answer>3</answer>", OPEN, "", None),
        # The same after it was opened again.
        ("<think>a</think>s<think>maybe <answer>3</answer>", "", "s", None),
        ("<think>a</think><think>secret", "", "", None),
        ("maybe <answer>3</answer>", EMPTY + "<think>", "", None),
        # Text around the two blocks.
        ("Well. <think>a</think>s<answer>3</answer>", "", "s", "3"),
        ("<think>a</think>s<answer>3</answer> I hope so.", "", "s", "3"),
        # One half of a block missing, or the halves swapped.
        ("a</think>s<answer>3</answer>", "", "s", "3"),
        ("</think>a<think>s<answer>3</answer>", "", "a", None),
        ("<think>a</think>s<answer>3", "", "s", None),
        ("<think>a</think>s 3</answer>", "", "s 3", None),
        ("<think>a</think>s<answer>3<answer>4</answer>", "", "s", "4"),
        ("<think>a</think>s</answer>3<answer>", "", "s3", None),
        ("<think>a</think>s 3", "", "s 3", None),
        # No reasoning at all.
        ("s<answer>3</answer>", "", "", "3"),
        ("", "", "", None),
        ("", OPEN, "", None),
    ],
)
def test_malformed(text, prefill, summary, answer):
    assert visible(parse(text, True, prefill)) == (summary, answer, False)


def test_an_empty_answer_is_not_a_missing_one():
    assert parse("<think>a</think>s<answer> </answer>", True).answer == ""


@pytest.mark.parametrize(
    "text, prefill, summary",
    [
        ("<think>so <answer>7</answer>? Let me check", "", ""),
        ("so <answer>7</answer>? Let me check", OPEN, ""),
        ("<think>a</think>half a summ", "", "half a summ"),
        ("<think>a</think>s<answer>7</answer>", "", "s"),  # cut just before its stop token
        ("s<answer>7</answer>", EMPTY, "s"),
    ],
)
def test_cut_at_the_cap(text, prefill, summary):
    """Never well formed, never answered: paying for it would teach to write past the cap."""
    assert visible(parse(text, False, prefill)) == (summary, None, False)


TAGS = ("<think>", "</think>", "<answer>", "</answer>")
pieces = st.lists(st.sampled_from([*TAGS, "word"]), max_size=12).map(
    lambda kinds: [kind if kind in TAGS else f"w{i}" for i, kind in enumerate(kinds)]
)


@settings(deadline=None)
@given(st.one_of(st.text(), pieces.map(" ".join)), st.booleans(), st.sampled_from(["", OPEN, EMPTY]))
def test_never_raises(text, finished, prefill):
    parsed = parse(text, finished, prefill)
    if not finished:
        assert parsed.answer is None and not parsed.well_formed
    if parsed.well_formed:
        assert parsed.answer is not None
    assert not any(tag in parsed.summary for tag in TAGS)


@settings(deadline=None)
@given(pieces, st.booleans())
def test_private_reasoning_never_reaches_the_rival(words, finished):
    """What a rival sees lies behind the last </think>, ahead of an answer or a new <think>."""
    public = []
    if "</think>" in words:
        for word in words[len(words) - words[::-1].index("</think>") :]:
            if word in ("<answer>", "<think>"):
                break
            public += [word] * (word not in TAGS)
    assert parse(" ".join(words), finished).summary.split() == public
