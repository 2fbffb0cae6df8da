"""The job `matrix`: order of the work, resuming, what the report is made of."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from agon_jax import main as main_lib
from agon_jax import matrix
from agon_jax.config import default
from agon_jax.logs import read_metrics
from agon_jax.methods import METHODS

ROOT = pathlib.Path(__file__).parents[1]
SMALL = (
    "--config.data.train=40", "--config.data.validation=8", "--config.data.heldout=24",
    "--config.data.problems_per_step=4", "--config.game.group_size=2",
    "--config.grpo.steps=6", "--config.grpo.microbatches=1",
    "--config.log.checkpoint_every=2", "--config.log.transcripts_every=2",
    "--config.eval.rows_per_call=48", "--config.eval.every=3", "--config.eval.samples=2",
    "--config.eval.sampled_problems=8", "--config.log.tensorboard=True", "--config.seeds=(0,3)",
)  # fmt: skip
# All of them take minutes; three kinds of training by default: one policy, a pair with and without exchange.
KILLED = ("grpo", "adv", "shared_opponent")
if os.environ.get("AGON_KILL_ALL"):
    KILLED = tuple(key for key, method in METHODS.items() if method.game and key != "coop_floor")


def test_the_first_seeds_of_all_methods_come_before_more_seeds():
    config = default()
    config.methods, config.seeds = ("zero_shot", "grpo", "adv"), (0, 1, 2)
    config.matrix.more_methods, config.matrix.more_seeds = ("adv",), (7, 8)
    config.matrix.population = 2
    assert [(unit.key, unit.seeds) for unit in matrix.units(config)] == [
        ("zero_shot", (0, 1)), ("grpo", (0, 1)), ("adv", (0, 1)),
        ("zero_shot", (2,)), ("grpo", (2,)), ("adv", (2, 7)),
        ("adv", (8,)),
    ]  # fmt: skip
    assert matrix.seeds_of(config, "grpo_cascade") == (0, 1, 2)  # as grpo, whose checkpoints it uses
    config.seeds = ()
    assert matrix.seeds_of(config, "grpo") == (0,)  # the config's own seed


def command(workdir, *more, methods=None):
    methods = methods or ("zero_shot", "moa", *KILLED, *(("grpo_cascade",) if "grpo" in KILLED else ()))
    return [
        sys.executable, "-m", "agon_jax.main", "matrix", f"--config={ROOT}/configs/quickstart.py",
        f"--workdir={workdir}", f"--config.methods={methods}", *SMALL, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def options():
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    return dict(cwd=ROOT, env=environment)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, options):
    workdir = tmp_path_factory.mktemp("matrix") / "whole"
    done = subprocess.run(command(workdir), check=True, capture_output=True, text=True, **options)
    return workdir, done.stdout


def test_kill_minus_nine_in_every_method_and_the_same_results(tmp_path, whole, options):
    """Killed in the middle of each method's training, behind a checkpoint: results.json is the same, byte
    for byte."""
    workdir = tmp_path / "killed"
    for key in KILLED:
        metrics = workdir / key / "seed_3" / "metrics.jsonl"
        victim = subprocess.Popen(command(workdir), stdout=subprocess.DEVNULL, **options)
        deadline = time.monotonic() + 600
        while not (metrics.is_file() and len(read_metrics(metrics)) >= 3):
            assert victim.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        assert not (workdir / "results.json").exists()
    again = subprocess.run(command(workdir), check=True, capture_output=True, text=True, **options)
    assert "resuming at" in again.stdout
    assert (workdir / "results.json").read_text() == (whole[0] / "results.json").read_text()


def test_what_a_run_leaves_behind(whole, options):
    workdir, said = whole
    results = json.loads((workdir / "results.json").read_text())
    assert list(results["methods"]) == ["zero_shot", "moa", *KILLED, "grpo_cascade"]
    assert results["num_problems"] == 24 and results["seeds"] == [0, 3]
    for key, method in results["methods"].items():
        assert [member["seed"] for member in method["members"]] == [0, 3]
        for member in method["members"]:
            assert [row["name"] for row in member["rows"]] == list(METHODS[key].ways)
            assert sum(row["headline"] for row in member["rows"]) == 1
            best = next(row for row in member["rows"] if row["headline"])
            assert set(best["samples"]["pass_at"]) == {"1", "2"} and best["samples"]["problems"] == 8
    for key in KILLED:
        for member in results["methods"][key]["members"]:
            assert member["training"]["rollouts"] == 6 * 4 * 2 * 2  # steps x problems x 2K
            assert [point["step"] for point in member["evaluations"]] == [3, 6]
            assert len(member["curve"]) == 6
    # the two members are different runs, and the cascade starts from the one pass of the same adapters
    grpo, twice = (results["methods"][key]["members"] for key in ("grpo", "grpo_cascade"))
    assert grpo[0]["rows"][0]["outcomes"] == twice[0]["rows"][0]["outcomes"]
    assert grpo[0]["rows"][0]["outcomes"] != grpo[1]["rows"][0]["outcomes"]
    # where there is a choice it was made on validation: the best rate there, whatever held-out says
    for member in results["methods"]["adv"]["members"]:
        rates = {row["name"]: row["validation"] for row in member["rows"] if "validation" in row}
        chosen = next(row for row in member["rows"] if row["headline"])
        assert set(rates) == {"A then B", "B then A"} and rates[chosen["name"]] == max(rates.values())
    for name in ("table.md", "index.html", "verdicts.md", "adv/seed_3/transcripts/step_000002.jsonl"):
        assert (workdir / name).stat().st_size > 0
    assert list((workdir / "adv" / "seed_0" / "tensorboard").iterdir())
    units = len(results["methods"])
    assert f"{units} of {units} units done" in said


def test_a_third_time_nothing_is_left_to_do_and_another_config_is_refused(whole, options):
    workdir, _ = whole
    before = (workdir / "results.json").read_text()
    third = subprocess.run(command(workdir), check=True, capture_output=True, text=True, **options)
    assert "Evaluating" not in third.stdout and "resuming" not in third.stdout
    other = subprocess.run(command(workdir, "--config.seed=9"), capture_output=True, text=True, **options)
    assert other.returncode == 2 and "seed" in other.stderr
    assert (workdir / "results.json").read_text() == before


def test_a_finished_run_grows_by_seeds_without_losing_any(whole, tmp_path, options):
    """What to run may change, how it is run may not: else five seeds more would cost all over again."""
    workdir = tmp_path / "grown"
    shutil.copytree(whole[0], workdir)
    before = json.loads((workdir / "results.json").read_text())
    more = ("--config.matrix.more_methods=('zero_shot',)", "--config.matrix.more_seeds=(4,)")
    more = command(workdir, *more, methods=("zero_shot", "adv"))
    grown = subprocess.run(more, check=True, capture_output=True, text=True, **options)
    assert grown.stdout.count("Evaluating") == 1 and "resuming" not in grown.stdout
    assert (workdir / "zero_shot" / "timing_4.json").is_file()  # the two that were there were not run again
    after = json.loads((workdir / "results.json").read_text())["methods"]
    assert list(after) == ["zero_shot", "adv"]
    assert [member["seed"] for member in after["zero_shot"]["members"]] == [0, 3, 4]
    assert after["zero_shot"]["members"][:2] == before["methods"]["zero_shot"]["members"]
    assert after["adv"]["members"] == before["methods"]["adv"]["members"]


def test_report_of_an_unfinished_run_holds_what_is_there(whole, tmp_path, capsys):
    workdir = tmp_path / "half"
    shutil.copytree(whole[0], workdir)
    for path in workdir.glob("adv/seed_*/eval.json"):
        path.unlink()
    (workdir / "grpo" / "seed_3" / "eval.json").unlink()
    assert main_lib.main(["main", "report", f"--workdir={workdir}"]) == 0
    results = json.loads((workdir / "results.json").read_text())
    assert "adv" not in results["methods"]
    assert [member["seed"] for member in results["methods"]["grpo"]["members"]] == [0]
    assert "1 of 2 seeds" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("words, said", [
    ((), "--workdir is missing"),
    (("--workdir=nowhere",), "no run there"),
    (("--workdri=x",), "workdri"),
])  # fmt: skip
def test_mistakes_of_the_report_command(words, said, capsys):
    assert main_lib.main(["main", "report", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_run_without_a_finished_method(tmp_path, capsys):
    config = default()
    config.job = "matrix"
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert main_lib.main(["main", "report", f"--workdir={tmp_path}"]) == 2
    assert "no finished method there yet" in capsys.readouterr().err


def test_what_is_left_of_a_unit_keeps_populations_together(tmp_path):
    """Seeds 0 and 3 were trained together, 4 alone. Whoever answers with those adapters must not train
    (0, 3, 4) anew, and a member that lacks its result is finished with the others of its program."""
    for seeds in ("seeds_0_3", "seeds_4"):
        (tmp_path / "grpo" / "checkpoints" / seeds).mkdir(parents=True)
    left = lambda key, seeds: [unit.seeds for unit in matrix.Unit(key, seeds).programs(tmp_path)]
    assert left("grpo_cascade", (0, 3, 4, 7)) == [(0, 3), (4,), (7,)]  # not [(0, 3, 4, 7)]
    finish(tmp_path / "grpo" / "seed_0")
    assert left("grpo", (0, 3, 4, 7)) == [(0, 3), (4,), (7,)]  # (3,) alone would begin another program
    finish(tmp_path / "grpo" / "seed_3")
    assert left("grpo", (0, 3, 4, 7)) == [(4,), (7,)]
    finish(tmp_path / "zero_shot" / "seed_3")  # no checkpoints: whoever is missing
    assert left("zero_shot", (0, 3)) == [(0,)]
    assert left("zero_shot", (3,)) == []


def finish(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.json").write_text("{}")
