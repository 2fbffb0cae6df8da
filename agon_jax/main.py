"""Command line: `python -m agon_jax.main --config=configs/quickstart.py [--workdir=...]`, and
`python -m agon_jax.main export --workdir=... --out=...`.

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
    "usage: python -m agon_jax.main --config=configs/quickstart.py [--workdir=DIR] [--config.FIELD=VALUE ...]"
)
_EXPORT_USAGE = (
    "usage: python -m agon_jax.main export --workdir=DIR --out=DIR [--method=NAME] [--merged] "
    "[--multimodal_keys]"
)


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        if argv[1:2] == ["export"]:
            return _export(argv[:1] + argv[2:])
        config, workdir = _read_flags(argv)
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
    file, rest = _take_config(argv)
    config = load_config(file)
    for word in rest[1:]:
        if word.startswith("--config."):
            check_field(config, word.removeprefix("--config.").partition("=")[0])
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", f"runs/{file.stem}", "where the run lives", flag_values=values)
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=rest)
        unexpected = values(rest)[1:]
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(_one_line(error)) from None
    if unexpected:
        raise ConfigError(f"unexpected argument {unexpected[0]!r}; {_USAGE}")
    return values.config, pathlib.Path(values.workdir)


def _export(argv: list[str]) -> int:
    """The job `export`."""
    values = flags.FlagValues()
    for name, meaning in (
        ("workdir", "of the run"),
        ("out", "where the folders go"),
        ("method", "which method of a comparison"),
    ):
        flags.DEFINE_string(name, "", meaning, flag_values=values)
    flags.DEFINE_bool("merged", False, "write merged models too", flag_values=values)
    flags.DEFINE_bool("multimodal_keys", False, "keys of the multimodal class", flag_values=values)
    if any(word in ("--help", "-h", "-help") for word in argv):
        print(
            f"{_EXPORT_USAGE}\nWrites the run's adapters as PEFT folders, with --merged whole models "
            "too.\n--multimodal_keys names layers as the multimodal class does (Qwen3.5 in vLLM)."
        )
        return 0
    try:
        unexpected = values(argv)[1:]
    except flags.Error as error:
        raise ConfigError(f"{_one_line(error)}; {_EXPORT_USAGE}") from None
    if unexpected:
        raise ConfigError(f"unexpected argument {unexpected[0]!r}; {_EXPORT_USAGE}")
    for name in ("workdir", "out"):
        if not values[name].value:
            raise ConfigError(f"--{name} is missing; {_EXPORT_USAGE}")
    from agon_jax.export import export

    workdir, out = pathlib.Path(values.workdir), pathlib.Path(values.out)
    console = Console(highlight=False, soft_wrap=True)
    try:
        export(
            workdir,
            out,
            console,
            method=values.method,
            merged=values.merged,
            multimodal_keys=values.multimodal_keys,
        )
    except ValueError as error:
        raise ConfigError(_one_line(error)) from error
    return 0


def _take_config(argv: list[str]) -> tuple[pathlib.Path, list[str]]:
    """The file of --config, and the command line without it."""
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in ("--config", "-config"):
            rest = argv[:i] + argv[i + 1 :]
            if not equals and i < len(rest):
                value = rest.pop(i)
            if not value:
                break
            return pathlib.Path(value), rest
    raise ConfigError(f"--config is missing; {_USAGE}")


def load_config(file: pathlib.Path) -> ConfigDict:
    """What `get_config()` of a config file returns; its faults are ConfigErrors naming the file."""
    if not file.is_file():
        raise ConfigError(f"--config: no such file: {file}")
    spec = importlib.util.spec_from_file_location(f"_config_{file.stem}", file)
    if spec is None:
        raise ConfigError(f"--config: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.get_config()
    except Exception as error:  # any fault of the user's own code
        raise ConfigError(
            f"--config: {file} fails with {type(error).__name__}: {_one_line(error)}"
        ) from error


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
        check_workdir(workdir, config)
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
            if config.job == "compare":
                from agon_jax.compare import compare

                compare(config, parts, workdir, display)
            else:
                from agon_jax.train import train

                train(config, parts, setup.make_game(config), workdir, display)
        finally:
            parts.actor.task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
