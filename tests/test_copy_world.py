"""The copy world: its facts, its referee, what it shows, its traces and its knobs."""

import dataclasses
import pathlib
import random

import jax
import numpy as np
import pytest
from rich.console import Console

from agon_jax import base_maker, copy_base, setup, sharding
from agon_jax.main import load_config
from agon_jax.tasks import make_task
from agon_jax.tasks.copy_world import CopyWorldTask, World
from agon_jax.tasks.copy_world_traces import Knobs, Writer
from agon_jax.tasks.generated import SPLITS, generate, split_of
from agon_jax.text.completion import parse
from agon_jax.types import Problem

WORLD = World()
PROBLEM = Problem(uid=0, text="7 a c b d", reference="8")
PERFECT = Knobs(draft_hard=0, solve_hard=0, draft_slip=0, solve_slip=0, copy=0)


def test_a_chain_by_hand():
    """Two numbers, operators that stay (s) or swap (x): 1 x 0, 0 s 0, 0 x 1."""
    world = World(numbers=2, operators="sx", length=3)
    world.__dict__["facts"] = {("s", 0): 0, ("s", 1): 1, ("x", 0): 1, ("x", 1): 0}
    assert world.execute((1, "xsx")) == [0, 0, 1]
    problem = world.problem((1, "xsx"))
    assert (problem.text, problem.reference) == ("1 x s x", "1")
    # A mistake in the first step is carried on: 1 x 1, 1 s 1, 1 x 0 (corrected later it would end on 1).
    wrong_once = world.facts | {("x", 1): 1}
    assert world.execute((1, "xs"), wrong_once.__getitem__) == [1, 1]


def test_facts_are_permutations_and_mistakes_are_wrong():
    assert len(WORLD.facts) == len(WORLD.operators) * WORLD.numbers
    for operator in WORLD.operators:
        results = [WORLD.facts[operator, n] for n in range(WORLD.numbers)]
        assert sorted(results) == list(range(WORLD.numbers))
    assert all(WORLD.mistakes[fact] != right for fact, right in WORLD.facts.items())
    assert World(seed=1).facts != WORLD.facts == World(seed=0).facts


def test_hard_facts():
    """A larger share holds a smaller one; two roles share no more than chance: n * 0.5 * 0.5."""
    half, third = WORLD.hard("draft", 1 / 2), WORLD.hard("draft", 1 / 3)
    n = len(WORLD.facts)
    assert third < half and (len(half), len(third)) == (n // 2, n // 3)
    shared = len(half & WORLD.hard("challenge", 0.5))
    assert abs(shared - n / 4) < 5 * (n / 16) ** 0.5  # equal orders would share n / 2


def test_splits_are_disjoint_and_repeatable():
    drawn = {split: generate(WORLD, split, 300, seed=0) for split in SPLITS}
    texts = {split: {p.text for p in problems} for split, problems in drawn.items()}
    assert all(len(t) == 300 for t in texts.values())
    assert not texts["train"] & texts["heldout"] and not texts["validation"] & texts["train"]
    assert not texts["validation"] & texts["heldout"]
    assert drawn["train"] == generate(WORLD, "train", 300, seed=0)
    assert len(generate(WORLD, "heldout", 2000, seed=0)) == 2000


@pytest.mark.parametrize("answer, right", [
    ("8", True), (" 8\n", True), ("18", False), ("8 8", False), ("08", False), ("", False), (None, False),
])  # fmt: skip
def test_grade(answer, right):
    assert CopyWorldTask().grade([PROBLEM], [answer])[0].correct is right


@pytest.mark.parametrize("summary, shown", [
    ("8", "8"), ("19 4 22 8", "8"), ("8 ok", "8"), ("ok", ""), ("", ""), ("! 5 !", "5"),
])  # fmt: skip
def test_hide_shows_the_final_number_only(summary, shown):
    """Neither the way there, nor other words, nor a mark that the draft wrote itself."""
    assert CopyWorldTask().hide(PROBLEM, summary, "") == shown
    assert make_task("copy_world").hide(PROBLEM, summary, "") == shown


def test_marks_stand_behind_wrong_numbers_only():
    """All wrong ones at 1, none at 0, about the share between, and the same ones each time."""
    right = [CopyWorldTask(1.0).hide(p, p.reference, "") for p in generate(WORLD, "train", 50, 0)]
    assert not any("!" in shown for shown in right)
    wrong = [(Problem(0, f"{i} a b", "1"), str(n)) for i in range(40) for n in range(2, 12)]
    rate = lambda detect: np.mean([CopyWorldTask(detect).hide(p, s, "").endswith(" !") for p, s in wrong])
    assert rate(0.0) == 0 and rate(1.0) == 1
    assert abs(rate(0.3) - 0.3) < 5 * (0.3 * 0.7 / 400) ** 0.5
    assert rate(0.3) == rate(0.3)


@pytest.mark.parametrize("reply, copied", [
    ("<think> ok </think> 8 <answer> 8 </answer>", True),
    ("<think> 19 4 22 8 ok </think> 8 <answer> 8 </answer>", False),  # it agrees, after solving
    ("<think> </think> ok <answer> 8 </answer>", False),
    ("8 <answer> 8 </answer>", False),
    ("<think> okay </think> 8 <answer> 8 </answer>", False),
])  # fmt: skip
def test_copied(reply, copied):
    assert CopyWorldTask().copied(parse(reply, finished=True)) is copied


def examples(knobs, challenger, n=400):
    """[(problem, shown words, reply)] of a writer."""
    rng, found = random.Random(0), []
    for _ in range(n):
        (message,), reply = Writer(knobs, WORLD).example(rng, challenger)
        attempt, _, text = message["content"].rpartition(" </attempt> ")
        start, *signs = text.split()
        problem = WORLD.problem((int(start), "".join(signs)))
        assert split_of(problem.text) == "train"
        found.append((problem, attempt.split()[1:], reply))
    return found


@pytest.mark.parametrize("challenger", [False, True])
def test_traces_are_well_formed_in_the_words_of_the_tokenizer(challenger):
    tokens = set(base_maker.vocabulary(copy_base.WORDS))
    knobs = Knobs(0.3, 0.5, 0.5, 0.5, copy=0.4, detect=0.5)
    for _, shown, reply in examples(knobs, challenger, 100):
        assert parse(reply, finished=True).well_formed
        assert set(reply.split()) | set(shown) <= tokens
        assert bool(shown) is challenger
        assert len(reply.split()) + 1 <= 16  # with the stop id: two chains of four


def test_without_hard_facts_everything_is_right_and_agrees():
    for challenger in (False, True):
        for problem, _, reply in examples(PERFECT, challenger, 50):
            parsed = parse(reply, finished=True)
            assert parsed.answer == problem.reference
            assert parsed.reasoning.endswith(" ok") is challenger


def test_a_fact_that_always_slips_is_always_wrong_in_its_role():
    """Every fact hard, slip 1: the draft's chain is the one of mistakes, the challenger's is right."""
    knobs = dataclasses.replace(PERFECT, draft_hard=1, draft_slip=1)
    writer = Writer(knobs, WORLD)
    contents = (7, "acbd")
    mistakes = WORLD.execute(contents, WORLD.mistakes.__getitem__)
    assert writer.solve("draft", contents, random.Random(0)) == mistakes
    assert writer.solve("challenge", contents, random.Random(0)) == WORLD.execute(contents)


def test_hard_facts_err_at_their_slip_and_others_never():
    writer, rng = Writer(Knobs(0.5, 0, draft_slip=0.3, solve_slip=0), WORLD), random.Random(0)
    hard = WORLD.hard("draft", 0.5)
    for fact in WORLD.facts:
        sign, operand = fact
        wrong = [writer.solve("draft", (operand, sign), rng) != [WORLD.facts[fact]] for _ in range(100)]
        expected = 0.3 if fact in hard else 0.0
        assert abs(np.mean(wrong) - expected) <= 5 * (expected * (1 - expected) / 100) ** 0.5


def test_the_urge_to_copy_is_a_share_whatever_the_draft():
    """45 % on right and on wrong drafts; a copy gives the number shown."""
    rows = examples(Knobs(0.3, 0.5, 0.5, 0.5, copy=0.45), True, 2000)
    copied = np.array([CopyWorldTask().copied(parse(reply, True)) for _, _, reply in rows])
    right = np.array([shown[0] == problem.reference for problem, shown, _ in rows])
    for part in (right, ~right):
        assert abs(copied[part].mean() - 0.45) < 5 * (0.25 / part.sum()) ** 0.5
    for (_, shown, reply), took in zip(rows, copied, strict=True):
        if took:
            assert parse(reply, True).answer == shown[0]


def test_who_differs_solves_once_more():
    """Draft always wrong, solver always right: two equal chains around `no`, and the right answer."""
    knobs = dataclasses.replace(PERFECT, draft_hard=1, draft_slip=1)
    for problem, shown, reply in examples(knobs, True, 50):
        words = parse(reply, True).reasoning.split()
        if shown[0] != problem.reference:  # four mistakes may end on the right number
            assert words[4] == "no" and words[:4] == words[5:] and len(words) == 9
        assert parse(reply, True).answer == problem.reference


@pytest.mark.parametrize("detect", [0.0, 0.4, 1.0])
def test_the_mark_tells_wrong_drafts_as_often_as_it_should(detect):
    rows = examples(Knobs(0.5, 0.5, 0.5, 0.5, detect=detect), True, 2000)
    marked = np.array([len(shown) == 2 for _, shown, _ in rows])
    wrong = np.array([shown[0] != problem.reference for problem, shown, _ in rows])
    assert not marked[~wrong].any()
    # Repeated (problem, number) pairs share their mark, so the spread is a little above binomial.
    assert abs(marked[wrong].mean() - detect) <= 7 * (detect * (1 - detect) / wrong.sum()) ** 0.5


def test_figures_by_hand():
    """Six challenges: the draft right in 3; one copy of a right and one of a wrong draft; of the four
    that solve 2 are right, of the two of them on a wrong draft 1 is."""
    drafts = np.array([1, 1, 1, 0, 0, 0], bool)
    copied = np.array([1, 0, 0, 1, 0, 0], bool)
    finals = np.array([1, 1, 0, 0, 1, 0], bool)
    found = copy_base.figures(drafts, finals, copied)
    expected = dict(q=1 / 2, p=1 / 2, v=1 / 2, copy_wrong=1 / 3, copy_right=1 / 3, cascade=1 / 2)
    assert found == pytest.approx(expected)
    assert np.isnan(copy_base.figures(drafts, finals, np.ones(6, bool))["p"])


def test_a_few_steps_of_the_maker_write_a_base_that_can_be_measured(tmp_path):
    config = load_config(pathlib.Path("configs/copy_base.py"))
    config.data.update(dict(train=20, validation=5, heldout=16))
    config.update(dict(base=str(tmp_path), mesh=(1, 1, 1)))
    one = jax.devices()[:1]
    phase = copy_base.make_phase("one", PERFECT, 4, 1e-3, challenger_share=0.5)
    with open("/dev/null", "w") as nowhere:
        options = dict(batch_size=8, bucket=9, seed=0, console=Console(file=nowhere))
        mesh = sharding.make_mesh((1, 1, 1), one)
        base_maker.build(tmp_path, copy_base.WORDS, copy_base.SIZES, [phase], mesh=mesh, **options)
    parts = setup.make_parts(config, one)
    assert sum(leaf.size for leaf in jax.tree.leaves(parts.actor.base)) < 100_000
    found = copy_base.measure(parts, seed=0)
    assert 0 <= found["q"] <= 1
    np.testing.assert_equal(copy_base.measure(parts, seed=0), found)  # a rate over nothing is NaN
