"""Hugging Face folders in and out: safetensors <-> our params, tensor by tensor."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from agon_jax.models.config import ModelConfig, read_config
from agon_jax.models.decoder import Decoder
from agon_jax.sharding import sharding_of
from agon_jax.types import PyTree

Path = tuple[str, ...]
ShardingOf = Callable[[tuple[str | None, ...]], Any]


def resolve(path_or_hub_id: str) -> pathlib.Path:
    """A local folder, or the local snapshot of a hub repository (downloaded when needed).

    Raises:
      ValueError: neither a folder here nor a repository that could be fetched.
    """
    folder = pathlib.Path(path_or_hub_id)
    if folder.is_dir():
        return folder
    looks_local = path_or_hub_id.startswith((".", "/", "~")) or path_or_hub_id.count("/") != 1
    if looks_local:
        raise ValueError(f"base {path_or_hub_id!r}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        # Never pickled weights, never remote code: only these files are asked for.
        patterns = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
        return pathlib.Path(snapshot_download(path_or_hub_id, allow_patterns=patterns))
    except Exception as error:  # the hub client raises a dozen unrelated types
        raise ValueError(
            f"base {path_or_hub_id!r}: not a folder here, and the Hugging Face hub gave no copy of it "
            f"({type(error).__name__}). Check the name and the connection, log in with "
            "`hf auth login` if it is gated, or give a local folder"
        ) from error


def load(
    path_or_hub_id: str,
    dtype: Any = jnp.bfloat16,
    mesh: jax.sharding.Mesh | None = None,
    *,
    rules: ShardingOf | None = None,
    **module_options: Any,
) -> tuple[Decoder, PyTree]:
    """A decoder and its params from a Hugging Face folder or hub id.

    Args:
      path_or_hub_id: local folder, or `owner/name`.
      dtype: of weights and activations.
      mesh: shard the weights over it by the rules of `sharding.py`; default one device.
      rules: logical axes -> sharding, in place of `mesh`.
      **module_options: `lora_scale`, `num_ids`, `remat`, `rows` of the Decoder.

    Returns:
      (module, params): `module.apply({"params": params}, tokens[B, T])` gives float32 logits.
    """
    folder = resolve(path_or_hub_id)
    config = read_config(folder)
    dtype = jnp.dtype(dtype)  # also from its name
    module = Decoder(config, dtype=dtype, **module_options)
    if module.num_ids is not None and module.num_ids > config.vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has ids up to {module.num_ids - 1}, but config.json gives the "
            f"embedding vocab_size={config.vocab_size} rows"
        )
    rules = rules or (sharding_of(mesh) if mesh is not None else None)
    tensors = _Tensors(folder)
    params: PyTree = {}
    for path, (shape, axes) in param_specs(module).items():
        name, transposed = hf_name(path)
        value = tensors.read(name, shape[::-1] if transposed else shape)
        value = np.ascontiguousarray(value.T if transposed else value).astype(dtype)
        node = params
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = jax.device_put(value, rules(axes) if rules else None)
    tensors.check_all_used(tied=config.tie_word_embeddings)
    return module, params


def param_specs(module: Decoder) -> dict[Path, tuple[tuple[int, ...], tuple[str | None, ...]]]:
    """Path -> (shape, logical axes) of every parameter, without allocating any."""
    boxed = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    specs = {}
    is_box = lambda node: isinstance(node, nn.LogicallyPartitioned)
    for path, box in jax.tree_util.tree_leaves_with_path(boxed, is_leaf=is_box):
        specs[tuple(entry.key for entry in path)] = (box.value.shape, tuple(box.names))
    return specs


def hf_name(path: Path) -> tuple[str, bool]:
    """Our path -> (Hugging Face tensor name, whether it is stored transposed)."""
    if path == ("lm_head",):
        return "lm_head.weight", False
    *parents, leaf = path
    parts = [part.replace("layers_", "layers.") for part in parents]
    if leaf == "embed_tokens":
        parts.append(leaf)
    return ".".join(["model", *parts, "weight"]), leaf == "kernel"


def save_hf(folder: pathlib.Path, module: Decoder, params: PyTree, dtype: Any) -> None:
    """Write `model.safetensors` with Hugging Face names and layouts (config.json is the caller's)."""
    tensors = {}
    for path in param_specs(module):
        value = params
        for part in path:
            value = value[part]
        name, transposed = hf_name(path)
        value = np.asarray(value, dtype)
        tensors[name] = np.ascontiguousarray(value.T if transposed else value)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})


class _Tensors:
    """The safetensors of a folder, one file or a sharded index; every fault names file and tensor."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._files: dict[str, Any] = {}
        self._used: set[str] = set()
        self._where = dict(self._index())

    def _index(self) -> Iterator[tuple[str, str]]:
        index, single = self._folder / "model.safetensors.index.json", "model.safetensors"
        if index.is_file():
            try:
                weight_map = json.loads(index.read_text())["weight_map"]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(f"{index} is damaged: no weight_map in it ({error!r})") from None
            yield from weight_map.items()
        elif (self._folder / single).is_file():
            for name in self._open(single).keys():  # noqa: SIM118 (not a dict)
                yield name, single
        else:
            pickled = sorted(p.name for p in self._folder.glob("*.bin"))
            hint = f"; {pickled[0]} is a pickle and pickles are never loaded" if pickled else ""
            raise ValueError(f"{self._folder} has no model.safetensors{hint}")

    def _open(self, file: str) -> Any:
        if file not in self._files:
            path = self._folder / file
            if not path.is_file():
                raise ValueError(f"{path} is missing, but the index names it")
            try:
                self._files[file] = safe_open(str(path), framework="np")
            except SafetensorError as error:
                raise ValueError(f"{path} is damaged or cut short: {error}") from None
        return self._files[file]

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """One tensor, its stored shape asserted."""
        file = self._where.get(name)
        if file is None:
            raise ValueError(f"{self._folder}: tensor {name} is missing")
        handle = self._open(file)
        try:
            stored = tuple(handle.get_slice(name).get_shape())
        except SafetensorError:
            raise ValueError(f"{self._folder / file}: tensor {name} is missing") from None
        if stored != shape:
            raise ValueError(
                f"{self._folder / file}: tensor {name} has shape {list(stored)}, "
                f"config.json asks for {list(shape)}"
            )
        self._used.add(name)
        return handle.get_tensor(name)

    def check_all_used(self, tied: bool) -> None:
        """Every stored tensor must have been read (a tied head may be stored twice)."""
        unused = set(self._where) - self._used - ({"lm_head.weight"} if tied else set())
        if unused:
            raise ValueError(f"{self._folder}: tensor {sorted(unused)[0]} has no place in the model")


def tiny_config(**sizes: Any) -> ModelConfig:
    """A ModelConfig for tests and benchmarks; `sizes` override a two-layer toy."""
    toy = dict(
        vocab_size=64,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=48,
        rope_theta=1e4,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    )
    return ModelConfig(**(toy | sizes))
