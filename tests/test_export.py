"""The job `export` and its way back through `init_adapters`; runs are made without training."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from agon_jax import config as config_lib
from agon_jax import models, setup, sharding
from agon_jax.checkpoint import Checkpoints, checkpoint_folder
from agon_jax.main import main
from agon_jax.models.convert import param_shapes
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import read_config
from agon_jax.models.lora import leaves
from agon_jax.update import init_state

ROOT = pathlib.Path(__file__).parents[1]
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def run_config(**fields):
    config = config_lib.default()
    config.lora.rank, config.lora.alpha = 2, 6.0
    config.lora.targets = ("q_proj", "down_proj")
    config.log.tensorboard = False
    for name, value in fields.items():
        node = config
        *parents, leaf = name.split("__")
        for part in parents:
            node = node[part]
        node[leaf] = value
    return config


@pytest.fixture(scope="module")
def base():
    """Shapes of the bundled base."""
    return param_shapes(Decoder(read_config(setup.base_folder("tiny"))))


def save(run, config, base, policies, step=3, where=None, seeds=(0,)):
    """A checkpoint as a run of `config` would leave it; returns its adapters [S * P, ...]."""
    adapters = setup.make_adapters(config, base, policies)
    if len(seeds) > 1:
        adapters = setup.make_population(config, base, policies, seeds)
    state = init_state(adapters, setup.make_optimizer(config, steps=9))
    state = dataclasses.replace(state, step=jnp.int32(step))
    state = jax.device_put(state, where or jax.devices()[0])
    checkpoints = Checkpoints(checkpoint_folder(run, seeds))
    checkpoints.save(state, {"next_index": 0})
    checkpoints.close()
    return adapters


def write_config(workdir, config):
    config_lib.write_json(workdir / "config.json", config.to_dict())


@pytest.fixture(scope="module")
def trained(tmp_path_factory, base):
    """(workdir, config, adapters) of a run of the job train, of two policies, at step 3."""
    workdir, config = tmp_path_factory.mktemp("train"), run_config()
    write_config(workdir, config)
    return workdir, config, save(workdir, config, base, 2)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, base):
    """(workdir, {method: adapters}) of a comparison of a single policy and a pair."""
    workdir, config = (
        tmp_path_factory.mktemp("matrix"),
        run_config(job="matrix", methods=("grpo", "adv"), seed=5),
    )
    write_config(workdir, config)
    return workdir, {
        "grpo": save(workdir / "grpo", config, base, 1),
        "adv": save(workdir / "adv", run_config(seed=6), base, 2),
    }


def export(workdir, out, *more):
    return main(["agon", "export", f"--workdir={workdir}", f"--out={out}", *more])


def assert_holds(folder, adapters, policy):
    """The folder's matrices are the checkpoint's, transposed, bit for bit."""
    tensors = load_file(folder / WEIGHTS)
    for path, ab in leaves(adapters):
        key = f"base_model.model.model.layers.{path[0][7:]}.{'.'.join(path[1:])}"
        for matrix, name in (("a", "lora_A"), ("b", "lora_B")):
            value = tensors.pop(f"{key}.{name}.weight")
            np.testing.assert_array_equal(value, np.asarray(ab[matrix][policy]).T)
    assert not tensors


def test_both_policies_leave_as_the_checkpoint_has_them(trained, tmp_path, capsys):
    """A starts with noise of 1e-3 in its B, B at zero: exported the other way round, or twice the same,
    these would differ from the checkpoint. The step and the scale are said."""
    workdir, _, adapters = trained
    assert export(workdir, tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["policy_a", "policy_b"]
    for policy, letter in enumerate("ab"):
        assert_holds(tmp_path / "out" / f"policy_{letter}", adapters, policy)
    b = {letter: np.concatenate([
        x.ravel() for name, x in load_file(tmp_path / "out" / f"policy_{letter}" / WEIGHTS).items()
        if "lora_B" in name]) for letter in "ab"}  # fmt: skip
    np.testing.assert_allclose(np.std(b["a"]), 1e-3, rtol=0.1)
    assert not b["b"].any()
    config = json.loads((tmp_path / "out" / "policy_a" / CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (2, 6.0, False)
    assert config["target_modules"] == ["down_proj", "q_proj"]
    assert pathlib.Path(config["base_model_name_or_path"]) == setup.base_folder("tiny")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == ["adapter of step 3, rank 2, alpha 6"] * 2


def test_the_newest_checkpoint_is_exported(tmp_path, base):
    """Steps 9 and 10: sorted as text, 9 would be the last."""
    config = run_config()
    write_config(tmp_path, config)
    save(tmp_path, run_config(seed=1), base, 2, step=9)
    newest = save(tmp_path, run_config(seed=2), base, 2, step=10)
    assert export(tmp_path, tmp_path / "out") == 0
    assert_holds(tmp_path / "out" / "policy_a", newest, 0)


def test_method_of_a_comparison(compared, tmp_path):
    """A single policy gives one folder; the pair's B is not the single's."""
    workdir, adapters = compared
    assert export(workdir, tmp_path / "one", "--method=grpo") == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["policy_a"]
    assert_holds(tmp_path / "one" / "policy_a", adapters["grpo"], 0)
    assert export(workdir, tmp_path / "pair", "--method=adv") == 0
    for policy, letter in enumerate("ab"):
        assert_holds(tmp_path / "pair" / f"policy_{letter}", adapters["adv"], policy)


def test_a_comparison_that_trained_one_method_needs_no_name(tmp_path, base):
    config = run_config(job="matrix")
    write_config(tmp_path, config)
    adapters = save(tmp_path / "adv", config, base, 2)
    assert export(tmp_path, tmp_path / "out") == 0
    assert_holds(tmp_path / "out" / "policy_b", adapters, 1)


def test_one_member_of_a_population(tmp_path, base, capsys):
    """Members lie one after another, each with its policies: member 8 is the third, so its B is policy 5
    of the stack. Which one has to be said."""
    config = run_config(lora__noise=0.5)
    write_config(tmp_path, config)
    adapters = save(tmp_path, config, base, 2, seeds=(4, 6, 8))
    assert export(tmp_path, tmp_path / "out", "--seed=8") == 0
    assert_holds(tmp_path / "out" / "policy_a", adapters, 4)
    assert_holds(tmp_path / "out" / "policy_b", adapters, 5)
    capsys.readouterr()
    for seed, said in (("", "holds seeds 4, 6, 8; choose one by --seed="), ("5", "--seed=5: not trained in")):
        assert export(tmp_path, tmp_path / "other", f"--seed={seed}") == 2
        assert said in one_line(capsys)


def test_merged_models(trained, tmp_path, capsys):
    """Scale 6 / 2 = 3. policy_b's adapter is still zero, so its merged weights are the base's bits;
    policy_a's differ in the adapted layers alone. Everything a model folder needs is there."""
    workdir, _, _ = trained
    assert export(workdir, tmp_path / "out", "--merged") == 0
    assert "policy_b_merged: the base with the adapter merged" in capsys.readouterr().out
    folder = setup.base_folder("tiny")
    before = load_file(folder / "model.safetensors")
    after = {x: load_file(tmp_path / "out" / f"policy_{x}_merged" / "model.safetensors") for x in "ab"}
    factors = load_file(tmp_path / "out" / "policy_a" / WEIGHTS)
    changed = set()
    for name, value in before.items():
        assert after["b"][name].tobytes() == value.tobytes()
        assert after["a"][name].dtype == value.dtype
        if after["a"][name].tobytes() != value.tobytes():
            changed.add(name)
            key = f"base_model.model.{name.removesuffix('.weight')}"
            product = factors[f"{key}.lora_B.weight"] @ factors[f"{key}.lora_A.weight"]
            wanted = (value.astype(np.float32) + 3.0 * product).astype(value.dtype)
            assert np.mean(wanted == after["a"][name]) > 0.999  # ties aside
    adapted = (".self_attn.q_proj.weight", ".mlp.down_proj.weight")
    assert changed == {name for name in before if name.endswith(adapted)} and len(changed) == 8
    merged = tmp_path / "out" / "policy_a_merged"
    assert {path.name for path in merged.iterdir()} == {
        path.name for path in folder.iterdir() if path.suffix in (".json", ".jinja", ".safetensors")
    }
    assert models.load(merged)[0].config == read_config(folder)


def one_line(capsys):
    """What stderr got; a mistake is one line."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line


def test_mistakes_of_the_command_line(trained, tmp_path, capsys):
    """Each ends with status 2 and one line that names it, and writes nothing."""
    workdir, _, _ = trained
    out = tmp_path / "out"
    for argv, fragments in (
        ([f"--out={out}"], ["--workdir is missing", "usage:"]),
        ([f"--workdir={workdir}"], ["--out is missing", "usage:"]),
        ([f"--workdir={workdir}", f"--out={out}", "--merge_all"], ["merge_all", "usage:"]),
        ([f"--workdir={workdir}", f"--out={out}", "--merged=perhaps"], ["merged", "usage:"]),
        ([f"--workdir={workdir}", f"--out={out}", "policy_a"], ["'policy_a'", "usage:"]),
        ([f"--workdir={tmp_path / 'none'}", f"--out={out}"], [f"{tmp_path / 'none'}: no run there"]),
        ([f"--workdir={workdir}", f"--out={out}", "--method=adv"], ["--method=adv", "not a matrix"]),
    ):
        assert main(["agon", "export", *argv]) == 2, argv
        line = one_line(capsys)
        for fragment in fragments:
            assert fragment in line
    assert not out.exists()


def test_mistakes_about_methods(compared, tmp_path, capsys):
    """Taking the first of several without a word would export the wrong one half of the time."""
    workdir, _ = compared
    assert export(workdir, tmp_path / "out") == 2
    line = one_line(capsys)
    assert "holds grpo, adv" in line and "--method=" in line
    assert export(workdir, tmp_path / "out", "--method=agon") == 2
    line = one_line(capsys)
    assert "--method=agon: not trained in" in line and "grpo, adv" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", ["train", "matrix"])
def test_a_run_without_a_checkpoint(tmp_path, capsys, job):
    write_config(tmp_path, run_config(job=job))
    (tmp_path / "checkpoints").mkdir()
    assert export(tmp_path, tmp_path / "out") == 2
    assert "no checkpoint there yet" in one_line(capsys)


def test_keys_of_the_multimodal_class(trained, tmp_path):
    """For a server that loads the whole checkpoint: without the segment it would ignore the adapter."""
    assert export(trained[0], tmp_path / "out", "--multimodal_keys") == 0
    names = load_file(tmp_path / "out" / "policy_a" / "adapter_model.safetensors")
    start = "base_model.model.model.language_model.layers."
    assert names and all(name.startswith(start) for name in names)
    targets = json.loads((tmp_path / "out" / "policy_a" / "adapter_config.json").read_text())[
        "target_modules"
    ]
    assert "model.language_model.layers.0.self_attn.q_proj" in targets


@pytest.mark.parametrize("way, more", [("policy_b", []), ("policy_a_merged", ["--merged"])])
def test_a_folder_in_the_way(trained, tmp_path, capsys, way, more):
    """Nothing of it is touched and nothing is written beside it; without --merged the merged folder's
    name does not matter."""
    workdir, _, _ = trained
    (tmp_path / way).mkdir()
    (tmp_path / way / "mine").write_text("kept")
    assert export(workdir, tmp_path, *more) == 2
    assert f"{way} is there already" in one_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == [way]
    assert (tmp_path / way / "mine").read_text() == "kept"


@pytest.mark.parametrize(
    "text, fragment",
    [
        ("{", "is damaged"),
        ('{"lora": {"ranc": 4}}', "config.lora.ranc: no such field; did you mean config.lora.rank?"),
        ('{"lora": {"rank": "four"}}', "is damaged"),
        ("[1, 2]", "is damaged"),
    ],
)
def test_a_damaged_config_of_the_run(tmp_path, capsys, text, fragment):
    (tmp_path / "config.json").write_text(text)
    assert export(tmp_path, tmp_path / "out") == 2
    line = one_line(capsys)
    assert "config.json" in line and fragment in line


def test_a_base_that_is_gone(tmp_path, base, capsys):
    config = run_config(base=str(tmp_path / "moved"))
    write_config(tmp_path, config)
    save(tmp_path, config, base, 2)
    assert export(tmp_path, tmp_path / "out") == 2
    assert "moved': no such folder" in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_a_file_where_the_folders_should_go(trained, tmp_path, capsys):
    (tmp_path / "out").write_text("kept")
    assert export(trained[0], tmp_path / "out") == 2
    assert f"--out={tmp_path / 'out'}" in one_line(capsys)
    assert (tmp_path / "out").read_text() == "kept"


def test_help(capsys):
    assert main(["agon", "export", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: python -m agon_jax.main export --workdir=DIR")


def test_eight_devices_train_and_one_exports(tmp_path, base):
    """A checkpoint replicated over eight devices, exported by a process that has one, by its command
    line. Rebuilding the saved sharding would fail: the devices are not there."""
    if jax.device_count() != 8:
        pytest.skip("needs eight devices")
    config = run_config()
    write_config(tmp_path, config)
    where = sharding.replicated(sharding.make_mesh((2, 4, 1)))
    adapters = save(tmp_path, config, base, 2, where=where)
    words = ["export", "--workdir", str(tmp_path), "--out", str(tmp_path / "out")]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "agon_jax.main", *words],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for policy, letter in enumerate("ab"):
        assert_holds(tmp_path / "out" / f"policy_{letter}", adapters, policy)


# --- and back -----------------------------------------------------------------------------------


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported")
    assert export(trained[0], out) == 0
    return out


def make(base, policies, init_adapters, **fields):
    return setup.make_adapters(run_config(init_adapters=str(init_adapters), seed=7, **fields), base, policies)


def test_exported_adapters_start_a_run(trained, exported, base):
    """Another seed, so fresh ones would differ in every A. By the folder of the export, by both
    folders, swapped; a single policy takes policy_a, or the folder that is named."""
    _, _, adapters = trained
    one = lambda policy: jax.tree.map(lambda x: x[policy : policy + 1], adapters)
    a, b = exported / "policy_a", exported / "policy_b"
    assert_equal(make(base, 2, exported), adapters)
    assert_equal(make(base, 2, f"{a},{b}"), adapters)
    assert_equal(make(base, 2, f"{b}, {a}"), jax.tree.map(lambda x: x[::-1], adapters))
    assert_equal(make(base, 1, exported), one(0))
    assert_equal(make(base, 1, b), one(1))
    with pytest.raises(AssertionError):
        assert_equal(make(base, 2, ""), adapters)


def test_a_run_that_started_from_adapters_is_exported(trained, exported, base, tmp_path):
    """When its start has been deleted since: shapes alone are needed."""
    _, _, adapters = trained
    config = run_config(init_adapters=str(exported), seed=7)
    save(tmp_path, config, base, 2)
    config.init_adapters = str(tmp_path / "deleted")
    write_config(tmp_path, config)
    assert export(tmp_path, tmp_path / "out") == 0
    assert_holds(tmp_path / "out" / "policy_a", adapters, 0)


def test_adapters_that_do_not_fit_the_run(exported, base, tmp_path):
    """Each names the folder and what to do."""
    a = exported / "policy_a"
    for init_adapters, fields, fragments in (
        (tmp_path / "none", {}, [str(tmp_path / "none" / "policy_a"), "not a PEFT folder"]),
        (f"{a},{tmp_path / 'none'}", {}, [str(tmp_path / "none"), "not a PEFT folder"]),
        (a, {}, ["config.init_adapters=", "2 PEFT folders are needed"]),
        (exported, {"lora__rank": 4}, [str(a / CONFIG), "r=2", "--config.lora.rank=2"]),
        (exported, {"lora__alpha": 2.0}, [str(a / CONFIG), "lora_alpha=6.0", "--config.lora.alpha=6.0"]),
        (exported, {"lora__targets": ("q_proj",)}, [str(a / WEIGHTS), "has one for layers_0/mlp/down_proj"]),
        (exported, {"lora__targets": (".*",)}, [str(a / WEIGHTS), "no adapter for layers_0/mlp/gate_proj"]),
    ):  # fmt: skip
        with pytest.raises(ValueError) as error:
            make(base, 2, init_adapters, **fields)
        for fragment in fragments:
            assert fragment in str(error.value)
