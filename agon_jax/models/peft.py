"""LoRA adapters as PEFT folders: adapter_config.json and adapter_model.safetensors.

vLLM, transformers and PEFT itself read what is written here; what PEFT writes for plain LoRA is
read back.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from agon_jax.models.lora import insert, leaves
from agon_jax.models.names import PREFIXES, hf_module, our_path
from agon_jax.types import PyTree

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# model_type -> where AutoModelForCausalLM keeps the language model. Not always where the file has it.
_MULTIMODAL = ("gemma3", "gemma4")
MULTIMODAL_PREFIX = "model.language_model."
_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<matrix>[AB])\.weight")
# Fields of an adapter_config.json that change the computation, with the values that do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "layer_replication": (None,),
    "lora_bias": (False, None),
    "alora_invocation_tokens": (None,),
    "target_parameters": (None, []),
    # Inits that leave W as it is. PiSSA, OLoRA, CorDA and others replace W, here and at every load.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
    "use_qalora": (False, None),
    "use_bdlora": (None, False),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "velora_config": (None,),
    "monteclora_config": (None,),
    "trainable_token_indices": (None,),
}


def lora_scale(rank: int, alpha: float, rslora: bool) -> float:
    """What A B is multiplied by: alpha / r, or alpha / sqrt(r) with rank-stabilised LoRA."""
    return alpha / (math.sqrt(rank) if rslora else rank)


def key_prefix(model_type: str) -> str:
    """Prefix of module names in transformers' AutoModelForCausalLM of a model_type."""
    return MULTIMODAL_PREFIX if model_type in _MULTIMODAL else "model."


def export_adapter(
    folder: pathlib.Path,
    adapter: PyTree,
    modules: list[str],
    *,
    alpha: float,
    rslora: bool,
    base: str,
    prefix: str = "model.",
) -> None:
    """Write one adapter as a PEFT folder, in float32.

    Args:
      folder: created if absent.
      adapter: {module path: {"a": [in, r], "b": [r, out]}}.
      modules: paths of all linear layers of the base (`lora.projections`): with them the target
        names are as short as they can be without meaning more layers than the adapter has.
      alpha, rslora: of the scale.
      base: name or folder of the base model.
      prefix: of the module names, see `key_prefix`.
    """
    tensors, rank = {}, 0
    for path, ab in leaves(adapter):
        key = f"base_model.model.{prefix}{hf_module(path)}"
        # PEFT's A is [r, in] and its B [out, r]: both transposed against ours.
        tensors[f"{key}.lora_A.weight"] = np.ascontiguousarray(np.asarray(ab["a"], np.float32).T)
        tensors[f"{key}.lora_B.weight"] = np.ascontiguousarray(np.asarray(ab["b"], np.float32).T)
        rank = ab["a"].shape[-1]
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / WEIGHTS), metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "use_rslora": rslora,
        "target_modules": _target_modules(["/".join(path) for path, _ in leaves(adapter)], modules, prefix),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _target_modules(adapted: list[str], modules: list[str], prefix: str) -> list[str]:
    """PEFT adapts every module whose name ends with a target. The last names alone where that means
    the same layers, else whole names: vision towers have a q_proj too."""
    last = lambda path: path.rsplit("/", 1)[-1]
    names = {last(path) for path in adapted}
    if prefix == "model." and {path for path in modules if last(path) in names} == set(adapted):
        return sorted(names)
    return sorted(prefix + hf_module(path.split("/")) for path in adapted)


def import_adapter(folder: pathlib.Path, like: PyTree, *, rank: int, alpha: float, rslora: bool) -> PyTree:
    """A PEFT folder as an adapter of the run.

    Args:
      folder: holds adapter_config.json and adapter_model.safetensors.
      like: an adapter of the run (shapes alone are read): the same layers must be adapted.
      rank, alpha, rslora: of the run's config; the folder's own must agree.

    Raises:
      ValueError: what differs or is damaged, with the file and the tensor or field.
    """
    config = _read_config(folder)
    where = folder / CONFIG
    for field, allowed in _NEUTRAL.items():
        if field in config and config[field] not in allowed:
            raise ValueError(f"{where}: {field}={config[field]!r} is not supported (only {allowed[0]!r})")
    # field: (name in lora.*, the run's value, PEFT's default)
    scaling = {
        "r": ("rank", rank, 8), "lora_alpha": ("alpha", alpha, 8), "use_rslora": ("rslora", rslora, False)
    }  # fmt: skip
    for field, (name, ours, default) in scaling.items():
        theirs = config.get(field, default)
        if theirs != ours:
            raise ValueError(
                f"{where}: {field}={theirs}, but the run has lora.{name}={ours}; "
                f"use --config.lora.{name}={theirs}"
            )
    stored = _read_weights(folder)
    wanted = dict(leaves(like))
    missing, extra = sorted(set(wanted) - set(stored)), sorted(set(stored) - set(wanted))
    if missing or extra:
        what = f"has no adapter for {'/'.join(missing[0])}" if missing else ""
        what += " and " if missing and extra else ""
        what += f"has one for {'/'.join(extra[0])}" if extra else ""
        raise ValueError(f"{folder / WEIGHTS}: {what}, unlike lora.targets of the run")
    adapter: PyTree = {}
    for path, ab in wanted.items():
        insert(adapter, path, pair := {})
        for matrix, key in (("a", "A"), ("b", "B")):
            value = stored[path].get(key)
            if value is None or value.T.shape != ab[matrix].shape:
                got = "is missing" if value is None else f"has shape {list(value.shape)}"
                raise ValueError(
                    f"{folder / WEIGHTS}: lora_{key} of {hf_module(path)} {got}, "
                    f"wanted {list(ab[matrix].shape[::-1])}"
                )
            if not np.isfinite(value.astype(np.float32)).all():
                raise ValueError(f"{folder / WEIGHTS}: lora_{key} of {hf_module(path)} is not finite")
            pair[matrix] = jnp.asarray(value.T, jnp.float32)
    return adapter


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} has no {CONFIG}: it is not a PEFT folder")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object")
    return config


def _read_weights(folder: pathlib.Path) -> dict[tuple[str, ...], dict[str, np.ndarray]]:
    """Module path -> {"A": [r, in], "B": [out, r]}."""
    path = folder / WEIGHTS
    if not path.is_file():
        pickled = folder / "adapter_model.bin"
        hint = f"; {pickled.name} is a pickle and pickles are never loaded" if pickled.is_file() else ""
        raise ValueError(f"{folder} has no {WEIGHTS}{hint}")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from None
    found: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
    for name, value in tensors.items():
        match = _KEY.fullmatch(name)
        if not match:
            raise ValueError(f"{path}: {name} is not a LoRA matrix as PEFT names them")
        module = match["module"]
        prefix = next(p for p in sorted(PREFIXES, key=len, reverse=True) if module.startswith(p))
        pair = found.setdefault(our_path(module.removeprefix(prefix)), {})
        if match["matrix"] in pair:
            raise ValueError(f"{path}: {name} is there twice, under two prefixes")
        pair[match["matrix"]] = value
    return found
