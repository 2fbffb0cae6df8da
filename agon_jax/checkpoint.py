"""Checkpoints: adapters, optimizer state and step, by orbax. Never the frozen base.

With them the position in the stream of problems. There is no other state: samples depend on
(seed, step, problem, rollout).
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import jax
import orbax.checkpoint as ocp

from agon_jax.types import PyTree, TrainState


def checkpoint_folder(folder: pathlib.Path, seeds: Sequence[int]) -> pathlib.Path:
    """Where the checkpoints of a population are, under the folder of its method: all members in one."""
    return folder / "checkpoints" / ("seeds_" + "_".join(map(str, seeds)))


def populations(folder: pathlib.Path) -> dict[tuple[int, ...], pathlib.Path]:
    """The populations that were begun under the folder of a method: their seeds -> their checkpoints."""
    found = sorted((folder / "checkpoints").glob("seeds_*"))
    return {tuple(map(int, path.name.removeprefix("seeds_").split("_"))): path for path in found}


class Checkpoints:
    """The checkpoints of one run. A save is complete or invisible; its errors are raised."""

    def __init__(self, folder: pathlib.Path, keep: int = 2):
        # Synchronous: adapters are small, and a save that failed must not look like a success.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, state: TrainState, position: dict) -> None:
        """Save under the state's own step, with the position (JSON) in the stream of problems."""
        step = int(state.step)
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(_as_dict(state)), position=ocp.args.JsonSave(position)
        )
        if not self._manager.save(step, args=args, force=True):
            raise OSError(f"checkpoint of step {step} was not written to {self._manager.directory}")

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint."""
        return self._manager.latest_step()

    def restore(self, like: TrainState) -> tuple[TrainState, dict] | None:
        """The newest complete (state, position), on the shardings of `like`; None without one."""
        step = self.latest_step()
        if step is None:
            return None
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, _as_dict(like))
        args = ocp.args.Composite(state=ocp.args.StandardRestore(target), position=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=args)
        return TrainState(**restored.state), restored.position

    def restore_adapters(self, like: TrainState) -> PyTree | None:
        """The adapters of the newest complete state, on one device; `like` holds shapes alone."""
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        place = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)
        step = self.latest_step()
        if step is None:
            return None
        target = jax.tree.map(place, _as_dict(like))
        args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
        return self._manager.restore(step, args=args).state["adapters"]

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()


def _as_dict(state: TrainState) -> dict:
    return {"adapters": state.adapters, "opt_state": state.opt_state, "step": state.step}
