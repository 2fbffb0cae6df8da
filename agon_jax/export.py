"""The job `export`: the adapters of a run as PEFT folders and, on request, merged models."""

from __future__ import annotations

import pathlib
import shutil

import jax
from ml_collections import ConfigDict
from rich.console import Console
from rich.progress import Progress

from agon_jax import config as config_lib
from agon_jax import setup
from agon_jax.checkpoint import Checkpoints, populations
from agon_jax.config import ConfigError
from agon_jax.games.agon import Agon
from agon_jax.models import peft
from agon_jax.models.convert import param_shapes
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import from_hf, read_raw
from agon_jax.models.lora import projections
from agon_jax.models.merge import merge_folder
from agon_jax.types import PyTree
from agon_jax.update import init_state


def export(
    workdir: pathlib.Path,
    out: pathlib.Path,
    console: Console,
    *,
    method: str = "",
    seed: int | None = None,
    merged: bool = False,
    multimodal_keys: bool = False,
) -> None:
    """Write `policy_a/` and `policy_b/` of a run's newest checkpoint.

    Args:
      workdir: of a run of the jobs train or matrix.
      out: where the folders go; none of them may exist.
      method: which of a matrix's methods; not needed when it trained one.
      seed: which member; not needed when there is one.
      multimodal_keys: name layers as the multimodal class does, for servers that load that one where
        transformers' AutoModelForCausalLM takes the text model (Qwen3.5).
      merged: write whole models (`policy_a_merged/`) too, in the base's own files and dtypes.

    Raises:
      ConfigError: no run, no checkpoint or no such method there; a folder is in the way.
      ValueError: the base is damaged.
    """
    config = config_lib.stored(workdir)
    run, game = _find(config, workdir, method)
    folder, members, member = _member(run, seed)
    names = [f"policy_{letter}" for letter in "ab"[: game.policies]]
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out={out}: is not a folder")
    for name in names + [f"{name}_merged" for name in names if merged]:
        if (out / name).exists():
            raise ConfigError(f"--out={out}: {name} is there already; use another folder or delete it")
    base = setup.base_folder(config.base)
    raw = read_raw(base)
    shapes = param_shapes(Decoder(from_hf(raw, str(base / "config.json"))))
    fresh = config.copy_and_resolve_references()
    with fresh.unlocked():
        fresh.init_adapters = ""  # shapes alone are needed
    optimizer = setup.make_optimizer(config, steps=1)
    like = jax.eval_shape(
        lambda: init_state(setup.make_population(fresh, shapes, game.policies, members), optimizer)
    )
    checkpoints = Checkpoints(folder)
    step, stacked = checkpoints.latest_step(), checkpoints.restore_adapters(like)
    checkpoints.close()
    if stacked is None:
        raise ConfigError(f"--workdir={workdir}: no complete checkpoint there")

    lora, modules = config.lora, list(projections(shapes))
    for policy, name in enumerate(names):
        index = member * game.policies + policy
        adapter = jax.tree.map(lambda leaf, index=index: leaf[index], stacked)
        peft.export_adapter(
            out / name,
            adapter,
            modules,
            alpha=lora.alpha,
            rslora=lora.rslora,
            base=str(base) if base.is_dir() and config.base == "tiny" else config.base,
            prefix=peft.MULTIMODAL_PREFIX if multimodal_keys else peft.key_prefix(raw["model_type"]),
        )
        console.print(f"{out / name}: adapter of step {step}, rank {lora.rank}, alpha {lora.alpha:g}")
        if merged:
            _merge(base, out / f"{name}_merged", adapter, config, console)


def _find(config: ConfigDict, workdir: pathlib.Path, method: str) -> tuple[pathlib.Path, Agon]:
    """(folder that holds the checkpoints, the game) of the method to export."""
    if config.job != "matrix":
        if method:
            raise ConfigError(f"--method={method}: the run in {workdir} is not a matrix of methods")
        found = {"": workdir} if _trained(workdir) else {}
    else:
        found = {name: workdir / name for name in config.methods if _trained(workdir / name)}
    if not found:
        raise ConfigError(f"--workdir={workdir}: no checkpoint there yet")
    if not method and len(found) > 1:
        raise ConfigError(f"--workdir={workdir}: holds {', '.join(found)}; choose one by --method=")
    method = method or next(iter(found))
    if method not in found:
        raise ConfigError(f"--method={method}: not trained in {workdir} (there: {', '.join(found)})")
    return found[method], setup.make_game(config, method or None)


def _member(run: pathlib.Path, seed: int | None) -> tuple[pathlib.Path, tuple[int, ...], int]:
    """(folder of the checkpoints, seeds of the members they hold, place of `seed` among them)."""
    complete = {seeds: folder for seeds, folder in populations(run).items() if _complete(folder)}
    found = {own: seeds for seeds in complete for own in seeds}
    there = ", ".join(map(str, sorted(found)))
    if seed is None and len(found) > 1:
        raise ConfigError(f"{run}: holds seeds {there}; choose one by --seed=")
    seed = next(iter(found)) if seed is None else seed
    if seed not in found:
        raise ConfigError(f"--seed={seed}: not trained in {run} (there: {there})")
    members = found[seed]
    return complete[members], members, members.index(seed)


def _complete(folder: pathlib.Path) -> bool:
    return folder.is_dir() and any(child.name.isdigit() and child.is_dir() for child in folder.iterdir())


def _trained(run: pathlib.Path) -> bool:
    return any(map(_complete, populations(run).values()))


def _merge(base: pathlib.Path, out: pathlib.Path, adapter: PyTree, config: ConfigDict, console: Console):
    lora, part = config.lora, out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # of an attempt that was cut
    scale = peft.lora_scale(lora.rank, lora.alpha, lora.rslora)
    with Progress(*Progress.get_default_columns(), console=console) as progress:
        bar = progress.add_task(out.name, total=None)

        def written(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        merge_folder(base, part, adapter, scale, written)
    part.rename(out)
    console.print(f"{out}: the base with the adapter merged")
