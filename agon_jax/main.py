"""Command line: `python -m agon_jax.main --config=configs/quickstart.py [--workdir=...]`.

The only module that reads flags. A user's mistake ends in one line on stderr and exit status 2.
"""

from __future__ import annotations

import os
import pathlib
import sys

from absl import flags
from ml_collections import config_flags
from rich.console import Console

from agon_jax.config import ConfigError, claim, validate

_USAGE = "usage: python -m agon_jax.main --config=configs/quickstart.py [--workdir=DIR] [--config.FIELD=VALUE ...]"


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        config, workdir = _read_flags(argv)
        validate(config)
        _prepare_cpu()
        return _run(config, workdir)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return 130


def _read_flags(argv: list[str]):
    """(config, workdir) of a command line; every mistake is a ConfigError naming it."""
    values = flags.FlagValues()
    # Known here so that an override of a field that no config has fails, not passes.
    config_flags.DEFINE_config_file("config", None, "config file", flag_values=values)
    flags.DEFINE_string("workdir", None, "where the run lives", flag_values=values)
    flags.DEFINE_bool("help", False, "show usage", short_name="h", flag_values=values)
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(_USAGE)
        print("Fields of the config are documented in configs/adv.py.")
        raise SystemExit(0)
    try:
        rest = values(argv)[1:]
    except FileNotFoundError as error:
        raise ConfigError(f"--config: no such file: {error.filename}; {_USAGE}") from None
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(_first_line(error)) from None
    except (ImportError, SyntaxError, NameError) as error:
        raise ConfigError(f"--config: the file cannot be loaded: {_first_line(error)}") from None
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}; {_USAGE}")
    if values.config is None:
        raise ConfigError(f"--config is missing; {_USAGE}")
    file = pathlib.Path(config_flags.get_config_filename(values["config"]))
    workdir = pathlib.Path(values.workdir or pathlib.Path("runs") / file.stem)
    return values.config, workdir


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def _prepare_cpu() -> None:
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
            f"{current} --xla_force_host_platform_device_count={devices} "
            "--xla_cpu_multi_thread_eigen=false"
        ).strip()


def _run(config, workdir: pathlib.Path) -> int:
    from agon_jax import setup
    from agon_jax.display import Display

    with Display(Console(highlight=False, soft_wrap=True)) as display:
        if config.job == "tiny_base":
            from agon_jax import tiny_base

            tiny_base.run(config, workdir, display.console)
            return 0
        claim(workdir, config)
        try:
            if config.job == "compare":
                from agon_jax.compare import compare

                compare(config, workdir, display)
            else:
                from agon_jax.train import train

                parts = setup.make_parts(config)
                train(config, parts, setup.make_game(config), workdir, display)
        except ValueError as error:
            raise ConfigError(_first_line(error)) from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
