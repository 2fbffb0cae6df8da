"""A Hugging Face folder with an adapter merged into its weights, file by file."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable

import numpy as np
from safetensors.numpy import save_file

from agon_jax.models.lora import leaves
from agon_jax.models.names import PREFIXES, hf_module
from agon_jax.models.tensors import Tensors
from agon_jax.types import PyTree


def merge_folder(
    base: pathlib.Path, out: pathlib.Path, adapter: PyTree, scale: float, progress: Callable[[str], None]
) -> None:
    """Copy the folder `base` to `out` with W + scale * (A B)^T in place of W.

    Every file keeps its name, every tensor its dtype; what the adapter does not touch (embeddings,
    norms, other modalities) is copied as it is. The sum is taken in float32 and rounded once. One
    file is in memory at a time.

    Args:
      progress: called with the name of every file that was written.

    Raises:
      ValueError: the folder is damaged, or lacks a layer of the adapter.
    """
    tensors = Tensors(base)
    names = tensors.names()
    prefix = next(p for p in PREFIXES if f"{p}embed_tokens.weight" in names)
    adapted = {f"{prefix}{hf_module(path)}.weight": ab for path, ab in leaves(adapter)}
    files: dict[str, list[str]] = {name: [] for name in map(tensors.file_of, adapted)}
    for name in sorted(names):
        files.setdefault(tensors.file_of(name), []).append(name)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(base.iterdir()):  # config, tokenizer, template, index
        if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model"):
            shutil.copyfile(path, out / path.name)
    for file, members in sorted(files.items()):
        merged = {}
        for name in members:
            value = tensors.raw(name)
            if name in adapted:
                a, b = (np.asarray(adapted[name][m], np.float32) for m in ("a", "b"))
                value = (value.astype(np.float32) + scale * (a @ b).T).astype(value.dtype)
            merged[name] = value
        save_file(merged, str(out / file), metadata={"format": "pt"})
        progress(file)
    tensors.close()
