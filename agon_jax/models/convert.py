"""Hugging Face folders in and out: safetensors <-> our params, tensor by tensor."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from agon_jax.models.config import Layer, ModelConfig
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import read_config
from agon_jax.models.lora import insert
from agon_jax.models.names import Path, hf_name, layout
from agon_jax.models.tensors import Tensors
from agon_jax.sharding import fitted, sharding_of
from agon_jax.types import PyTree

ShardingOf = Callable[[tuple[str | None, ...]], Any]

# Kept in float32 whatever the model's dtype: exponents, and a few dozen numbers a layer.
_FLOAT32_LEAVES = ("A_log", "dt_bias")
# Knowingly not loaded: other modalities, multi-token prediction, buffers that follow from the config.
_SKIPPED = re.compile(
    r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|audio_tower|embed_vision|embed_audio)\."
    r"|^mtp\.|\.rotary_emb\.inv_freq$"
)
_OWN_KV = re.compile(r"layers\.(\d+)\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.weight$")


def resolve(path_or_hub_id: str) -> pathlib.Path:
    """A local folder, or the local snapshot of a hub repository (downloaded when needed).

    Raises:
      ValueError: neither a folder here nor a repository that could be fetched.
    """
    folder = pathlib.Path(path_or_hub_id).expanduser()
    if folder.is_dir():
        return folder
    name = str(path_or_hub_id)
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ValueError(f"base {name!r}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        # Never pickled weights, never remote code: only these files are asked for.
        patterns = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]
        return pathlib.Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the hub client raises a dozen unrelated types
        raise ValueError(
            f"base {name!r}: not a folder here, and the Hugging Face hub gave no copy of it "
            f"({type(error).__name__}). Check the name and the connection, log in with "
            "`hf auth login` if it is gated, or give a local folder"
        ) from error


def load(
    path_or_hub_id: str | pathlib.Path,
    dtype: Any = jnp.bfloat16,
    mesh: jax.sharding.Mesh | None = None,
    *,
    rules: ShardingOf | None = None,
    **module_options: Any,
) -> tuple[Decoder, PyTree]:
    """A decoder and its params from a Hugging Face folder or hub id.

    Tensors go one by one from the file to where they belong; every process of a multi-host mesh
    reads only the parts that its own devices hold.

    Args:
      path_or_hub_id: local folder, or `owner/name`.
      dtype: of weights and activations.
      mesh: shard the weights over it by the rules of `sharding.py`; default one device.
      rules: logical axes -> sharding, in place of `mesh`.
      **module_options: `lora_scale`, `num_ids`, `remat`, `rows` of the Decoder.

    Returns:
      (module, params): `module.apply({"params": params}, tokens[B, T])` gives float32 logits.

    Raises:
      ValueError: the folder is not a model of a supported family, or it is damaged; the message
        names file and tensor or field.
    """
    folder = resolve(str(path_or_hub_id))
    config = read_config(folder)
    dtype = jnp.dtype(dtype)  # also from its name
    if dtype not in (jnp.float32, jnp.bfloat16, jnp.float16):
        raise ValueError(f"dtype {dtype}: use float32, bfloat16 or float16")
    module = Decoder(config, dtype=dtype, **module_options)
    if module.num_ids is not None and module.num_ids > config.vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has ids up to {module.num_ids - 1}, but config.json gives the "
            f"embedding vocab_size={config.vocab_size} rows"
        )
    rules = rules or (sharding_of(mesh) if mesh is not None else None)
    tensors = Tensors(folder)
    prefix = tensors.prefix()
    specs = param_specs(module)
    names = {path: hf_name(path, prefix) for path in specs}
    # All that can be said without reading a byte of a weight is said first.
    _check_all_used(folder, tensors.names(), names.values(), module)
    for path, (shape, _) in specs.items():
        tensors.check(names[path], layout(path, shape).shape)
    if config.tie_word_embeddings:
        _check_tied_head(folder, tensors, prefix, specs[("embed_tokens",)][0])

    def view(path: Path) -> np.ndarray:
        stored = layout(path, specs[path][0])
        return stored.to_ours(tensors.view(names[path], stored.shape))

    def place(path: Path, values: np.ndarray) -> jax.Array:
        kept = jnp.dtype(jnp.float32) if path[-1] in _FLOAT32_LEAVES else dtype
        return _place(values, kept, rules(specs[path][1]) if rules else None)

    params: PyTree = {}
    file_of = lambda path: tensors.file_of(names[path])
    with ThreadPoolExecutor(2) as pool:  # one tensor is read while another goes to its device
        for _, members in itertools.groupby(sorted(specs, key=file_of), key=file_of):
            paths = list(members)
            for path, array in zip(paths, pool.map(place, paths, map(view, paths)), strict=True):
                insert(params, path, array)
    tensors.close()
    return module, params


def _place(view: np.ndarray, dtype: Any, sharding: Any) -> jax.Array:
    """A view of a file -> an array on its devices, of which each reads its own part."""
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    elif isinstance(sharding, jax.sharding.NamedSharding):
        sharding = fitted(sharding, view.shape)

    def part(index: tuple[slice, ...]) -> np.ndarray:
        piece = view[index]
        if piece.flags.f_contiguous and piece.ndim == 2:  # a transposed kernel: in the file's order
            return piece if piece.dtype == dtype else _copy(piece.T, dtype).T
        return _copy(piece, dtype)

    return jax.make_array_from_callback(view.shape, sharding, part)


def _copy(piece: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy that a CPU device can use where it lies (it wants 64-byte alignment)."""
    size = piece.size * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    copy = raw[begin : begin + size].view(dtype).reshape(piece.shape)
    np.copyto(copy, piece, casting="unsafe")
    return copy


def _check_all_used(folder: pathlib.Path, stored: set[str], used: Iterable[str], module: Decoder) -> None:
    """Every stored tensor must have a place, or a reason to have none."""
    layers = module.config.layers
    for name in sorted(stored - set(used)):
        own = _OWN_KV.search(name)
        # Layers that use another layer's keys and values may still be stored with their own.
        idle = None
        if own and int(own[1]) < len(layers):
            idle = getattr(layers[int(own[1])].mixer, "kv_layer", None)
        tied = module.config.tie_word_embeddings and name.endswith("lm_head.weight")
        if not (_SKIPPED.search(name) or tied or idle is not None):
            raise ValueError(f"{folder}: tensor {name} has no place in the model")


def _check_tied_head(folder: pathlib.Path, tensors: Tensors, prefix: str, shape: tuple[int, ...]) -> None:
    """A tied model may still store a head; then it must be the embedding."""
    head, table = hf_name(("lm_head",), prefix), hf_name(("embed_tokens",), prefix)
    if head in tensors.names() and not np.array_equal(tensors.view(head, shape), tensors.view(table, shape)):
        raise ValueError(
            f"{folder}: config.json ties the head to the embedding (tie_word_embeddings), but the "
            f"stored {head} differs from {table}"
        )


def param_specs(module: Decoder) -> dict[Path, tuple[tuple[int, ...], tuple[str | None, ...]]]:
    """Path -> (shape, logical axes) of every parameter, without allocating any.

    Layers that are alike have the same parameters, so one of each kind is traced.
    """
    layers, kinds = _kinds(module.config)
    config = dataclasses.replace(module.config, layers=layers)
    few = module.clone(config=config, rows=None, remat=False)
    boxed = jax.eval_shape(few.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    is_box = lambda node: isinstance(node, nn.LogicallyPartitioned)
    specs, of_kind = {}, {}
    for path, box in jax.tree_util.tree_leaves_with_path(boxed, is_leaf=is_box):
        first, *rest = (entry.key for entry in path)
        spec = (box.value.shape, tuple(box.names))
        if first.startswith("layers_"):
            of_kind.setdefault(int(first.removeprefix("layers_")), {})[tuple(rest)] = spec
        else:
            specs[(first, *rest)] = spec
    for i, kind in enumerate(kinds):
        specs |= {(f"layers_{i}", *rest): spec for rest, spec in of_kind[kind].items()}
    return dict(sorted(specs.items()))


def _kinds(config: ModelConfig) -> tuple[tuple[Layer, ...], list[int]]:
    """One layer of each kind, and for every layer the number of its kind."""
    found: dict[Layer, int] = {}
    kinds = []
    for layer in config.layers:
        source = getattr(layer.mixer, "kv_layer", None)
        if source is not None:
            layer = dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, kv_layer=kinds[source]))
        kinds.append(found.setdefault(layer, len(found)))
    return tuple(found), kinds


def param_shapes(module: Decoder, dtype: Any = jnp.float32) -> PyTree:
    """The params as ShapeDtypeStructs: for what needs their shapes alone."""
    shapes: PyTree = {}
    for path, (shape, _) in param_specs(module).items():
        insert(shapes, path, jax.ShapeDtypeStruct(shape, dtype))
    return shapes


def save_hf(
    folder: pathlib.Path, module: Decoder, params: PyTree, dtype: Any, prefix: str = "model."
) -> None:
    """Write `model.safetensors` with Hugging Face names and layouts (config.json is the caller's)."""
    tensors = {}
    for path, (shape, _) in param_specs(module).items():
        value = params
        for part in path:
            value = value[part]
        stored = layout(path, shape).to_hf(np.asarray(value))
        tensors[hf_name(path, prefix)] = np.ascontiguousarray(stored).astype(dtype, copy=False)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
