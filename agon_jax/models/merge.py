"""A Hugging Face folder with an adapter merged into its weights, file by file."""

from __future__ import annotations

import pathlib
import shutil

import numpy as np
from safetensors.numpy import save_file

from agon_jax.models.lora import leaves
from agon_jax.models.names import hf_module
from agon_jax.models.tensors import Tensors
from agon_jax.types import Progress, PyTree


def merge_folder(
    base: pathlib.Path, out: pathlib.Path, adapter: PyTree, scale: float, progress: Progress
) -> None:
    """Copy the folder `base` to `out` with W + scale * (A B)^T in place of W.

    Every file keeps its name, every tensor its dtype; what the adapter does not touch (embeddings,
    norms, other modalities) is copied as it is. The sum is taken in float32 and rounded once. One
    file is in memory at a time, and none that the adapter does not touch.

    Args:
      progress: called with the files written so far and their number.

    Raises:
      ValueError: the folder is damaged, or lacks a layer of the adapter.
    """
    tensors = Tensors(base)
    tensors.check_files()
    prefix = tensors.prefix()
    adapted = {f"{prefix}{hf_module(path)}.weight": ab for path, ab in leaves(adapter)}
    for name, ab in adapted.items():  # its shape, and that it is no quantized tensor
        tensors.check(name, (ab["b"].shape[-1], ab["a"].shape[0]))
    files: dict[str, list[str]] = {name: [] for name in map(tensors.file_of, adapted)}
    for name in sorted(tensors.names()):
        files.setdefault(tensors.file_of(name), []).append(name)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(base.iterdir()):  # config, tokenizer, template, index
        if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model"):
            shutil.copyfile(path, out / path.name)
    for done, (file, members) in enumerate(sorted(files.items()), start=1):
        if adapted.keys() & set(members):
            merged = {name: _merged(tensors.raw(name), adapted.get(name), scale) for name in members}
            save_file(merged, str(out / file), metadata={"format": "pt"})
        else:
            shutil.copyfile(base / file, out / file)
        progress(done, len(files))
    tensors.close()


def _merged(value: np.ndarray, ab: PyTree | None, scale: float) -> np.ndarray:
    """W + scale * (A B)^T, W [out, in]."""
    if ab is None:
        return value
    a, b = (np.asarray(ab[matrix], np.float32) for matrix in ("a", "b"))
    return (value.astype(np.float32) + scale * (a @ b).T).astype(value.dtype)
