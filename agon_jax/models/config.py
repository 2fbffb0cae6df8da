"""Sizes and scalars of a decoder, read from the real `config.json` and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

# Fields of a Qwen3 config that change the computation when they leave the value given here.
# Anything else than this value is refused by name instead of being ignored.
_UNSUPPORTED = {
    "attention_bias": (False, None),
    "use_sliding_window": (False, None),
    "hidden_act": ("silu", None),
}


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Architecture of one decoder. `head_dim * num_heads` may differ from `hidden_size`."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool

    @property
    def queries_per_kv(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads


def read_config(folder: pathlib.Path) -> ModelConfig:
    """ModelConfig of a Hugging Face folder; a ValueError names the field that is not supported."""
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json: it is not a Hugging Face model folder")
    try:
        raw = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no JSON object")
    return from_hf(raw, where=str(path))


def from_hf(raw: dict[str, Any], where: str = "config.json") -> ModelConfig:
    """ModelConfig of a parsed config.json (both spellings where transformers changed them)."""
    model_type = raw.get("model_type")
    if model_type != "qwen3":
        raise ValueError(
            f"{where}: model_type {model_type!r} is not a causal LM supported here (supported: 'qwen3')"
        )
    for field, allowed in _UNSUPPORTED.items():
        if raw.get(field) not in allowed:
            raise ValueError(f"{where}: {field}={raw[field]!r} is not supported (only {allowed[0]!r})")
    rope = dict(raw.get("rope_scaling") or {}) | dict(raw.get("rope_parameters") or {})
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise ValueError(f"{where}: RoPE scaling {rope_type!r} is not supported")
    try:
        heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
        return ModelConfig(
            vocab_size=raw["vocab_size"],
            hidden_size=hidden,
            num_layers=raw["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or hidden // heads,
            intermediate_size=raw["intermediate_size"],
            rope_theta=float(rope.get("rope_theta") or raw["rope_theta"]),
            rms_norm_eps=raw["rms_norm_eps"],
            tie_word_embeddings=raw.get("tie_word_embeddings", False),
        )
    except KeyError as error:
        raise ValueError(f"{where} lacks the field {error.args[0]!r}") from None
