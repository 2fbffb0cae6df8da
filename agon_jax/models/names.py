"""Our parameter paths <-> Hugging Face tensor names and layouts, the same for every family.

Our modules carry the reference's names, so a path is the tensor's name but for a few leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

Path = tuple[str, ...]

# Where the language model lies in a file: text-only, multimodal, multimodal before transformers 5,
# and a bare base model.
PREFIXES = ("model.", "model.language_model.", "language_model.model.", "")
_BARE = ("A_log", "dt_bias", "layer_scalar")  # leaves without ".weight"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a leaf is stored: its shape in the file, and the way there and back."""

    shape: tuple[int, ...]
    to_ours: Callable[[np.ndarray], np.ndarray]
    to_hf: Callable[[np.ndarray], np.ndarray]


def hf_module(path: Iterable[str]) -> str:
    """`("layers_3", "mlp", "up_proj")` -> `layers.3.mlp.up_proj`."""
    return ".".join(part.replace("layers_", "layers.") for part in path)


def our_path(module: str) -> Path:
    """The inverse of `hf_module`."""
    return tuple(module.replace("layers.", "layers_").split("."))


def hf_name(path: Path, prefix: str = "model.") -> str:
    """Tensor name of one of our leaves; `prefix` is one of PREFIXES."""
    if path == ("lm_head",):
        # Beside the language model, wherever that lies.
        return ("language_model." if prefix == "language_model.model." else "") + "lm_head.weight"
    *parents, leaf = path
    if leaf in _BARE:
        return prefix + hf_module(path)
    named = parents if leaf in ("kernel", "scale") else path
    return f"{prefix}{hf_module(named)}.weight"


def layout(path: Path, shape: tuple[int, ...]) -> Layout:
    """Layout of a leaf of our `shape`: a kernel [in, out] is stored [out, in], the taps of a
    depthwise convolution [K, C] as [C, 1, K]."""
    if path[-1] == "kernel":
        return Layout(shape[::-1], np.transpose, np.transpose)
    if path[-1] == "conv1d":
        return Layout((shape[1], 1, shape[0]), lambda x: x[:, 0].T, lambda x: x.T[:, None])
    same = lambda x: x
    return Layout(shape, same, same)
