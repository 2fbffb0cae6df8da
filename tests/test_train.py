"""The loop: resumable to the bit, the same on any mesh, and what it writes down."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from rich.console import Console

from agon_jax import setup
from agon_jax.config import default
from agon_jax.display import Display
from agon_jax.logs import read_metrics
from agon_jax.train import train

ROOT = pathlib.Path(__file__).parents[1]
SMALL = (
    "--config.data.train=40", "--config.data.validation=8", "--config.data.heldout=24",
    "--config.data.problems_per_step=4", "--config.game.group_size=2",
    "--config.grpo.steps=6", "--config.grpo.microbatches=1",
    "--config.log.checkpoint_every=2", "--config.log.transcripts_every=2",
    "--config.eval.rows_per_call=24", "--config.log.tensorboard=True",
)  # fmt: skip


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
    return jax.device_get(train(config, parts, setup.make_game(config), folder, display))


def assert_close(a, b, atol):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0), a, b)


def transcripts(folder):
    return {p.name: p.read_text() for p in sorted((folder / "transcripts").iterdir())}


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
    for one, eight in zip(*(read_metrics(tmp_path / n / "metrics.jsonl") for n in "18"), strict=True):
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
            for row in read_metrics(tmp_path / name / "metrics.jsonl")
        ]
        for name in ("whole", "halves")
    ]
    assert rows[0] == rows[1]  # no step missing, none twice
    assert transcripts(tmp_path / "whole") == transcripts(tmp_path / "halves")


def test_a_torn_last_line_of_the_metrics_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "reward": 1.0}\n{"step": 1, "rew')
    assert read_metrics(path) == [{"step": 0, "reward": 1.0}]


def command(workdir):
    return [
        sys.executable,
        "-m",
        "agon_jax.main",
        f"--config={ROOT}/configs/quickstart.py",
        f"--workdir={workdir}",
        *SMALL,
    ]


def test_kill_minus_nine_and_the_same_command_give_the_table_of_an_uninterrupted_run(tmp_path):
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    options = dict(cwd=ROOT, env=environment, capture_output=True, text=True)
    subprocess.run(command(tmp_path / "whole"), check=True, **options)

    victim = subprocess.Popen(
        command(tmp_path / "killed"), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    metrics = tmp_path / "killed" / "adv" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.is_file() and len(read_metrics(metrics)) >= 3):
        assert victim.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not (tmp_path / "killed" / "results.json").exists()

    again = subprocess.run(command(tmp_path / "killed"), check=True, **options)
    assert "resuming at" in again.stdout
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "killed")]
    assert results[0]["rows"] == results[1]["rows"]
    names = [row["name"] for row in results[0]["rows"]]
    assert names == [
        "Zero-shot, one pass", "GRPO, one pass", "GRPO, two-pass", "Agon, A alone", "Agon, B alone",
        "Agon, A then B", "Agon, B then A",
    ]  # fmt: skip
    for method in ("grpo", "adv"):
        assert results[0]["training"][method]["rollouts"] == 6 * 4 * 2 * 2  # steps x problems x 2K
    for name in ("table.md", "accuracy_length.png", "training.png", "adv/transcripts/step_000002.jsonl"):
        assert (tmp_path / "killed" / name).stat().st_size > 0
    assert list((tmp_path / "killed" / "adv" / "tensorboard").iterdir())

    # a third time there is nothing left to do, and a changed config is refused without a loss
    third = subprocess.run(command(tmp_path / "killed"), check=True, **options)
    assert "steps" in third.stdout and "resuming" not in third.stdout
    other = subprocess.run([*command(tmp_path / "killed"), "--config.seed=9"], **options)
    assert other.returncode == 2 and "seed" in other.stderr
    assert json.loads((tmp_path / "killed" / "results.json").read_text())["rows"] == results[0]["rows"]
