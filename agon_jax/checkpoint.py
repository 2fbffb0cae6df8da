"""Checkpoints: adapters, optimizer state and step, by orbax. Never the frozen base.

There is no other state: samples depend on (seed, step, problem, rollout) and the problems of a
step on (seed, step), so the step is the data position too.
"""

from __future__ import annotations

import pathlib

import jax
import orbax.checkpoint as ocp

from agon_jax.types import PyTree, TrainState


class Checkpoints:
    """The checkpoints of one run. A save is complete or invisible; its errors are raised."""

    def __init__(self, folder: pathlib.Path, keep: int = 2):
        # Synchronous: adapters are small, and a save that failed must not look like a success.
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, state: TrainState) -> None:
        """Save under the state's own step."""
        step = int(state.step)
        if not self._manager.save(step, args=ocp.args.StandardSave(_as_dict(state)), force=True):
            raise OSError(f"checkpoint of step {step} was not written to {self._manager.directory}")

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint."""
        return self._manager.latest_step()

    def restore(self, like: TrainState) -> TrainState | None:
        """The newest complete state, on the shardings of `like`; None when there is none."""
        step = self.latest_step()
        if step is None:
            return None
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, _as_dict(like))
        return TrainState(**self._manager.restore(step, args=ocp.args.StandardRestore(target)))

    def restore_adapters(self, like: TrainState) -> PyTree | None:
        """The adapters of the newest complete state, on one device; `like` holds shapes alone."""
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        place = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)
        step = self.latest_step()
        if step is None:
            return None
        target = jax.tree.map(place, _as_dict(like))
        return self._manager.restore(step, args=ocp.args.StandardRestore(target))["adapters"]

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()


def _as_dict(state: TrainState) -> dict:
    return {"adapters": state.adapters, "opt_state": state.opt_state, "step": state.step}
