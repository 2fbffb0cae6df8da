"""The base for the families of reasoning_gym: its traces, its tokenizer, its config."""

import dataclasses
import json
import pathlib
import random

import jax
import numpy as np
import pytest
from rich.console import Console

from agon_jax import base_maker, gym_base, main, setup
from agon_jax.actor import Players
from agon_jax.data import load_splits
from agon_jax.games import agon
from agon_jax.main import load_config
from agon_jax.tasks import make_task
from agon_jax.tasks.gym_traces import PHASES, Phase, Reader, Writer, answer_of, read, relation
from agon_jax.text.completion import parse
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import Problem

TEXT = (
    "John is married to Mary. They have a child called Liam. Liam is married to Anna. They have children "
    "called Zoe, Jack and Emma. Paul is married to Ruth. They have a child called Anna.\n\n"
)
ASK = "What relation is {} to {}? Answer with a single word."
WOMEN = frozenset(["Mary", "Anna", "Zoe", "Emma", "Ruth"])
PERFECT = Phase(solve=1, repair=1, wish=0, trust=0, ignore=0, copy=0, again=1, slip=0)


def small(**data):
    config = load_config(pathlib.Path("configs/matrix_gym.py"))
    config.data.path = "family_relationships:300?max_family_size=6"
    config.data.update(dict(train=200, validation=20, heldout=20) | data)
    return config


@pytest.fixture(scope="module")
def problems():
    return gym_base.train_problems(small())


@pytest.mark.parametrize("first, second, walks, word", [
    ("Mary", "Liam", ["Mary parent Liam"], "mother"),
    ("Liam", "Mary", ["Liam child Mary"], "son"),
    ("Anna", "Liam", ["Anna spouse Liam"], "wife"),
    ("Jack", "Emma", ["Jack child Liam parent Emma", "Jack child Anna parent Emma"], "brother"),
    ("John", "Zoe", ["John parent Liam parent Zoe"], "grandfather"),
    # The library takes the gender of the second person here: of the first it would be father-in-law.
    ("Liam", "Ruth", ["Liam spouse Anna child Ruth"], "mother-in-law"),
])  # fmt: skip
def test_walks_by_hand(first, second, walks, word):
    for question in (ASK, "What is {} to {}? Respond only with the word.", "How is {} related to {}?"):
        found = read(TEXT + question.format(first, second)).solutions()
        assert [" ".join(walk) for walk in found] == walks
        assert {relation(walk, WOMEN) for walk in found} == {word}


def test_a_walk_is_sound_only_if_the_story_holds_every_hop():
    sound = lambda walk: read(TEXT + ASK.format("John", "Zoe")).sound(walk.split())
    assert sound("John parent Liam parent Zoe")
    assert not sound("John parent Zoe")  # it ends rightly: by its end alone it would pass
    assert not sound("John parent Liam parent Emma")
    assert not sound("Mary parent Liam parent Zoe")


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match="not a problem of family_relationships: 'How many legs"):
        read("How many legs have 3 ants?")


def test_the_walks_mean_what_the_library_scores(problems):
    """Every problem has solutions, and all of them name the one answer that its scorer takes."""
    women, task = frozenset(gym_base.names()[0]), make_task("reasoning_gym")
    assert len(problems) == 200
    for problem in problems:
        assert {relation(walk, women) for walk in read(problem.text).solutions()} == {answer_of(problem)}
    assert all(g.correct for g in task.grade(problems, list(map(answer_of, problems))))


def test_no_trace_is_of_a_problem_that_is_held_out(problems):
    """300 problems, 200 at most to train on: those that the run of the matrix trains on."""
    config = small()
    other = {p.text for p in gym_base.train_problems(small(train=10**6))}
    everyone = load_splits(
        "reasoning_gym", path=config.data.path, question_field="", answer_field="", task="reasoning_gym",
        sizes=(10**6,) * 3, shares=tuple(config.data.shares), transfer=(), seed=config.seed,
        fits=lambda p: True, fault=lambda r: None,
    )  # fmt: skip
    unseen = {p.text for p in everyone.validation + everyone.heldout}
    assert len(unseen) > 30 and not unseen & other
    drawn = set()
    phase = gym_base.make_phase("skill", 1, 1e-3, problems, 0.5)
    rng = random.Random(0)
    for _ in range(500):
        (message,), _ = phase.draw(rng)
        drawn.add(message["content"].rpartition(" </attempt> ")[2])
    assert len(drawn) > 100 and drawn <= {p.text for p in problems} and not drawn & unseen


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("challenger", [False, True])
def test_traces_are_well_formed_short_and_in_the_words_of_the_tokenizer(problems, name, challenger):
    words = set(base_maker.vocabulary(gym_base.words()))
    writer, rng = Writer(PHASES[name], problems, frozenset(gym_base.names()[0])), random.Random(0)
    for _ in range(200):
        (message,), reply = writer.example(rng, challenger)
        assert parse(reply, finished=True).well_formed
        assert set(reply.split()) <= words
        assert len(reply.split()) + 1 <= 24  # with the stop id: sampling.max_new_tokens
        assert message["content"].startswith("<attempt> ") is challenger
        assert "[hidden]" not in message["content"]  # a write-up holds no word of an answer


@pytest.mark.parametrize("challenger, shown", [(False, 0), (True, 5)])
def test_reading_is_twelve_hops_that_the_story_holds(problems, challenger, shown):
    """And, shown to a challenger, two more: three people, two hops."""
    rng = random.Random(0)
    for _ in range(50):
        (message,), reply = Reader(problems).example(rng, challenger)
        attempt, _, text = message["content"].rpartition(" </attempt> ")
        story, (think, *walk) = read(text), reply.split()
        assert think == "<think>" and len(walk) == 25 and walk[0] == story.first
        assert all(
            b in story.hops[a, hop] for a, hop, b in zip(walk[::2], walk[1::2], walk[2::2], strict=False)
        )
        assert len(attempt.split()[1:]) == shown


def test_every_word_has_one_token():
    words = base_maker.vocabulary(gym_base.words())
    assert len(set(words)) == len(words) <= gym_base.SIZES["vocab_size"]


def test_terse_prompts_are_the_bare_problem_whatever_the_task():
    for name in ("math", "reasoning_gym"):
        task = make_task(name, prompts="terse")
        assert task.prompts.draft_messages("P") == [{"role": "user", "content": "P"}]
        assert "Solve the problem." in make_task(name).prompts.plain  # another one's stay as they are
        task.close()
    with pytest.raises(ValueError, match="unknown prompts 'short': use task, terse"):
        make_task("math", prompts="short")


def test_a_perfect_writer_is_right_at_once(problems):
    women, rng = frozenset(gym_base.names()[0]), random.Random(0)
    writer = Writer(PERFECT, problems, women, drafter=PERFECT)
    by_text = {p.text: p for p in problems}
    for challenger in (False, True):
        for _ in range(50):
            (message,), reply = writer.example(rng, challenger)
            parsed, text = parse(reply, True), message["content"].rpartition(" </attempt> ")[2]
            assert parsed.answer == answer_of(by_text[text])
            assert parsed.reasoning == parsed.summary + " ok"


def test_who_checks_repairs_a_wrong_draft():
    """A draft that never solves (its wish makes it end on the second person), a reader that always does."""
    reference = json.dumps({"dataset": "family_relationships", "entry": {"answer": "grandfather"}})
    problem = Problem(0, TEXT + ASK.format("John", "Zoe"), reference)
    drafter = dataclasses.replace(PERFECT, solve=0, repair=0, wish=1, trust=1)
    writer, rng = Writer(PERFECT, [problem], WOMEN, drafter), random.Random(0)
    seen = set()
    for _ in range(60):
        (message,), reply = writer.example(rng, challenger=True)
        shown = message["content"].partition(" </attempt> ")[0].removeprefix("<attempt> ")
        seen.add(shown)
        mark = "ok" if shown == "John parent Liam parent Zoe" else "no"
        assert reply.startswith(f"<think> {shown} {mark} ")
        assert reply.endswith("</think> John parent Liam parent Zoe <answer> grandfather </answer>")
    assert "John spouse Zoe" in seen and "John parent Zoe" in seen


def test_a_few_steps_write_a_base_that_plays(tmp_path):
    """Marks are words of their own (`Mary.` is no unknown word), and the base drafts and challenges with
    the prompts of the matrix."""
    config = small()
    few = dict(phases=("read", "noise"), steps=(1, 2), learning_rates=(1e-3, 1e-3), batch_size=4)
    config.gym_base.update(few)
    config.mesh = (1, 1, 1)
    with open("/dev/null", "w") as nowhere:
        gym_base.run(config, tmp_path, Console(file=nowhere), jax.devices()[:1])
    tokenizer = Tokenizer(tmp_path)
    unknown = base_maker.vocabulary(()).index("<unk>")
    ids = tokenizer.encode("Mary is married to John. They have children called Emma, Zoe and Jack.")
    assert unknown not in ids and len(ids) == 16
    config.base = str(tmp_path)
    parts = setup.make_parts(config, jax.devices()[:1])
    game = setup.make_game(config, "adv")
    adapters = setup.make_population(config, parts.actor.base, game.policies, (0,))
    players = Players(adapters, (0,), game.policies)
    assert sum(leaf.size for leaf in jax.tree.leaves(parts.actor.base)) < 200_000
    (round_,) = agon.play(game, parts.actor, players, [parts.splits.train[:2]], parts.sampling, step=0)
    assert round_.challenges.rewards.shape == (2, 8) and np.isfinite(round_.challenges.rewards).all()
    content = parts.actor.task.prompts.challenge_messages("P", "A")[0]["content"]
    assert content == "<attempt> A </attempt> P"


def test_the_job_says_what_is_wrong(tmp_path, capsys):
    status = main.main(["main", "--config=configs/gym_base.py", f"--workdir={tmp_path}",
                        "--config.data.path=family_relationship:20"])  # fmt: skip
    assert status == 2 and "no dataset 'family_relationship'" in capsys.readouterr().err
