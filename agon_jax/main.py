"""Command line: `python -m agon_jax.main [matrix] --config=configs/quickstart.py [--workdir=...]`, and,
on a finished run, `python -m agon_jax.main report --workdir=...` and `… export --workdir=... --out=...`.

The only module that reads flags. A user's mistake ends in one line on stderr and exit status 2.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pathlib
import sys

from absl import flags
from ml_collections import ConfigDict, config_flags
from rich.console import Console

from agon_jax.config import ConfigError, check_field, check_workdir, claim, validate, write_json

_USAGE = (
    "usage: python -m agon_jax.main [matrix] --config=configs/quickstart.py [--workdir=DIR] "
    "[--config.FIELD=VALUE ...]"
)
_EXPORT_USAGE = (
    "usage: python -m agon_jax.main export --workdir=DIR --out=DIR [--method=NAME] [--seed=N] [--merged] "
    "[--multimodal_keys]"
)
_JOBS = ("matrix", "report", "export")
_REPORT_USAGE = "usage: python -m agon_jax.main report --workdir=DIR"


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        job, rest = (argv[1], argv[:1] + argv[2:]) if argv[1:2] and argv[1] in _JOBS else ("", argv)
        if job in ("export", "report"):
            return (_export if job == "export" else _report)(rest)
        config, workdir = _read_flags(rest)
        if job:
            config.job = job
        validate(config)
        prepare_cpu()
        return _run(config, workdir)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return 130


def _read_flags(argv: list[str]) -> tuple[ConfigDict, pathlib.Path]:
    """(config, workdir) of a command line; every mistake is a ConfigError naming it."""
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(_USAGE)
        print("Fields of the config are documented in configs/adv.py.")
        raise SystemExit(0)
    value, rest = _take_config(argv)
    config, (file, pieces) = load_config(value), _split(value)
    for word in rest[1:]:
        if word.startswith("--config."):
            check_field(config, word.removeprefix("--config.").partition("=")[0])
    values = flags.FlagValues()
    folder = "_".join(filter(None, [file.stem, *pieces.split(",")]))
    flags.DEFINE_string("workdir", f"runs/{folder}", "where the run lives", flag_values=values)
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=rest)
        unexpected = values(rest)[1:]
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(_one_line(error)) from None
    if unexpected:
        raise ConfigError(f"unexpected argument {unexpected[0]!r}; {_USAGE}")
    return values.config, pathlib.Path(values.workdir)


def _job_flags(argv: list[str], usage: str, about: str, texts: dict[str, str], switches: dict[str, str]):
    """Flag values of a job that works on a finished run, or None when help was asked for; every mistake
    is a ConfigError."""
    values = flags.FlagValues()
    for name, meaning in texts.items():
        flags.DEFINE_string(name, "", meaning, flag_values=values)
    for name, meaning in switches.items():
        flags.DEFINE_bool(name, False, meaning, flag_values=values)
    if {"--help", "-h", "-help"} & set(argv):
        print(f"{usage}\n{about}")
        return None
    try:
        unexpected = values(argv)[1:]
    except flags.Error as error:
        raise ConfigError(f"{_one_line(error)}; {usage}") from None
    if unexpected:
        raise ConfigError(f"unexpected argument {unexpected[0]!r}; {usage}")
    if not values["workdir"].value:
        raise ConfigError(f"--workdir is missing; {usage}")
    return values


def _report(argv: list[str]) -> int:
    """The job `report`."""
    values = _job_flags(
        argv, _REPORT_USAGE, "Writes results.json, tables, plots and index.html of what is finished.",
        {"workdir": "of a run of the job matrix"}, {},
    )  # fmt: skip
    if values is None:
        return 0
    from agon_jax.display import Display
    from agon_jax.matrix import write_report

    workdir = pathlib.Path(values.workdir)
    with Display(Console(highlight=False, soft_wrap=True)) as display:
        try:
            write_report(workdir, display)
        except ValueError as error:
            raise ConfigError(_one_line(error)) from error
        display.say(f"Open {workdir / 'index.html'}")
    return 0


def _export(argv: list[str]) -> int:
    """The job `export`."""
    about = (
        "Writes the run's adapters as PEFT folders, with --merged whole models too.\n"
        "--multimodal_keys names layers as the multimodal class does (Qwen3.5 in vLLM)."
    )
    texts = {
        "workdir": "of the run", "out": "where the folders go", "method": "which method of a matrix",
        "seed": "which member of a population",
    }  # fmt: skip
    switches = {"merged": "write merged models too", "multimodal_keys": "keys of the multimodal class"}
    values = _job_flags(argv, _EXPORT_USAGE, about, texts, switches)
    if values is None:
        return 0
    if not values.out:
        raise ConfigError(f"--out is missing; {_EXPORT_USAGE}")
    if values.seed and not values.seed.isdecimal():
        raise ConfigError(f"--seed={values.seed}: is not a whole number; {_EXPORT_USAGE}")
    from agon_jax.export import export

    try:
        export(
            pathlib.Path(values.workdir),
            pathlib.Path(values.out),
            Console(highlight=False, soft_wrap=True),
            method=values.method,
            seed=int(values.seed) if values.seed else None,
            merged=values.merged,
            multimodal_keys=values.multimodal_keys,
        )
    except ValueError as error:
        raise ConfigError(_one_line(error)) from error
    return 0


def _take_config(argv: list[str]) -> tuple[str, list[str]]:
    """The value of --config, and the command line without it."""
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in ("--config", "-config"):
            rest = argv[:i] + argv[i + 1 :]
            if not equals and i < len(rest):
                value = rest.pop(i)
            if not value:
                break
            return value, rest
    raise ConfigError(f"--config is missing; {_USAGE}")


def load_config(value: str | pathlib.Path) -> ConfigDict:
    """What `get_config()` of a config file returns, or `get_config("pieces")` of `file.py:pieces`; its
    faults are ConfigErrors naming the file."""
    file, pieces = _split(str(value))
    if not file.is_file():
        raise ConfigError(f"--config: no such file: {file}")
    spec = importlib.util.spec_from_file_location(f"_config_{file.stem}", file)
    if spec is None:
        raise ConfigError(f"--config: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.get_config(pieces) if pieces else module.get_config()
    except Exception as error:  # any fault of the user's own code
        raise ConfigError(
            f"--config: {file} fails with {type(error).__name__}: {_one_line(error)}"
        ) from error


def _split(value: str) -> tuple[pathlib.Path, str]:
    """`configs/adv.py:tiny` -> the file and its pieces."""
    name, suffix, pieces = value.partition(".py:")
    return pathlib.Path(name + ".py" if suffix else value), pieces


def _one_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def prepare_cpu() -> None:
    """On a CPU each core becomes a device of the mesh, single-threaded.

    Decoding a small model is many tiny matmuls; splitting rows over cores is about twice as fast
    as splitting every matmul. Has no effect on other platforms, nor when XLA_FLAGS says otherwise.
    """
    if os.environ.get("JAX_PLATFORMS", "cpu").split(",")[0] != "cpu":
        return
    current = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in current:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        devices = max(d for d in (1, 2, 4, 8) if d <= (cores or 1))
        os.environ["XLA_FLAGS"] = (
            f"{current} --xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
        ).strip()


def _run(config, workdir: pathlib.Path) -> int:
    from agon_jax import setup
    from agon_jax.display import Display

    with Display(Console(highlight=False, soft_wrap=True)) as display:
        if config.job == "tiny_base":
            from agon_jax import tiny_base

            tiny_base.run(config, workdir, display.console)
            return 0
        if config.job == "copy_base":
            from agon_jax import copy_base

            copy_base.run(config, workdir, display.console)
            return 0
        if config.job == "gym_base":
            from agon_jax import gym_base

            try:
                gym_base.run(config, workdir, display.console)
            except ValueError as error:
                raise ConfigError(_one_line(error)) from error
            return 0
        check_workdir(workdir, config)
        if config.job == "phase":
            from agon_jax import phase

            claim(workdir, config)
            phase.run(config, workdir, display)
            return 0
        try:
            parts = setup.make_parts(config)
        except ValueError as error:
            raise ConfigError(_one_line(error)) from error
        actor = dataclasses.replace(parts.actor, progress=display.judging)
        parts = dataclasses.replace(parts, actor=actor)
        claim(workdir, config)
        write_json(workdir / "data.json", parts.splits.summary())
        for line in setup.describe(parts.splits):
            display.say(line)
        try:
            if config.job == "matrix":
                from agon_jax import matrix

                matrix.run(config, parts, workdir, display)
            else:
                from agon_jax.train import train

                train(config, parts, setup.make_game(config), setup.seeds(config), workdir, display)
        finally:
            parts.actor.task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
