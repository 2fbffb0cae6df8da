"""The configuration tree: every field with its type and default, and what makes a value valid.

What each field means is documented where users look: in `configs/adv.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import json
import math
import pathlib
from typing import Any

from ml_collections import ConfigDict, config_dict

from agon_jax.grpo import ADVANTAGE_VARIANCES, AGGREGATIONS, IMPORTANCE_LEVELS, KL_ESTIMATORS
from agon_jax.methods import METHODS
from agon_jax.rewards import REWARDS
from agon_jax.sources import SOURCES
from agon_jax.tasks import PROMPTS, TASKS

JOBS = ("train", "matrix", "phase", "tiny_base", "copy_base", "gym_base")


class ConfigError(ValueError):
    """A value that cannot work; the message names the field."""


def default() -> ConfigDict:
    """The locked tree of all fields: a config file that sets an unknown one fails by name."""
    config = ConfigDict(
        dict(
            job="train",
            seed=0,
            seeds=(),
            base="tiny",
            dtype="float32",
            mesh=(-1, 1, 1),
            task="operators",
            prompts="task",
            copy_world=dict(detect=0.0),
            verify=dict(workers=2, allow_unsandboxed=False),
            methods=("grpo", "adv"),
            thinking=True,
            init_adapters="",
            lora=dict(rank=16, alpha=32.0, rslora=False, targets=(".*",), noise=1e-3),
            game=dict(
                policies=2,
                group_size=8,
                challenge=True,
                exchange=True,
                opponent="paired",
                rotate=True,
                learn_drafts=True,
                reward="adv",
                weights=dict(
                    correct=2.0, format=0.5, conversion=1.0, length=0.5, solving=1.0, copy_ceiling=0.8
                ),
            ),
            data=dict(
                source="operators",
                path="",
                question_field="problem",
                answer_field="answer",
                shares=(0.8, 0.1, 0.1),
                transfer=(),
                train=3000,
                validation=300,
                heldout=300,
                problems_per_step=8,
                prompt_buckets=(512, 1024, 2048),
                max_attempt_tokens=1024,
            ),
            sampling=dict(temperature=1.0, top_p=1.0, max_new_tokens=16384),
            grpo=dict(
                steps=config_dict.placeholder(int),
                learning_rate=5e-5,
                warmup=0.1,
                schedule="linear",
                weight_decay=0.0,
                max_grad_norm=1.0,
                inner_epochs=1,
                advantage_std="population",
                mask_truncated=False,
                clip_low=0.2,
                clip_high=0.2,
                importance_level="token",
                importance_cap=0.0,
                kl_weight=0.001,
                kl_estimator="k3",
                aggregation="sequence",
                completion_buckets=(1024, 2048, 4096, 8192, 16384),
                refills=0,
                microbatches=1,
                chunk=256,
                remat=True,
            ),
            eval=dict(
                temperature=0.6, top_p=0.95, rows_per_call=256, every=0, samples=1, sampled_problems=128
            ),
            matrix=dict(title="", population=5, more_methods=(), more_seeds=()),
            log=dict(checkpoint_every=10, transcripts_every=10, tensorboard=True, wandb=False),
            tiny_base=dict(
                phases=("mixed", "skill", "noise"),
                steps=(1200, 2000, 150),
                learning_rates=(4e-3, 3e-3, 1e-3),
                batch_size=64,
                challenger_share=0.4,
                short_share=0.25,
            ),
            copy_base=dict(
                points=("below", "lower", "inside", "upper", "above"),
                solve_hard=(0.585, 0.48, 0.43, 0.36, 0.28),
                draft_hard=0.165,
                draft_slip=0.9,
                solve_slip=0.5,
                copy=0.45,
                challenger_share=0.6,
                steps=1000,
                learning_rate=5e-3,
                batch_size=64,
            ),
            gym_base=dict(
                phases=("read", "skill", "noise"),
                steps=(1500, 600, 80),
                learning_rates=(5e-3, 3e-3, 1e-3),
                batch_size=32,
                challenger_share=0.5,
            ),
        )
    )
    return config.lock()


def validate(config: ConfigDict) -> None:
    """Raise ConfigError on the first value that cannot work."""
    if not isinstance(config, ConfigDict):
        raise ConfigError("get_config() must return the ConfigDict of agon_jax.config.default()")
    known = default()
    for path, value in _leaves(config):
        check_field(known, path)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"config.{path}={value}: must be finite")
    for path, choices in _CHOICES.items():
        if _get(config, path) not in choices:
            raise ConfigError(f"config.{path}={_get(config, path)!r}: use one of {', '.join(choices)}")
    for path in _POSITIVE:
        values = _get(config, path)
        for value in values if isinstance(values, tuple) else (values,):
            if value is not None and value <= 0:
                raise ConfigError(f"config.{path}={values}: must be positive")
    for path in _NOT_NEGATIVE:
        if _get(config, path) < 0:
            raise ConfigError(f"config.{path}={_get(config, path)}: must not be negative")
    for path in ("sampling.top_p", "eval.top_p"):
        if not 0 < _get(config, path) <= 1:
            raise ConfigError(f"config.{path}={_get(config, path)}: must lie in (0, 1]")
    _validate_relations(config)


def _validate_relations(config: ConfigDict) -> None:
    game, data, grpo = config.game, config.data, config.grpo
    if game.group_size < 2:
        raise ConfigError(
            f"config.game.group_size={game.group_size}: a group of one has no advantage; use K >= 2"
        )
    if game.policies not in (1, 2):
        raise ConfigError(f"config.game.policies={game.policies}: use 1 or 2")
    if game.policies == 2 and not game.challenge:
        raise ConfigError("config.game.challenge=False: two policies need the challenge stream")
    for path in ("methods", "matrix.more_methods"):
        for method in _get(config, path):
            if method not in METHODS:
                raise ConfigError(f"config.{path}: unknown method {method!r}; use {', '.join(METHODS)}")
    if config.job == "matrix" and not config.methods:
        raise ConfigError("config.methods=(): name at least one method")
    if len(set(config.methods)) < len(config.methods):  # a flag given twice appends
        raise ConfigError(f"config.methods={config.methods}: names a method twice (is the flag given twice?)")
    everyone = (*config.seeds, *config.matrix.more_seeds)
    for seed in everyone:
        if not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"config.seeds: {seed!r} is not a whole number from 0")
    if len(set(everyone)) < len(everyone):
        raise ConfigError(f"config.seeds and config.matrix.more_seeds repeat a seed: {everyone}")
    if config.log.wandb and importlib.util.find_spec("wandb") is None:
        raise ConfigError("config.log.wandb=True: wandb is not installed; run: pip install wandb")
    for path in ("data.prompt_buckets", "grpo.completion_buckets"):
        buckets = _get(config, path)
        if not buckets or list(buckets) != sorted(set(buckets)):
            raise ConfigError(f"config.{path}={buckets}: want ascending sizes")
    if grpo.completion_buckets[-1] < config.sampling.max_new_tokens:
        raise ConfigError(
            f"config.grpo.completion_buckets={grpo.completion_buckets}: the last one must hold "
            f"sampling.max_new_tokens={config.sampling.max_new_tokens}"
        )
    if abs(sum(data.shares) - 1) > 1e-6 or len(data.shares) != 3:
        raise ConfigError(
            f"config.data.shares={data.shares}: want three shares (train, validation, heldout) of 1"
        )
    for name in data.transfer:
        if name.partition("=")[0] not in ("jsonl", *SOURCES):
            raise ConfigError(f"config.data.transfer: unknown source {name!r}; use {', '.join(SOURCES)}")
    rows = data.problems_per_step * 2 * game.group_size // game.policies
    if rows % grpo.microbatches:
        raise ConfigError(
            f"config.grpo.microbatches={grpo.microbatches}: does not divide the {rows} rows of a policy"
        )
    if config.sampling.temperature == 0:
        raise ConfigError("config.sampling.temperature=0: a greedy group has no variance to learn from")


_CHOICES = {
    "job": JOBS,
    "dtype": ("float32", "bfloat16"),
    "task": TASKS,
    "prompts": PROMPTS,
    "data.source": ("operators", "copy_world", "jsonl", "reasoning_gym", *SOURCES),
    "game.reward": tuple(REWARDS),
    "game.opponent": ("paired", "shared"),
    "grpo.aggregation": tuple(AGGREGATIONS),
    "grpo.advantage_std": tuple(ADVANTAGE_VARIANCES),
    "grpo.importance_level": tuple(IMPORTANCE_LEVELS),
    "grpo.kl_estimator": tuple(KL_ESTIMATORS),
    "grpo.schedule": ("linear", "constant"),
}
_POSITIVE = (
    "lora.rank", "lora.alpha", "data.train", "data.validation", "data.heldout",
    "data.problems_per_step", "data.prompt_buckets", "data.max_attempt_tokens",
    "sampling.max_new_tokens", "grpo.steps", "grpo.learning_rate", "grpo.max_grad_norm",
    "grpo.inner_epochs", "grpo.clip_low", "grpo.clip_high", "grpo.completion_buckets",
    "grpo.microbatches", "grpo.chunk", "verify.workers", "data.shares",
    "eval.rows_per_call", "eval.samples", "eval.sampled_problems", "matrix.population",
    "log.checkpoint_every", "log.transcripts_every",
    "tiny_base.steps", "tiny_base.learning_rates", "tiny_base.batch_size",
    "copy_base.steps", "copy_base.learning_rate", "copy_base.batch_size",
    "gym_base.steps", "gym_base.learning_rates", "gym_base.batch_size",
)  # fmt: skip
_NOT_NEGATIVE = (
    "seed", "lora.noise", "game.weights.correct", "game.weights.format", "game.weights.conversion",
    "game.weights.length", "game.weights.solving", "game.weights.copy_ceiling", "grpo.refills",
    "eval.every", "sampling.temperature", "eval.temperature", "grpo.warmup",
    "grpo.weight_decay", "grpo.importance_cap", "grpo.kl_weight",
)  # fmt: skip


def check_field(config: ConfigDict, path: str) -> None:
    """Raise ConfigError, with the nearest name there is, unless `path` (`grpo.steps`) is a field."""
    known = [name for name, _ in _leaves(config)]
    if path not in known:
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
        hint = f"; did you mean config.{near[0]}?" if near else ""
        raise ConfigError(f"config.{path}: no such field{hint}")


def game_fields(config: ConfigDict, method: str | None = None) -> dict[str, Any]:
    """Fields of the game, those that define `method` in place of the config's own; of `weights` those
    alone in which it differs from the config."""
    fields = config.game.to_dict() | {"weights": {}}
    return fields | dict(METHODS[method].game or {} if method else {})


# What to run, not how: a run may be continued with more methods or seeds than it began with.
_MAY_GROW = frozenset({"methods", "seeds", "matrix.more_methods", "matrix.more_seeds", "matrix.title"})

_USED_BY = {"copy_base": ("copy_base", "phase"), "gym_base": ("gym_base",)}  # fields of certain jobs


def check_workdir(workdir: pathlib.Path, config: ConfigDict) -> None:
    """The work directory must be new, or hold a run of the same config; which methods and seeds are
    run may differ.

    Raises:
      ConfigError: the directory holds a run with another config; the message names the fields.
    """
    path = workdir / "config.json"
    if path.is_file():
        try:
            before = ConfigDict(json.loads(path.read_text()))
        except (json.JSONDecodeError, TypeError, ValueError):
            raise ConfigError(
                f"--workdir={workdir}: its config.json is damaged; use another folder"
            ) from None
        matter = lambda name: config.job in _USED_BY.get(name.partition(".")[0], (config.job,))
        differing = sorted(filter(matter, _differences(before, config) - _MAY_GROW))
        if differing:
            raise ConfigError(
                f"--workdir={workdir} holds a run with another config (it differs in "
                f"{', '.join(differing[:5])}); use another --workdir or delete it"
            )
    elif workdir.is_file() or (workdir.is_dir() and any(workdir.iterdir())):
        raise ConfigError(f"--workdir={workdir}: exists and is not a run of this program; use another one")


def stored(workdir: pathlib.Path) -> ConfigDict:
    """The config of the run in a work directory.

    Raises:
      ConfigError: there is none, or it is damaged or of another version.
    """
    path = workdir / "config.json"
    if not path.is_file():
        raise ConfigError(f"--workdir={workdir}: no run there (no config.json)")
    config = default()
    try:
        for name, value in _leaves(ConfigDict(json.loads(path.read_text()))):
            check_field(config, name)
            *parents, leaf = name.split(".")
            node = _get(config, ".".join(parents)) if parents else config
            node[leaf] = tuple(value) if isinstance(value, list) else value
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged or of another version: {error}") from None
    return config


def claim(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Check the work directory and write the config there. Called once everything is loaded: a
    command line that failed earlier leaves nothing behind."""
    check_workdir(workdir, config)
    write_json(workdir / "config.json", config.to_dict())


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never a torn one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    temporary.replace(path)


def make(cls: type, fields: Any) -> Any:
    """A dataclass of its fields in a config node."""
    return cls(**{f.name: fields[f.name] for f in dataclasses.fields(cls) if f.name in fields})


def _get(config: ConfigDict, path: str) -> Any:
    node = config
    for name in path.split("."):
        node = node[name]
    return node


def _leaves(config: ConfigDict, prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in config.items():
        path = f"{prefix}{name}"
        found += _leaves(value, path + ".") if isinstance(value, ConfigDict) else [(path, value)]
    return found


def _differences(first: ConfigDict, second: ConfigDict) -> set[str]:
    """Paths of the fields that differ. A field that one does not have, since its program had no such
    field yet, has its default there."""
    plain = lambda config: json.loads(json.dumps(dict(_leaves(config))))
    usual = plain(default())
    one, other = usual | plain(first), usual | plain(second)
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
