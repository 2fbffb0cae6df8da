"""The tiny world: its splits, its referee, what it hides, and its traces."""

import random

import pytest

from agon_jax.base_maker import vocabulary
from agon_jax.tasks import make_task
from agon_jax.tasks.generated import SPLITS, generate, split_of
from agon_jax.tasks.operators import OperatorsTask, World, parse_problem
from agon_jax.tasks.operators_traces import PHASES, Writer
from agon_jax.text.completion import parse
from agon_jax.tiny_base import WORDS

WORLD, TASK = World(), OperatorsTask()
PROBLEM = WORLD.problem(([45, 10, 8, 5], 42))


def test_splits_are_disjoint():
    """One tuple of numbers lies in one split, whatever its target; 80 / 10 / 10 per cent."""
    drawn = {split: generate(WORLD, split, 200, seed=0) for split in SPLITS}
    tuples = {split: {tuple(parse_problem(p.text)[0]) for p in ps} for split, ps in drawn.items()}
    assert not tuples["train"] & tuples["heldout"]
    assert not tuples["train"] & tuples["validation"]
    assert not tuples["validation"] & tuples["heldout"]
    rng = random.Random(0)
    counts = dict.fromkeys(SPLITS, 0)
    for _ in range(2000):
        counts[split_of(WORLD.key(WORLD.draw(rng)))] += 1
    assert abs(counts["train"] - 1600) < 90 and abs(counts["heldout"] - 200) < 60  # 5 sigma


def test_generate():
    """The same for the same seed, another for another, no problem twice, a prefix when shorter."""
    first = generate(WORLD, "train", 100, seed=3)
    assert first == generate(WORLD, "train", 100, seed=3)
    assert first[:40] == generate(WORLD, "train", 40, seed=3)
    assert len({p.text for p in first}) == len({p.uid for p in first}) == 100
    assert {p.text for p in first[:20]} != {p.text for p in generate(WORLD, "train", 20, seed=4)}
    assert all(0 <= p.uid < 2**31 for p in first)


def test_distinct_in_a_crowded_world():
    """Two tuples of one sign each give at most four problems a tuple: repeats must be skipped."""
    crowded = World(num_operands=2, first=(20, 24), others=(1, 3))
    texts = [p.text for p in generate(crowded, "train", 15, seed=0)]
    assert len(set(texts)) == 15


@pytest.mark.parametrize("operands", [2, 4, 5, 7])
def test_every_reference_solves_its_problem(operands):
    world = World(num_operands=operands)
    task = OperatorsTask(world)
    for split in ("train", "heldout"):
        for problem in generate(world, split, 20, seed=1):
            numbers, target = parse_problem(problem.text)
            assert len(numbers) == operands and 0 <= target <= 99
            assert task.verify(problem, problem.reference)
            right = [" ".join(signs) for signs in world.solutions(numbers, target)]
            assert problem.reference in right


def test_every_solution_is_right():
    """10 - 2 - 3 + 3 = 10 - 2 + 3 - 3 = 8: a referee that compares with the reference pays one."""
    problem = WORLD.problem(([10, 2, 3, 3], 8))
    assert sorted(map(" ".join, WORLD.solutions([10, 2, 3, 3], 8))) == ["- + -", "- - +"]
    assert TASK.verify(problem, "- + -") and TASK.verify(problem, "- - +")


@pytest.mark.parametrize(
    "answer, right",
    [
        ("+ - -", True),  # 45 + 10 = 55, 55 - 8 = 47, 47 - 5 = 42
        ("  +\n- -  ", True),
        ("+ - +", False),
        ("+ -", False),  # too few, although 45 + 10 - 8 ... could be read as unfinished
        ("+ - - +", False),
        ("+--", False),
        ("+ - - or + + +", False),
        ("+ - *", False),
        ("42", False),
        ("45 + 10 - 8 - 5", False),
        ("", False),
        ("   ", False),
        ("+ - \u2212", False),
    ],
)
def test_verify(answer, right):
    assert TASK.verify(PROBLEM, answer) is right


@pytest.mark.parametrize("numbers, target, answer", [
    ([3, 5, 9], 7, "- +"),  # 3 - 5 = -2
    ([95, 5, 9], 91, "+ -"),  # 95 + 5 = 100
])  # fmt: skip
def test_totals_stay_in_range(numbers, target, answer):
    """The chain ends on the target but leaves 0..99 on its way."""
    text = f"{' '.join(map(str, numbers))} = {target}"
    assert not TASK.verify(PROBLEM.__class__(uid=0, text=text, reference=""), answer)
    assert WORLD.solutions(numbers, target) == []


@pytest.mark.parametrize("text", ["", "=", "5 = 5", "a b = 3", "1 2 3", "1 2 = "])
def test_not_a_problem(text):
    with pytest.raises(ValueError, match="not a problem of the operators world"):
        parse_problem(text)


@pytest.mark.parametrize(
    "summary, shown",
    [
        ("45 + 10 55 - 8 47 - 5 42", "45 + 10 55 - 8 47 - 5 ?"),
        ("45 + 10 55 - 8 47 - 5 42 ok", "45 + 10 55 - 8 47 - 5 ? ok"),  # 42 stood at its end otherwise
        ("45 + 10 55 -", "45 + 10 ? -"),
        ("", ""),
        ("+ - -", "+ - -"),
    ],
)
def test_hide(summary, shown):
    """The outcome goes, the argument stays."""
    assert TASK.hide(PROBLEM, summary, "+ - -") == shown


def test_prompts_hold_the_problem_and_only_the_summary():
    content = lambda messages: [message["content"] for message in messages]
    assert content(TASK.prompts.draft_messages("1 2 = 3")) == ["1 2 = 3"]
    challenge = TASK.prompts.challenge_messages("1 2 = 3", "1 + 2 ?")
    assert content(challenge) == ["1 2 = 3 <attempt> 1 + 2 ? </attempt>"]
    # Braces in the text are text: str.format would raise, a second replace would fill them in.
    odd = TASK.prompts.challenge_messages("{attempt} {x}", "{problem}")
    assert content(odd) == ["{attempt} {x} <attempt> {problem} </attempt>"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("challenger", [False, True])
def test_traces(phase, challenger):
    """Well formed, on the train split, in the words of the tokenizer, the rival's outcome hidden."""
    rng = random.Random(0)
    writer = Writer(PHASES[phase])
    tokens = set(vocabulary(WORDS))
    for _ in range(60):
        (message,), reply = writer.example(rng, challenger)
        text, _, attempt = message["content"].partition(" <attempt> ")
        numbers, target = parse_problem(text)
        assert split_of(WORLD.key((numbers, target))) == "train"
        parsed = parse(reply, finished=True)
        assert parsed.well_formed and parsed.summary
        assert len(parsed.answer.split()) == len(numbers) - 1
        assert set(message["content"].split()) | set(reply.split()) <= tokens
        assert bool(attempt) == challenger
        if challenger:
            assert attempt.split()[-2:] == ["?", "</attempt>"]


def test_better_phases_write_better_traces():
    """`skill` solves more than `noise`: what reinforcement learning brings out again."""
    rate = {}
    for phase in ("skill", "noise"):
        rng, writer, right = random.Random(1), Writer(PHASES[phase]), 0
        for _ in range(200):
            (message,), reply = writer.example(rng, challenger=False)
            problem = PROBLEM.__class__(uid=0, text=message["content"], reference="")
            right += TASK.verify(problem, parse(reply, finished=True).answer)
        rate[phase] = right / 200
    assert rate["skill"] > rate["noise"] + 0.2


def test_make_task():
    assert make_task("operators") == TASK
    with pytest.raises(ValueError, match="unknown task 'chess'"):
        make_task("chess")


def test_a_world_that_is_too_small_says_so():
    tiny = World(num_operands=2, first=(20, 21), others=(1, 2))  # 4 tuples, at most 8 problems
    with pytest.raises(ValueError, match="no more than"):
        generate(tiny, "train", 50, seed=0)
