"""The mesh, and the one table from logical to mesh axes.

Mesh axes: `data` (rows; weights replicated), `fsdp` (rows; weights split), `tensor` (heads and
widths split). A pod uses the same table: only the mesh shape changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")

RULES: dict[str, str | tuple[str, ...] | None] = {
    "rows": ("data", "fsdp"),  # rollouts and training rows
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "norm": None,
    "policy": None,  # the pair stays together: its base is shared
}


def make_mesh(shape: Sequence[int] | None = None, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A (data, fsdp, tensor) mesh.

    Args:
      shape: sizes of the three axes; one of them may be -1 (what is left). Default: all devices
        on fsdp.
      devices: default all.

    Raises:
      ValueError: the sizes do not multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = list(shape or (1, -1, 1))
    if len(sizes) != len(AXES) or sizes.count(-1) > 1 or any(s < 1 and s != -1 for s in sizes):
        raise ValueError(f"mesh {tuple(sizes)}: want three positive sizes for {AXES}, at most one -1")
    if -1 in sizes:
        known = int(np.prod([s for s in sizes if s != -1]))
        sizes[sizes.index(-1)] = max(len(devices) // known, 1)
    if int(np.prod(sizes)) != len(devices):
        raise ValueError(f"mesh {tuple(sizes)} needs {int(np.prod(sizes))} devices, {len(devices)} are here")
    return Mesh(np.asarray(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def spec(axes: Sequence[str | None]) -> PartitionSpec:
    """Logical axes -> PartitionSpec by RULES; None stays unsharded."""
    return PartitionSpec(*(None if axis is None else RULES[axis] for axis in axes))


def sharding_of(mesh: Mesh) -> Callable[[Sequence[str | None]], NamedSharding]:
    """Logical axes -> NamedSharding on `mesh`."""
    return lambda axes: NamedSharding(mesh, spec(axes))


def fitted(sharding: NamedSharding, shape: Sequence[int]) -> NamedSharding:
    """The sharding without the mesh axes that do not divide `shape`: one kv head is on every device."""
    sizes = sharding.mesh.shape

    def keep(names: Any, size: int) -> Any:
        parts = 1 if names is None else math.prod(sizes[n] for n in np.atleast_1d(names))
        return names if size % parts == 0 else None

    padded = (*sharding.spec, *[None] * (len(shape) - len(sharding.spec)))
    return NamedSharding(sharding.mesh, PartitionSpec(*map(keep, padded, shape)))


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds the whole. Adapters and their optimizer state do: they are a few per cent of the
    base, and a split rank would put a collective into every projection."""
    return NamedSharding(mesh, PartitionSpec())
