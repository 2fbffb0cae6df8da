"""Configs and the command line: a typo or a value that cannot work is an error that names it."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

from agon_jax import config as config_lib
from agon_jax import main as main_lib
from agon_jax import setup
from agon_jax.config import ConfigError, claim, default, validate
from agon_jax.update import SCHEDULES

ROOT = pathlib.Path(__file__).parents[1]
CONFIGS = sorted(p for p in (ROOT / "configs").glob("*.py") if p.stem != "pieces")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(config, prefix=""):
    for name, value in config.items():
        if hasattr(value, "items"):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def write_config(folder, body):
    path = folder / "some.py"
    header = "from agon_jax.config import default\n\ndef get_config():\n    c = default()\n"
    path.write_text(f"{header}    {body}\n    return c\n")
    return path


def run(capsys, *args):
    """(exit status, stderr) of a command line that must fail before anything is loaded."""
    status = main_lib.main(["main", *args])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_config_is_valid_and_opens_with_its_command(path):
    module = load(path)
    config = module.get_config()
    validate(config)
    assert config.is_locked
    assert f"--config=configs/{path.name}" in module.__doc__


def test_the_main_config_documents_every_field():
    text = (ROOT / "configs" / "adv.py").read_text()
    missing = [path for path in leaves(default()) if f"c.{path} = " not in text]
    own = ("tiny_base.", "copy_base.", "gym_base.")  # documented in the config files of these names
    missing = [path for path in missing if not path.startswith(own)]
    assert not missing


@pytest.mark.parametrize(
    "override, named",
    [
        ("--config.grpo.bta=0.1", "bta"),
        ("--config.gropo.kl_weight=0.1", "gropo"),
        ("--confg.seed=1", "confg"),
        ("--workdri=x", "workdri"),
        ("--config.lora.rnk=3", "rnk"),
        ("stray", "stray"),
    ],
)
def test_unknown_keys_and_flags_are_named(capsys, override, named):
    status, err = run(capsys, f"--config={ROOT}/configs/quickstart.py", override)
    assert status == 2 and named in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "body, named",
    [
        ("c.learning_rate = 1.0", "learning_rate"),  # belongs to grpo
        ("c.lora.update({'lora_ranl': 4})", "lora_ranl"),  # update() of a locked tree
        ("c.grpo.steps = 'many'", "steps"),
        ("c.unlock(); c.nonsense = 3", "nonsense"),  # got around the lock
        ("import no_such_module_here", "no_such_module_here"),
        ("undefined_name", "undefined_name"),
        ("(", "some.py"),
    ],
)
def test_faulty_config_files_are_named(capsys, tmp_path, body, named):
    status, err = run(capsys, f"--config={write_config(tmp_path, body)}")
    assert status == 2 and named in err and "Traceback" not in err


@pytest.mark.parametrize(
    "override, value",
    [
        ("--config.grpo.learning_rate=1", 1.0),
        ("--config.grpo.remat=false", False),
        ("--config.grpo.steps=7", 7),
    ],
)
def test_overrides_keep_the_type_of_the_field(override, value):
    config, _ = main_lib._read_flags(["main", f"--config={ROOT}/configs/quickstart.py", override])
    field = override.split("=")[0].removeprefix("--config.grpo.")
    assert config.grpo[field] == value and type(config.grpo[field]) is type(value)


@pytest.mark.parametrize(
    "override, named",
    [
        ("--config.grpo.steps=1e3", "steps"),
        ("--config.grpo.steps=200.0", "steps"),
        ("--config.grpo.remat=no", "remat"),
        ("--config.grpo.learning_rate=nan", "learning_rate"),
        ("--config.grpo.learning_rate=inf", "learning_rate"),
        ("--config.grpo.learning_rate=quick", "learning_rate"),
        ("--config.grpo.steps=-1", "steps"),
        ("--config.grpo.steps=0", "steps"),
        ("--config.game.group_size=1", "group_size"),
        ("--config.game.reward=aggressive", "reward"),
        ("--config.game.policies=3", "policies"),
        ("--config.game.weights.format=-1", "format"),
        ("--config.sampling.top_p=0", "top_p"),
        ("--config.sampling.top_p=1.5", "top_p"),
        ("--config.sampling.temperature=0", "temperature"),
        ("--config.grpo.microbatches=7", "microbatches"),
        ("--config.grpo.inner_epochs=0", "inner_epochs"),
        ("--config.grpo.importance_cap=-1.0", "importance_cap"),
        ("--config.grpo.importance_level=word", "importance_level"),
        ("--config.grpo.aggregation=mean", "aggregation"),
        ("--config.grpo.advantage_std=robust", "advantage_std"),
        ("--config.grpo.kl_estimator=k4", "kl_estimator"),
        ("--config.grpo.schedule=cosine", "schedule"),
        ("--config.sampling.max_new_tokens=4096", "completion_buckets"),
        ("--config.methods=('grpo','agn')", "agn"),
        ("--config.methods=('grpo','grpo')", "twice"),
        ("--config.job=dance", "job"),
        ("--config.data.source=csv", "source"),
        ("--config.dtype=float16", "dtype"),
    ],
)
def test_values_that_cannot_work_are_named(capsys, override, named):
    status, err = run(capsys, f"--config={ROOT}/configs/quickstart.py", override)
    assert status == 2 and named in err and err.count("\n") == 1


def test_the_schedules_of_the_config_are_those_of_the_update():
    assert set(config_lib._CHOICES["grpo.schedule"]) == set(SCHEDULES)


def test_the_objective_of_the_config_reaches_the_update_and_the_game():
    config = default()
    config.sampling.max_new_tokens = 99
    config.grpo.update(dict(aggregation="constant", kl_estimator="k2", importance_level="sequence"))
    config.grpo.update(dict(importance_cap=2.0, inner_epochs=3, advantage_std="none", mask_truncated=True))
    objective, game = setup.make_objective(config), setup.make_game(config, "adv")
    assert (objective.aggregation, objective.max_new_tokens) == ("constant", 99)
    assert (objective.kl_estimator, objective.importance_level) == ("k2", "sequence")
    assert (objective.importance_cap, objective.inner_epochs) == (2.0, 3)
    assert (game.advantage_std, game.mask_truncated) == ("none", True)


def test_missing_and_absent_config_files(capsys):
    assert "--config is missing" in run(capsys)[1]
    assert "nowhere.py" in run(capsys, "--config=nowhere.py")[1]


@pytest.mark.parametrize(
    "override, said",
    [
        ("--config.base=./no/such/folder", "no such folder"),
        ("--config.base=tests", "no config.json"),
        ("--config.data.source=jsonl", "data.path"),
        ("--config.data.path=missing.jsonl --config.data.source=jsonl", "missing.jsonl"),
        ("--config.mesh=(3,1,1)", "mesh"),
        ("--config.grpo.microbatches=64", "a microbatch has 4 rows"),
        ("--config.lora.targets=('nothing_proj',)", "nothing_proj"),
    ],
)
def test_faults_found_while_loading_are_one_line_too(capsys, tmp_path, override, said):
    status, err = run(
        capsys, f"--config={ROOT}/configs/quickstart.py", f"--workdir={tmp_path / 'run'}",
        "--config.methods=('grpo',)", "--config.data.heldout=2", "--config.data.validation=2",
        "--config.grpo.steps=1", *override.split(),
    )  # fmt: skip
    assert status == 2 and said in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()  # the corrected command may use the same folder


def test_an_empty_or_faulty_data_file_names_its_line(capsys, tmp_path):
    def attempt(text):
        (tmp_path / "d.jsonl").write_text(text)
        return run(
            capsys, f"--config={ROOT}/configs/quickstart.py", f"--workdir={tmp_path / 'run'}",
            "--config.data.source=jsonl", f"--config.data.path={tmp_path / 'd.jsonl'}",
        )  # fmt: skip

    assert "empty" in attempt("")[1]
    assert "d.jsonl:2" in attempt('{"problem": "1 2 = 3", "answer": "+"}\n{oops\n')[1]
    assert "no field 'answer'" in attempt('{"problem": "1 2 = 3", "anser": "+"}\n')[1]


def test_a_work_directory_of_another_config_is_refused(tmp_path):
    config = default()
    claim(tmp_path / "run", config)
    claim(tmp_path / "run", config)  # the same run goes on
    config.seeds, config.methods, config.matrix.more_seeds = (0, 1), ("adv", "coop"), (7,)
    claim(tmp_path / "run", config)  # so does a larger one
    config.gym_base.batch_size = 7
    claim(tmp_path / "run", config)  # a field of another job
    config.grpo.kl_weight = 0.5
    with pytest.raises(ConfigError, match=r"grpo\.kl_weight"):
        claim(tmp_path / "run", config)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not a run"):
        claim(tmp_path / "other", config)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "mine"
    (tmp_path / "run" / "config.json").write_text('{"torn')
    with pytest.raises(ConfigError, match="damaged"):
        claim(tmp_path / "run", config)


def test_the_stored_config_is_what_ran(tmp_path):
    claim(tmp_path, default())
    assert json.loads((tmp_path / "config.json").read_text())["lora"]["rank"] == 16


def test_importing_parses_no_flags_and_starts_no_backend():
    # a notebook's argv: absl would fail on -f, and flags read early would raise
    code = (
        "import sys; sys.argv = ['prog', '-f', 'kernel-1.json']\n"
        "import agon_jax, agon_jax.main, agon_jax.setup, agon_jax.matrix\n"
        "from agon_jax.config import default; assert default().seed == 0\n"
        "from jax._src import xla_bridge; assert not xla_bridge._backends"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_help_names_the_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main_lib.main(["main", "--help"])
    assert stop.value.code == 0 and "--config=" in capsys.readouterr().out


def test_a_run_of_a_program_without_some_field_resumes_where_that_field_has_its_default(tmp_path):
    config = default()
    claim(tmp_path, config)
    stored = json.loads((tmp_path / "config.json").read_text())
    del stored["grpo"]["importance_cap"], stored["matrix"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    claim(tmp_path, config)  # as before
    (tmp_path / "config.json").write_text(json.dumps(stored))
    config.grpo.importance_cap = 2.0
    with pytest.raises(ConfigError, match=r"it differs in grpo\.importance_cap"):
        claim(tmp_path, config)
