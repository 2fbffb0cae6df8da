"""From a Hugging Face `config.json` to a ModelConfig: one function a family.

What is not supported is refused by the name of its field, never ignored. Fields that a real file
may leave out have the reference implementation's default.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from agon_jax.models.config import Attention, DeltaNet, Layer, ModelConfig, Rope

Raw = dict[str, Any]

# Fields that would change the computation, with the values that leave it as it is here.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "attn_logit_softcapping": (None,),
    "use_bidirectional_attention": (False, None, "vision"),  # "vision" concerns image tokens only
    "enable_moe_block": (False, None),
    "num_experts": (None, 0),
    "quantization_config": (None,),
    "pretraining_tp": (1, None),
    "attn_output_gate": (True, None),
}
_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_GEMMA_SIZES = dict(
    vocab_size=262_144, num_attention_heads=8, num_key_value_heads=4, head_dim=256, sliding_window=512,
    tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh",
)  # fmt: skip


def read_config(folder: pathlib.Path) -> ModelConfig:
    """ModelConfig of a Hugging Face folder; a ValueError names the field that is not supported."""
    return from_hf(read_raw(folder), where=str(folder / "config.json"))


def read_raw(folder: pathlib.Path) -> Raw:
    """The parsed config.json of a folder.

    Raises:
      ValueError: there is none, or it is damaged.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json: it is not a Hugging Face model folder")
    try:
        raw = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no JSON object")
    return raw


def from_hf(raw: Raw, where: str = "config.json") -> ModelConfig:
    """ModelConfig of a parsed config.json (both spellings where transformers changed them)."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in _FAMILIES:
        raise ValueError(
            f"{where}: model_type {model_type!r} is not a causal LM supported here "
            f"(supported: {', '.join(_FAMILIES)})"
        )
    build, defaults = _FAMILIES[model_type]
    text = raw.get("text_config", raw)  # a multimodal file nests the language model's fields
    if not isinstance(text, dict):
        raise ValueError(f"{where}: text_config={text!r} holds no JSON object")
    fields = defaults | {name: value for name, value in text.items() if value is not None}
    if "hidden_size_per_layer_input" in text:  # the one null that does not mean the default
        fields["hidden_size_per_layer_input"] = text["hidden_size_per_layer_input"] or 0
    tie = raw.get("tie_word_embeddings") if text is not raw else None
    if tie is not None:
        fields["tie_word_embeddings"] = tie
    try:
        for source in (raw, fields):
            for name, allowed in _NEUTRAL.items():
                if source.get(name) not in allowed:
                    raise ValueError(f"{name}={source[name]!r} is not supported (only {allowed[0]!r})")
        config = build(fields)
        _check(config)
        return config
    except KeyError as error:
        raise ValueError(f"{where} lacks the field {error.args[0]!r}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _check(config: ModelConfig) -> None:
    """What no tensor's shape would show."""
    for layer in config.layers:
        pairs = {
            Attention: ("num_attention_heads", "num_heads", "num_key_value_heads", "num_kv_heads"),
            DeltaNet: (
                "linear_num_value_heads", "num_value_heads", "linear_num_key_heads", "num_key_heads"
            ),
        }  # fmt: skip
        name, field, divisor_name, divisor_field = pairs[type(layer.mixer)]
        size, divisor = getattr(layer.mixer, field), getattr(layer.mixer, divisor_field)
        if divisor < 1 or size % divisor:
            raise ValueError(f"{name}={size} is not a multiple of {divisor_name}={divisor}")
    if config.per_layer_dim and config.per_layer_vocab < config.vocab_size:
        raise ValueError(
            f"vocab_size_per_layer_input={config.per_layer_vocab} is less than vocab_size={config.vocab_size}"
        )


def _llama(raw: Raw, *, qk_norm: bool = False) -> ModelConfig:
    """Llama, and Qwen3, which adds a norm of the query and key heads."""
    heads, hidden = raw["num_attention_heads"], raw["hidden_size"]
    head_dim = raw.get("head_dim") or hidden // heads
    attention = Attention(
        num_heads=heads,
        num_kv_heads=raw.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rope=_rope(raw, head_dim),
        scale=head_dim**-0.5,
        qk_norm=qk_norm,
    )
    kinds = _layer_types(raw, {"full_attention"}, ["full_attention"] * raw["num_hidden_layers"])
    layers = tuple(Layer(attention, raw["intermediate_size"]) for _ in kinds)
    return ModelConfig(layers=layers, **_common(raw, "hidden_act"))


def _qwen3(raw: Raw) -> ModelConfig:
    return _llama(raw, qk_norm=True)


def _qwen3_5(raw: Raw) -> ModelConfig:
    """Three gated delta nets, then one gated attention with rotary embedding of a quarter."""
    head_dim = raw["head_dim"]
    attention = Attention(
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=head_dim,
        rope=_rope(raw, head_dim, partial=0.25),
        scale=head_dim**-0.5,
        qk_norm=True,
        output_gate=True,
    )
    delta_net = DeltaNet(
        num_key_heads=raw["linear_num_key_heads"],
        num_value_heads=raw["linear_num_value_heads"],
        key_dim=raw["linear_key_head_dim"],
        value_dim=raw["linear_value_head_dim"],
        kernel=raw["linear_conv_kernel_dim"],
    )
    mixers = {"linear_attention": delta_net, "full_attention": attention}
    period = raw.get("full_attention_interval", 4)
    usual = _every(period, raw["num_hidden_layers"], "full_attention", "linear_attention")
    kinds = _layer_types(raw, mixers, usual)
    layers = tuple(Layer(mixers[kind], raw["intermediate_size"]) for kind in kinds)
    return ModelConfig(layers=layers, norm="one_plus", **_common(raw, "hidden_act"))


def _gemma3(raw: Raw) -> ModelConfig:
    """Five layers with a window, then one without; each kind with its own RoPE."""
    head_dim = raw["head_dim"]
    by_kind = _ropes_by_kind(raw)
    attention = lambda kind, window: Attention(
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=head_dim,
        rope=_rope_of(by_kind[kind], head_dim),
        scale=raw["query_pre_attn_scalar"] ** -0.5,
        window=window,
        qk_norm=True,
    )
    mixers = {
        "sliding_attention": attention("sliding_attention", raw["sliding_window"]),
        "full_attention": attention("full_attention", None),
    }
    period = raw.get("sliding_window_pattern") or raw.get("_sliding_window_pattern") or 6
    usual = _every(period, raw["num_hidden_layers"], "full_attention", "sliding_attention")
    kinds = _layer_types(raw, mixers, usual)
    layers = tuple(Layer(mixers[kind], raw["intermediate_size"]) for kind in kinds)
    return ModelConfig(layers=layers, norm="one_plus", **_gemma_common(raw))


def _gemma4(raw: Raw) -> ModelConfig:
    """As Gemma 3, with wider heads on full layers, keys and values shared by the last layers, and
    per-layer embeddings."""
    count, shared = raw["num_hidden_layers"], raw.get("num_kv_shared_layers", 0)
    usual = _every(6, count, "full_attention", "sliding_attention")
    kinds = _layer_types(raw, {"full_attention", "sliding_attention"}, usual)
    kinds = [*kinds[:-1], "full_attention"]  # the reference forces the last one
    overrides = _gemma4_overrides(raw, kinds)
    ropes = raw["rope_parameters"]
    layers = []
    for i, kind in enumerate(kinds):
        sizes = {"head_dim": raw["head_dim"], "num_key_value_heads": raw["num_key_value_heads"]}
        sizes |= overrides.get(i, {})
        own = count - shared
        source = None
        if i >= own:
            if kind not in kinds[:own]:
                raise ValueError(
                    f"num_kv_shared_layers={shared}: no layer of type {kind} is left to share from"
                )
            source = own - 1 - kinds[:own][::-1].index(kind)
        full = kind == "full_attention"
        attention = Attention(
            num_heads=raw["num_attention_heads"],
            num_kv_heads=sizes["num_key_value_heads"],
            head_dim=sizes["head_dim"],
            rope=_rope_of(ropes[kind], sizes["head_dim"]),
            scale=1.0,
            window=None if full else raw["sliding_window"],
            qk_norm=True,
            value_norm=True,
            keys_as_values=full and raw.get("attention_k_eq_v", False),
            kv_layer=source,
        )
        wide = raw.get("use_double_wide_mlp", False) and source is not None
        layers.append(Layer(attention, raw["intermediate_size"] * (2 if wide else 1)))
    return ModelConfig(
        layers=tuple(layers),
        norm="float32",
        per_layer_dim=raw["hidden_size_per_layer_input"],
        per_layer_vocab=raw["vocab_size_per_layer_input"],
        per_layer_count=count,
        layer_scalar=True,
        **_gemma_common(raw),
    )


def _gemma4_overrides(raw: Raw, kinds: list[str]) -> dict[int, Raw]:
    """Sizes that differ on full layers, in the newer spelling (`per_layer_config`) or the older."""
    if "per_layer_config" in raw:
        overrides = {int(layer): sizes for layer, sizes in raw["per_layer_config"].items()}
        unknown = {name for sizes in overrides.values() for name in sizes} - {
            "head_dim", "num_key_value_heads"
        }  # fmt: skip
        if unknown:
            raise ValueError(f"per_layer_config: the field {sorted(unknown)[0]!r} is not supported")
        return overrides
    sizes = {"head_dim": raw.get("global_head_dim", 512)}
    if raw.get("attention_k_eq_v") and raw.get("num_global_key_value_heads"):
        sizes["num_key_value_heads"] = raw["num_global_key_value_heads"]
    return {i: sizes for i, kind in enumerate(kinds) if kind == "full_attention"}


def _common(raw: Raw, activation_field: str) -> Raw:
    activation = raw[activation_field]
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"{activation_field}={activation!r} is not supported (only {', '.join(_ACTIVATIONS)})"
        )
    return dict(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        rms_norm_eps=raw["rms_norm_eps"],
        tie_word_embeddings=raw["tie_word_embeddings"],
        activation=_ACTIVATIONS[activation],
    )


def _gemma_common(raw: Raw) -> Raw:
    return _common(raw, "hidden_activation") | dict(
        sandwich_norms=True, scale_embeddings=True, logit_softcap=raw.get("final_logit_softcapping")
    )


def _every(period: int, count: int, last: str, others: str) -> list[str]:
    return [last if (i + 1) % period == 0 else others for i in range(count)]


def _layer_types(raw: Raw, known: Any, usual: list[str]) -> list[str]:
    kinds = raw.get("layer_types") or usual
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"layer_types: {kind!r} is not supported (only {', '.join(sorted(known))})")
    if len(kinds) != raw["num_hidden_layers"]:
        raise ValueError(
            f"layer_types names {len(kinds)} layers, num_hidden_layers is {raw['num_hidden_layers']}"
        )
    return list(kinds)


def _rope(raw: Raw, head_dim: int, partial: float = 1.0) -> Rope:
    """The one RoPE of a family without kinds, in the older spelling or the newer."""
    # As in the reference, `rope_scaling` wins: people add it to a file of either spelling.
    merged = dict(raw.get("rope_parameters") or {}) | dict(raw.get("rope_scaling") or {})
    if "rope_theta" not in merged:
        merged["rope_theta"] = raw["rope_theta"]
    merged.setdefault("partial_rotary_factor", raw.get("partial_rotary_factor", partial))
    if _rope_type(merged) != "default":
        raise ValueError(f"RoPE scaling {_rope_type(merged)!r} is not supported")
    if partial == 1.0 and merged["partial_rotary_factor"] != 1.0:
        raise ValueError(f"partial_rotary_factor={merged['partial_rotary_factor']} is not supported (only 1)")
    return _rope_of(merged, head_dim)


def _ropes_by_kind(raw: Raw) -> dict[str, Raw]:
    """Gemma 3's two RoPEs; `rope_scaling` of the older spelling concerns full layers only, and wins."""
    given = raw.get("rope_parameters") or {}
    full = {"rope_theta": raw.get("rope_theta", 1e6)} | dict(given.get("full_attention") or {})
    sliding = {"rope_theta": raw.get("rope_local_base_freq", 1e4)}
    return {
        "full_attention": full | dict(raw.get("rope_scaling") or {}),
        "sliding_attention": sliding | dict(given.get("sliding_attention") or {}),
    }


def _rope_of(fields: Raw, head_dim: int) -> Rope:
    kind, theta = _rope_type(fields), float(fields["rope_theta"])
    share, factor = fields.get("partial_rotary_factor", 1.0), float(fields.get("factor") or 1.0)
    if kind == "default":
        dims = int(head_dim * share)
        return Rope(theta, dims, dims // 2)
    if kind == "linear" and share == 1.0:
        return Rope(theta, head_dim, head_dim // 2, factor)
    if kind == "proportional":
        return Rope(theta, head_dim, int(share * head_dim // 2), factor)
    raise ValueError(f"RoPE scaling {kind!r} is not supported")


def _rope_type(fields: Raw) -> str:
    return fields.get("rope_type") or fields.get("type") or "default"


_QWEN3_DEFAULTS = dict(tie_word_embeddings=False, hidden_act="silu", head_dim=128)
_QWEN3_5_DEFAULTS = dict(
    vocab_size=248_320, tie_word_embeddings=False, hidden_act="silu", head_dim=256,
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128,
    linear_num_key_heads=16, linear_num_value_heads=32,
)  # fmt: skip
_GEMMA3_DEFAULTS = _GEMMA_SIZES | dict(
    vocab_size=262_208, sliding_window=4096, rms_norm_eps=1e-6, query_pre_attn_scalar=256
)
_GEMMA4_DEFAULTS = _GEMMA_SIZES | dict(
    rms_norm_eps=1e-6, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262_144,
    rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
)  # fmt: skip

# model_type -> (reader, the reference's defaults). The multimodal types read `text_config`.
_FAMILIES: dict[str, tuple[Callable[[Raw], ModelConfig], Raw]] = {
    "llama": (_llama, dict(tie_word_embeddings=False, hidden_act="silu", rope_theta=1e4)),
    "qwen3": (_qwen3, _QWEN3_DEFAULTS),
    "qwen3_5": (_qwen3_5, _QWEN3_5_DEFAULTS),
    "qwen3_5_text": (_qwen3_5, _QWEN3_5_DEFAULTS),
    "gemma3": (_gemma3, _GEMMA3_DEFAULTS),
    "gemma3_text": (_gemma3, _GEMMA3_DEFAULTS),
    "gemma4": (_gemma4, _GEMMA4_DEFAULTS),
    "gemma4_text": (_gemma4, _GEMMA4_DEFAULTS),
}
