"""The loop: resumable to the bit, the same on any mesh, and what it writes down."""

import json

import jax
import numpy as np
import pytest
from rich.console import Console

from agon_jax import setup
from agon_jax.actor import Players
from agon_jax.config import default
from agon_jax.display import Display
from agon_jax.logs import read_metrics
from agon_jax.train import train


def small_config(**grpo):
    config = default().unlock()
    config.data.update(dict(train=40, validation=8, heldout=8, problems_per_step=8))
    config.data.update(dict(prompt_buckets=(9, 25), max_attempt_tokens=14))
    config.game.group_size = 2
    config.sampling.max_new_tokens = 50
    config.grpo.update(dict(completion_buckets=(50,), steps=3, remat=False, kl_weight=0.01) | grpo)
    config.lora.noise = 1e-2
    config.log.checkpoint_every = 2
    return config


def run(config, folder, devices):
    parts = setup.make_parts(config, devices)
    display = Display(Console(quiet=True))
    players = train(config, parts, setup.make_game(config), setup.seeds(config), folder, display)
    return jax.device_get(players.adapters)


def assert_close(a, b, atol):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0), a, b)


def transcripts(folder):
    return {p.name: p.read_text() for p in sorted((folder / "seed_0" / "transcripts").iterdir())}


def test_three_steps_on_eight_devices_sample_the_same_and_end_within_1e5(tmp_path):
    results = []
    for shape, count in (((1, 1, 1), 1), ((2, 2, 2), 8)):
        config = small_config(learning_rate=5e-5)
        config.mesh = shape
        config.log.transcripts_every = 1
        results.append(run(config, tmp_path / str(count), jax.devices()[:count]))
    assert len(transcripts(tmp_path / "1")) == 3
    for name, text in transcripts(tmp_path / "1").items():
        one, eight = (
            [
                (row[role]["text"], row[role]["correct"])
                for row in map(json.loads, t.splitlines())
                for role in ("draft", "challenge")
            ]
            for t in (text, transcripts(tmp_path / "8")[name])
        )
        assert one == eight
    assert_close(*results, atol=1e-5)
    # Adam divides by the gradient's own size: a gradient summed twice shows only in its norm
    for one, eight in zip(
        *(read_metrics(tmp_path / n / "seed_0" / "metrics.jsonl") for n in "18"), strict=True
    ):
        for name in ("grad_norm", "kl", "loss"):
            for key in (f"{name}/policy_a", f"{name}/policy_b"):
                np.testing.assert_allclose(one[key], eight[key], rtol=1e-3, atol=1e-6)
    # the comparison is about trained adapters: they moved by far more than the tolerance
    start = setup.make_adapters(config, setup.make_parts(config, jax.devices()).actor.base, 2)
    moved = jax.tree.map(lambda x, y: np.abs(np.asarray(x) - y).max(), start, results[0])
    assert max(jax.tree.leaves(moved)) > 5e-5


def test_a_run_in_two_halves_is_the_run_in_one_go_bit_for_bit(tmp_path, monkeypatch):
    config = small_config(steps=4)
    config.mesh = (1, 1, 1)
    whole = run(config, tmp_path / "whole", jax.devices()[:1])

    class Stop(Exception):
        pass

    def stop_at_three(self, done, metrics):
        if done == 3:  # after the checkpoint of step 2, with one more line of metrics written
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Display, "step", stop_at_three)
        with pytest.raises(Stop):
            run(config, tmp_path / "halves", jax.devices()[:1])
    halves = run(config, tmp_path / "halves", jax.devices()[:1])
    jax.tree.map(np.testing.assert_array_equal, whole, halves)
    rows = [
        [
            {k: v for k, v in row.items() if "second" not in k}
            for row in read_metrics(tmp_path / name / "seed_0" / "metrics.jsonl")
        ]
        for name in ("whole", "halves")
    ]
    assert rows[0] == rows[1]  # no step missing, none twice
    assert transcripts(tmp_path / "whole") == transcripts(tmp_path / "halves")


def test_a_torn_last_line_of_the_metrics_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "reward": 1.0}\n{"step": 1, "rew')
    assert read_metrics(path) == [{"step": 0, "reward": 1.0}]


def test_a_member_of_a_population_is_trained_as_it_would_be_alone(tmp_path):
    """Two seeds in one program against one alone: same rollouts, adapters within 1e-5; the other member
    ends elsewhere, and every member has logs of its own."""
    config = small_config(steps=3, learning_rate=5e-5)
    config.mesh = (1, 1, 1)
    config.log.transcripts_every = 1
    alone = run(config, tmp_path / "alone", jax.devices()[:1])
    config.seeds = (0, 7)
    both = run(config, tmp_path / "both", jax.devices()[:1])
    assert_close(alone, jax.tree.map(lambda x: x[:2], both), atol=1e-5)
    names = transcripts(tmp_path / "alone")
    texts = lambda text: [json.loads(line)["draft"]["text"] for line in text.splitlines()]
    assert {n: texts(t) for n, t in names.items()} == {
        n: texts(t) for n, t in transcripts(tmp_path / "both").items()
    }
    apart = jax.tree.map(lambda x: np.abs(x[:2] - x[2:]).max(), both)
    assert max(jax.tree.leaves(apart)) > 1e-2
    assert len(read_metrics(tmp_path / "both" / "seed_7" / "metrics.jsonl")) == 3


def test_refills_are_counted_and_resume(tmp_path):
    """With one refill a step makes up to twice the rollouts, and the stream has moved on accordingly."""
    config = small_config(steps=2, refills=1)
    config.mesh = (1, 1, 1)
    run(config, tmp_path, jax.devices()[:1])
    rows = read_metrics(tmp_path / "seed_0" / "metrics.jsonl")
    assert [row["rollouts"] for row in rows] == [64, 64]  # not 32: the base solves few, so groups are dead


def test_evaluations_while_training_are_on_validation_and_survive_a_resume(tmp_path):
    config = small_config(steps=4)
    config.mesh = (1, 1, 1)
    config.eval.every = 2
    parts = setup.make_parts(config, jax.devices()[:1])
    seen = []

    def validate(players):
        seen.append(len(players.seeds))
        return [{"A then B": 0.25 * len(seen)}]

    def go():
        train(
            config, parts, setup.make_game(config), (0,), tmp_path, Display(Console(quiet=True)),
            validate=validate,
        )  # fmt: skip

    go()
    path = tmp_path / "seed_0" / "evaluations.jsonl"
    expected = [{"step": 2, "rates": {"A then B": 0.25}}, {"step": 4, "rates": {"A then B": 0.5}}]
    assert read_metrics(path) == expected
    go()  # finished: nothing is trained or evaluated again
    assert read_metrics(path) == expected and len(seen) == 2


def test_the_divergence_of_a_pair_is_zero_for_equal_policies_and_grows_with_their_distance(tmp_path):
    from agon_jax.divergence import make_divergence
    from agon_jax.games.agon import play, to_batch

    config = small_config()
    config.mesh = (1, 1, 1)
    parts = setup.make_parts(config, jax.devices()[:1])
    game = setup.make_game(config)
    pair = setup.make_adapters(config, parts.actor.base, 2)
    found = []
    for distance in (0.0, 0.02, 0.1):
        other = jax.tree.map(
            lambda x, d=distance: np.stack(
                [x[0], x[0] + d * jax.random.normal(jax.random.key(3), x[0].shape)]
            ),
            pair,
        )
        players = Players(other, (0,), 2)
        rounds = play(game, parts.actor, players, [parts.splits.train[:8]], parts.sampling, step=0)
        batch = to_batch(game, rounds, (50,))
        learner = parts.learner
        found.append(
            float(make_divergence(learner.model, learner.objective, 2)(other, parts.actor.base, batch, 0)[0])
        )
    assert abs(found[0]) < 1e-6 and 1e-5 < found[1] < found[2]
    assert make_divergence(learner.model, learner.objective, 1)(other, parts.actor.base, batch, 0) is None
