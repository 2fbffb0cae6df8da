"""Logs: what a resumed run repeats is written once, and the scalars reach the tools people watch."""

import json
import struct

import pytest

from agon_jax.logs import RunLog, read_metrics


def test_a_resumed_run_repeats_no_line_and_drops_a_torn_one(tmp_path):
    """Killed in step 3 after the checkpoint of step 2: lines of steps 0 and 1 stay, once each. The
    evaluation after step 2 belongs to the checkpoint and stays; appending alone would give [0, 1, 2, 2]."""
    log = RunLog(tmp_path, first_step=0, tensorboard=False)
    for step in range(3):
        log.metrics(step, {"reward": float(step)})
    log.evaluation(2, {"one pass": 0.5})
    log.evaluation(3, {"one pass": 0.6})
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')

    log = RunLog(tmp_path, first_step=2, tensorboard=False)
    log.metrics(2, {"reward": 7.0})
    log.close()
    assert [(row["step"], row["reward"]) for row in read_metrics(tmp_path / "metrics.jsonl")] == [
        (0, 0.0), (1, 1.0), (2, 7.0),
    ]  # fmt: skip
    evaluations = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in evaluations] == [2]


def test_tensorboard_holds_metrics_and_validation(tmp_path):
    """Read back from the file: records of (length, its checksum, bytes, their checksum)."""
    from tensorboardX.proto import event_pb2

    log = RunLog(tmp_path, first_step=0, tensorboard=True)
    log.metrics(4, {"reward": 1.5})
    log.evaluation(5, {"A then B": 0.25})
    log.close()
    (events,) = (tmp_path / "tensorboard").glob("events.*")
    found, data = {}, events.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        found |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
        data = data[16 + length :]
    # 4: resumed behind these 5 steps, the log purges what has step 5 or more, and evaluates no second time
    assert found == {"reward": (4, 1.5), "validation/A_then_B": (4, 0.25)}


def test_wandb_gets_the_same_scalars(tmp_path, monkeypatch):
    """The real library, offline, with two members of a population at once: each has a run of its own."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logs = [RunLog(tmp_path / "adv" / f"seed_{seed}", 0, tensorboard=False, wandb=True) for seed in (0, 1)]
    for seed, log in enumerate(logs):
        log.metrics(0, {"reward": 1.25 + seed})
        log.evaluation(1, {"one pass": 0.5})
    for log in logs:
        log.close()
    for seed in (0, 1):
        (run,) = (tmp_path / "adv" / f"seed_{seed}" / "wandb").glob("offline-run-*/*.wandb")
        written = run.read_bytes()
        assert b"validation/one pass" in written and b"reward" in written
        assert f"{1.25 + seed}".encode() in written and f"{2.25 - seed}".encode() not in written
