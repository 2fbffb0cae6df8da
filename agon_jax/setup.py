"""From a config to the parts of a run: the second and last layer that sees the config object."""

from __future__ import annotations

import dataclasses
import importlib.resources
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from agon_jax import config as config_lib
from agon_jax import sharding, update
from agon_jax.actor import Actor, Sampling
from agon_jax.data import Splits, load_splits
from agon_jax.games.agon import Agon
from agon_jax.methods import METHODS
from agon_jax.models import peft
from agon_jax.models.convert import load, resolve
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import read_config
from agon_jax.models.lora import init_adapter, stack_adapters
from agon_jax.rewards import Weights
from agon_jax.tasks import make_task
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import Problem, PyTree, TrainState
from agon_jax.update import Objective


@dataclasses.dataclass(frozen=True)
class Learner:
    """What updates adapters. Made once: methods whose shapes agree share a compiled program."""

    model: Decoder  # the actor's, with rematerialised layers when asked for
    objective: Objective
    optimizer: Any  # an optax.GradientTransformation
    update: update.Update


@dataclasses.dataclass(frozen=True)
class Parts:
    """What all methods of a run share."""

    actor: Actor
    learner: Learner
    splits: Splits
    sampling: Sampling
    eval_sampling: Sampling
    steps: int


def base_folder(name: str) -> pathlib.Path:
    """Folder of a base: "tiny" is the bundled one, else a local folder or a hub id."""
    if name == "tiny":
        return pathlib.Path(str(importlib.resources.files("agon_jax") / "assets" / "tiny"))
    return resolve(name)


def make_parts(config: ConfigDict, devices: Sequence[jax.Device] | None = None) -> Parts:
    """Load base and problems on a mesh over `devices` (default: all). ValueErrors say what is
    wrong with which field."""
    mesh = sharding.make_mesh(config.mesh, devices)
    _check_rows(config, mesh)
    folder = base_folder(config.base)
    rows = read_config(folder).vocab_size  # first: a folder without a model has no tokenizer either
    tokenizer = Tokenizer(folder, embedding_rows=rows)
    task = make_task(
        config.task,
        prompts=config.prompts,
        workers=config.verify.workers,
        allow_unsandboxed=config.verify.allow_unsandboxed,
        detect=config.copy_world.detect,
    )
    model, base = load(
        str(folder),
        config.dtype,
        mesh,
        lora_scale=peft.lora_scale(config.lora.rank, config.lora.alpha, config.lora.rslora),
        num_ids=tokenizer.num_ids,
        rows=sharding.sharding_of(mesh)(("rows",)),
    )
    if config.init_adapters:  # they fit the base
        make_adapters(config, base, _policies(config))
    else:  # the targets exist
        jax.eval_shape(lambda: make_adapters(config, base, _policies(config)))
    cap = config.data.prompt_buckets[-1]

    def fits(problem: Problem) -> bool:
        # The longer of the two prompts: a challenger must find room for the longest attempt.
        messages = task.prompts.challenge_messages(problem.text, "")
        ids, _ = tokenizer.render(messages, think=config.thinking)
        return len(ids) + config.data.max_attempt_tokens <= cap

    data = config.data
    splits = load_splits(
        data.source,
        path=data.path,
        question_field=data.question_field,
        answer_field=data.answer_field,
        task=config.task,
        sizes=(data.train, data.validation, data.heldout),
        shares=tuple(data.shares),
        transfer=tuple(data.transfer),
        seed=config.seed,
        fits=fits,
        fault=task.fault,
    )
    steps = config.grpo.steps or -(-len(splits.train) // data.problems_per_step)
    sampling = config_lib.make(Sampling, config.sampling)
    return Parts(
        actor=Actor(
            model,
            base,
            tokenizer,
            task,
            mesh,
            thinking=config.thinking,
            prompt_buckets=tuple(data.prompt_buckets),
            max_attempt_tokens=data.max_attempt_tokens,
            rows_per_call=config.eval.rows_per_call,
        ),
        learner=make_learner(config, model, mesh, steps),
        splits=splits,
        sampling=sampling,
        eval_sampling=dataclasses.replace(
            sampling, temperature=config.eval.temperature, top_p=config.eval.top_p
        ),
        steps=steps,
    )


def make_learner(config: ConfigDict, model: Decoder, mesh: jax.sharding.Mesh, steps: int) -> Learner:
    """The update of any number of policies."""
    model, objective = model.clone(remat=config.grpo.remat), make_objective(config)
    optimizer = make_optimizer(config, steps)
    return Learner(model, objective, optimizer, update.make_update(model, optimizer, objective, mesh))


def seeds(config: ConfigDict) -> tuple[int, ...]:
    """Of the members that are trained: `seeds`, or `seed` alone."""
    return tuple(config.seeds) or (config.seed,)


def _games(config: ConfigDict) -> list[Agon]:
    """All games that the job trains."""
    if config.job != "matrix":
        return [make_game(config)]
    sources = {METHODS[key].trained_as or key for key in config.methods}
    return [make_game(config, key) for key in sorted(sources) if METHODS[key].game is not None]


def _policies(config: ConfigDict) -> int:
    """The most policies that a method of the job trains."""
    return max((game.policies for game in _games(config)), default=1)


def _check_rows(config: ConfigDict, mesh: jax.sharding.Mesh) -> None:
    """Every microbatch of every method must split evenly over the devices that hold rows."""
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    rollouts = config.data.problems_per_step * 2 * config.game.group_size
    for policies in sorted({game.policies for game in _games(config)}):
        rows = rollouts // policies // config.grpo.microbatches
        if rows % shards:
            raise ValueError(
                f"config.mesh={tuple(config.mesh)}: {shards} devices hold rows, but a microbatch has "
                f"{rows} rows (data.problems_per_step x 2 x game.group_size / policies / "
                "grpo.microbatches); make the one a multiple of the other"
            )


def make_game(config: ConfigDict, method: str | None = None) -> Agon:
    """The config's game, or the one that defines `method`."""
    fields = config_lib.game_fields(config, method)
    weights = Weights(**config.game.weights.to_dict() | fields.pop("weights"))
    return Agon(
        **fields,
        weights=weights,
        advantage_std=config.grpo.advantage_std,
        mask_truncated=config.grpo.mask_truncated,
    )


def make_objective(config: ConfigDict) -> Objective:
    """The objective; log-probs and the cap are those of the sampling that training does."""
    fields = config.grpo.to_dict() | config.sampling.to_dict()
    return config_lib.make(Objective, fields)


def make_population(config: ConfigDict, base: PyTree, policies: int, members: Sequence[int]) -> PyTree:
    """The adapters of every member, [S * P, ...]: member 0's policies first."""
    pairs = [make_adapters(config, base, policies, seed) for seed in members]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pairs)


def make_adapters(config: ConfigDict, base: PyTree, policies: int, seed: int | None = None) -> PyTree:
    """Stacked adapters [P, ...]: those of `init_adapters`, or fresh ones. Fresh, policy 0 starts with
    a little noise in B, policy 1 at the base: they start apart by that alone. A single policy starts
    as policy 0 does. `seed` is the config's own by default."""
    key = jax.random.key(config.seed if seed is None else seed, impl="threefry2x32")
    lora = config.lora
    targets, noise = tuple(lora.targets), (lora.noise, 0.0)
    fresh = lambda policy: init_adapter(
        jax.random.fold_in(key, policy), base, lora.rank, targets, noise[policy]
    )
    if not config.init_adapters:
        return stack_adapters([fresh(policy) for policy in range(policies)])
    folders = _adapter_folders(config.init_adapters, policies)
    like, how = jax.eval_shape(lambda: fresh(0)), dict(rank=lora.rank, alpha=lora.alpha, rslora=lora.rslora)
    return stack_adapters([peft.import_adapter(folder, like, **how) for folder in folders])


def _adapter_folders(init_adapters: str, policies: int) -> list[pathlib.Path]:
    """The PEFT folder of each policy."""
    parts = filter(None, map(str.strip, init_adapters.split(",")))
    folders = [pathlib.Path(part).expanduser() for part in parts]
    if len(folders) == 1 and not (folders[0] / peft.CONFIG).is_file():  # as `export` writes them
        folders = [folders[0] / f"policy_{letter}" for letter in "ab"]
    if len(folders) < policies:
        raise ValueError(f"config.init_adapters={init_adapters!r}: {policies} PEFT folders are needed")
    return folders[:policies]


def make_optimizer(config: ConfigDict, steps: int) -> Any:
    """The optimizer of one policy, for `steps` rounds of `inner_epochs` optimizer steps each."""
    grpo = config.grpo
    return update.make_optimizer(
        learning_rate=grpo.learning_rate,
        steps=steps * grpo.inner_epochs,
        warmup=grpo.warmup,
        weight_decay=grpo.weight_decay,
        max_grad_norm=grpo.max_grad_norm,
        schedule=grpo.schedule,
    )


def memory(base: PyTree, state: TrainState) -> str:
    """What base, adapters and optimizer take, for people."""
    size = lambda tree: sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    policies = jax.tree.leaves(state.adapters)[0].shape[0]
    whole, one = size(base), size(state.adapters) / policies
    return (
        f"Memory: base {whole / 1e6:,.1f} MB, {policies} adapter(s) of {one / 1e6:,.1f} MB "
        f"({one / whole:.1%} of the base each), optimizer {size(state.opt_state) / 1e6:,.1f} MB"
    )


def describe(splits: Splits) -> list[str]:
    """What was loaded and what was left out, for people."""
    lines = [
        f"Problems: {len(splits.train)} to train on, {len(splits.validation)} validation, "
        f"{len(splits.heldout)} held out."
    ]
    removed = {name: count for name, count in splits.counts.items() if count}
    if removed:
        lines.append("Rows left out: " + ", ".join(f"{count} {why}" for why, count in removed.items()) + ".")
    for row in splits.left_out[:3]:
        lines.append(f"  {row['where']}: {row['why']} (reference {row['reference']!r:.60})")
    if len(splits.left_out) > 3:
        lines.append("  more in data.json")
    return lines
