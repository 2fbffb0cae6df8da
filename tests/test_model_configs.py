"""config.json of the published models, and every field that would change the computation.

The contents are those of the published files, less what concerns generation, training and images.
"""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax.models.attention import allowed, rope_table
from agon_jax.models.config import Attention, DeltaNet, Layer, Rope
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import from_hf
from agon_jax.models.layers import RMSNorm
from agon_jax.models.names import hf_name, layout

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"

QWEN3_06B = dict(
    model_type="qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0,
    bos_token_id=151643, eos_token_id=151645, head_dim=128, hidden_act="silu", hidden_size=1024,
    initializer_range=0.02, intermediate_size=3072, max_position_embeddings=40960, max_window_layers=28,
    num_attention_heads=16, num_hidden_layers=28, num_key_value_heads=8, rms_norm_eps=1e-6,
    rope_scaling=None, rope_theta=1000000, sliding_window=None, tie_word_embeddings=True,
    torch_dtype="bfloat16", use_cache=True, use_sliding_window=False, vocab_size=151936,
)  # fmt: skip
QWEN3_4B = QWEN3_06B | dict(
    hidden_size=2560, intermediate_size=9728, max_window_layers=36, num_attention_heads=32,
    num_hidden_layers=36,
)  # fmt: skip
SMOLLM2_135M = dict(
    model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, attention_dropout=0.0,
    bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=576, initializer_range=0.0416,
    intermediate_size=1536, is_llama_config=True, max_position_embeddings=8192, mlp_bias=False,
    num_attention_heads=9, num_hidden_layers=30, num_key_value_heads=3, pretraining_tp=1,
    rms_norm_eps=1e-5, rope_interleaved=False, rope_scaling=None, rope_theta=100000,
    tie_word_embeddings=True, vocab_size=49152,
)  # fmt: skip
QWEN3_5_2B_TEXT = dict(
    model_type="qwen3_5_text", attention_bias=False, attention_dropout=0.0, attn_output_gate=True,
    eos_token_id=248044, full_attention_interval=4, head_dim=256, hidden_act="silu", hidden_size=2048,
    initializer_range=0.02, intermediate_size=6144, layer_types=[LINEAR, LINEAR, LINEAR, FULL] * 6,
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
    linear_num_value_heads=16, linear_value_head_dim=128, mamba_ssm_dtype="float32",
    max_position_embeddings=262144, mlp_only_layers=[], mtp_num_hidden_layers=1,
    num_attention_heads=8, num_hidden_layers=24, num_key_value_heads=2, rms_norm_eps=1e-6,
    tie_word_embeddings=True, vocab_size=248320,
    rope_parameters={"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default",
                     "rope_theta": 10000000, "partial_rotary_factor": 0.25},
)  # fmt: skip
GEMMA3_270M = dict(
    model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], _sliding_window_pattern=6,
    attention_bias=False, attn_logit_softcapping=None, final_logit_softcapping=None, head_dim=256,
    hidden_activation="gelu_pytorch_tanh", hidden_size=640, intermediate_size=2048,
    layer_types=([SLIDING] * 5 + [FULL]) * 3, max_position_embeddings=32768, num_attention_heads=4,
    num_hidden_layers=18, num_key_value_heads=1, query_pre_attn_scalar=256, rms_norm_eps=1e-6,
    rope_local_base_freq=10000.0, rope_scaling=None, rope_theta=1000000.0, sliding_window=512,
    use_bidirectional_attention=False, vocab_size=262144,
)  # fmt: skip
GEMMA3_1B = dict(
    model_type="gemma3_text", attention_bias=False, attn_logit_softcapping=None,
    final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh", hidden_size=1152,
    intermediate_size=6912, max_position_embeddings=32768, num_attention_heads=4, num_hidden_layers=26,
    num_key_value_heads=1, query_pre_attn_scalar=256, rms_norm_eps=1e-6, rope_local_base_freq=10000,
    rope_scaling=None, rope_theta=1000000, sliding_window=512, sliding_window_pattern=6,
    vocab_size=262144,
)  # fmt: skip
GEMMA3_4B = dict(
    model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], boi_token_index=255999,
    eoi_token_index=256000, eos_token_id=[1, 106], image_token_index=262144, mm_tokens_per_image=256,
    text_config=dict(
        hidden_size=2560, intermediate_size=10240, model_type="gemma3_text", num_hidden_layers=34,
        rope_scaling={"factor": 8.0, "rope_type": "linear"}, sliding_window=1024,
    ),
    vision_config=dict(hidden_size=1152, model_type="siglip_vision_model", num_hidden_layers=27),
)  # fmt: skip
GEMMA4_ROPE = {
    FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
    SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
}
GEMMA4_E2B_TEXT = dict(
    model_type="gemma4_text", attention_bias=False, attention_k_eq_v=False, enable_moe_block=False,
    final_logit_softcapping=30.0, global_head_dim=512, head_dim=256,
    hidden_activation="gelu_pytorch_tanh", hidden_size=1536, hidden_size_per_layer_input=256,
    intermediate_size=6144, layer_types=([SLIDING] * 4 + [FULL]) * 7, max_position_embeddings=131072,
    num_attention_heads=8, num_experts=None, num_global_key_value_heads=None, num_hidden_layers=35,
    num_key_value_heads=1, num_kv_shared_layers=20, rms_norm_eps=1e-6, rope_parameters=GEMMA4_ROPE,
    sliding_window=512, tie_word_embeddings=True, top_k_experts=None, use_bidirectional_attention=None,
    use_double_wide_mlp=True, vocab_size=262144, vocab_size_per_layer_input=262144,
)  # fmt: skip
GEMMA4_E4B_TEXT = GEMMA4_E2B_TEXT | dict(
    hidden_size=2560, intermediate_size=10240, layer_types=([SLIDING] * 5 + [FULL]) * 7,
    num_hidden_layers=42, num_key_value_heads=2, num_kv_shared_layers=18, use_double_wide_mlp=False,
)  # fmt: skip


def nested(model_type, text, **more):
    return {"model_type": model_type, "text_config": text, "vision_config": {"hidden_size": 768}} | more


def shapes(raw):
    """Tensor name -> shape in the file, of the first layers."""
    return {
        hf_name(path): layout(path, shape).shape
        for path, (shape, _) in param_specs(Decoder(from_hf(raw))).items()
    }


def first_layers(raw, count, **fields):
    kinds = {"layer_types": raw["layer_types"][:count]} if "layer_types" in raw else {}
    return raw | {"num_hidden_layers": count} | kinds | fields


def kinds_of(config):
    """Layers as letters: s sliding, f full, l linear."""
    letter = lambda mixer: "l" if isinstance(mixer, DeltaNet) else "fs"[mixer.window is not None]
    return "".join(letter(layer.mixer) for layer in config.layers)


# --- the published models -----------------------------------------------------------------------


def test_qwen3():
    """head_dim is given and is not hidden / heads: q_proj [32 * 128, 2560] = [4096, 2560] in the file of
    the 4B. hidden / heads gives 80 and [2560, 2560]; for the 0.6B 64 and [1024, 1024]."""
    for raw, heads, hidden, wide, layers in ((QWEN3_06B, 16, 1024, 3072, 28), (QWEN3_4B, 32, 2560, 9728, 36)):
        config = from_hf(raw)
        rope = Rope(theta=1e6, dims=128, frequencies=64)
        attention = Attention(heads, 8, 128, rope, 128**-0.5, qk_norm=True)
        assert config.layers == (Layer(attention, wide),) * layers
        assert (config.vocab_size, config.hidden_size, config.rms_norm_eps) == (151936, hidden, 1e-6)
        assert (config.norm, config.activation, config.tie_word_embeddings) == ("cast_first", "silu", True)
        assert not config.scale_embeddings and not config.sandwich_norms and config.logit_softcap is None
    block = "model.layers.0."
    assert shapes(first_layers(QWEN3_4B, 1)) == {
        "model.embed_tokens.weight": (151936, 2560), "model.norm.weight": (2560,),
        block + "input_layernorm.weight": (2560,), block + "post_attention_layernorm.weight": (2560,),
        block + "self_attn.q_proj.weight": (4096, 2560), block + "self_attn.k_proj.weight": (1024, 2560),
        block + "self_attn.v_proj.weight": (1024, 2560), block + "self_attn.o_proj.weight": (2560, 4096),
        block + "self_attn.q_norm.weight": (128,), block + "self_attn.k_norm.weight": (128,),
        block + "mlp.gate_proj.weight": (9728, 2560), block + "mlp.up_proj.weight": (9728, 2560),
        block + "mlp.down_proj.weight": (2560, 9728),
    }  # fmt: skip
    assert shapes(first_layers(QWEN3_06B, 1))[block + "self_attn.q_proj.weight"] == (2048, 1024)
    untied = shapes(first_layers(QWEN3_4B, 1, tie_word_embeddings=False))
    assert untied["lm_head.weight"] == (151936, 2560)


def test_smollm2():
    """Without head_dim: 576 / 9 = 64. No norm of queries and keys: Qwen3's block would ask for it."""
    config = from_hf(SMOLLM2_135M)
    attention = Attention(9, 3, 64, Rope(theta=1e5, dims=64, frequencies=32), 0.125)
    assert config.layers == (Layer(attention, 1536),) * 30
    assert (config.vocab_size, config.hidden_size, config.rms_norm_eps) == (49152, 576, 1e-5)
    stored = shapes(first_layers(SMOLLM2_135M, 1))
    assert stored["model.layers.0.self_attn.k_proj.weight"] == (192, 576)
    assert not any("_norm" in name for name in stored if "self_attn" in name)
    assert from_hf(SMOLLM2_135M | {"num_key_value_heads": None}).layers[0].mixer.num_kv_heads == 9


def test_llama_defaults():
    """Llama's class has theta 10000 and an untied head where the file is silent."""
    raw = {
        k: v for k, v in SMOLLM2_135M.items() if k not in ("rope_theta", "tie_word_embeddings", "hidden_act")
    }
    config = from_hf(raw)
    assert config.layers[0].mixer.rope.theta == 1e4 and not config.tie_word_embeddings


@pytest.mark.parametrize("form", ["nested", "flat"])
def test_qwen3_5(form):
    """Every 4th of 24 layers is attention, of which the first 64 of 256 dims turn; q_proj makes a gate
    too: [8 * 2 * 256, 2048] = [4096, 2048], without one it would be [2048, 2048]."""
    raw = QWEN3_5_2B_TEXT
    config = from_hf(nested("qwen3_5", raw, tie_word_embeddings=True) if form == "nested" else raw)
    rope = Rope(theta=1e7, dims=64, frequencies=32)
    attention = Attention(8, 2, 256, rope, 0.0625, qk_norm=True, output_gate=True)
    linear, full = Layer(DeltaNet(16, 16, 128, 128, 4), 6144), Layer(attention, 6144)
    assert config.layers == (linear, linear, linear, full) * 6
    assert (config.vocab_size, config.hidden_size, config.norm) == (248320, 2048, "one_plus")
    assert config.tie_word_embeddings and not config.scale_embeddings
    stored = shapes(first_layers(raw, 4))
    mixer = {name.split("linear_attn.")[1]: stored[name] for name in stored if ".0.linear_attn." in name}
    assert mixer == {
        "in_proj_qkv.weight": (6144, 2048), "in_proj_z.weight": (2048, 2048), "in_proj_a.weight": (16, 2048),
        "in_proj_b.weight": (16, 2048), "conv1d.weight": (6144, 1, 4), "A_log": (16,), "dt_bias": (16,),
        "norm.weight": (128,), "out_proj.weight": (2048, 2048),
    }  # fmt: skip
    assert stored["model.layers.3.self_attn.q_proj.weight"] == (4096, 2048)
    assert stored["model.layers.3.self_attn.k_proj.weight"] == (512, 2048)
    assert stored["model.layers.3.self_attn.o_proj.weight"] == (2048, 2048)


def test_qwen3_5_defaults():
    """The class's own where the file is silent: 16 and 32 linear heads of 128, 4 taps, a quarter of 256
    dims, every 4th layer, a separate head."""
    silent = ("layer_types", "full_attention_interval", "tie_word_embeddings", "vocab_size", "head_dim",
              "rope_parameters")  # fmt: skip
    raw = {k: v for k, v in QWEN3_5_2B_TEXT.items() if k not in silent and not k.startswith("linear_")}
    config = from_hf(raw | {"rope_theta": 1e7})
    assert kinds_of(config) == "lllf" * 6
    assert config.layers[0].mixer == DeltaNet(16, 32, 128, 128, 4)
    assert config.layers[3].mixer.rope == Rope(1e7, 64, 32) and config.layers[3].mixer.head_dim == 256
    assert config.vocab_size == 248320 and not config.tie_word_embeddings
    assert kinds_of(from_hf(raw | {"rope_theta": 1e7, "full_attention_interval": 3})) == "llf" * 8


def test_the_outer_tie_wins():
    """Multimodal files: transformers ties by the outer field and falls back to the inner one."""
    text = QWEN3_5_2B_TEXT
    assert not from_hf(nested("qwen3_5", text, tie_word_embeddings=False)).tie_word_embeddings
    assert from_hf(nested("qwen3_5", text)).tie_word_embeddings
    assert from_hf(nested("qwen3_5", text, tie_word_embeddings=None)).tie_word_embeddings


@pytest.mark.parametrize(
    "raw, hidden, wide, kinds",
    [
        (GEMMA3_270M, 640, 2048, "sssssf" * 3),
        (GEMMA3_1B, 1152, 6912, "sssssf" * 4 + "ss"),  # 26 layers: the last two are sliding
    ],
    ids=["270m", "1b"],
)
def test_gemma3_text(raw, hidden, wide, kinds):
    """4 query heads on 1 key head of 256; theta 1e4 with a window of 512, 1e6 without one."""
    config = from_hf(raw)
    assert kinds_of(config) == kinds
    full = Attention(4, 1, 256, Rope(1e6, 256, 128), 0.0625, qk_norm=True)
    sliding = dataclasses.replace(full, rope=Rope(1e4, 256, 128), window=512)
    assert {layer.mixer for layer in config.layers} == {full, sliding}
    assert {layer.intermediate_size for layer in config.layers} == {wide}
    assert (config.vocab_size, config.hidden_size, config.norm) == (262144, hidden, "one_plus")
    assert (config.sandwich_norms, config.scale_embeddings, config.activation) == (True, True, "gelu_tanh")
    assert config.tie_word_embeddings and config.logit_softcap is None


def test_gemma3_4b_leaves_out_most_fields():
    """The class's own: 8 heads, 4 key heads, head_dim 256, 262,208 rows, tied. hidden / heads would give
    320, and the tokenizer's 262,145 ids do not say how many rows there are."""
    config = from_hf(GEMMA3_4B)
    assert kinds_of(config) == "sssssf" * 5 + "ssss"
    full = Attention(8, 4, 256, Rope(1e6, 256, 128, factor=8.0), 0.0625, qk_norm=True)
    sliding = dataclasses.replace(full, rope=Rope(1e4, 256, 128), window=1024)
    assert (config.layers[5].mixer, config.layers[0].mixer) == (full, sliding)
    assert (config.vocab_size, config.rms_norm_eps, config.tie_word_embeddings) == (262208, 1e-6, True)
    text = first_layers(GEMMA3_4B["text_config"], 1)
    stored = shapes(GEMMA3_4B | {"text_config": text})
    assert stored["model.layers.0.self_attn.q_proj.weight"] == (2048, 2560)
    assert stored["model.layers.0.self_attn.k_proj.weight"] == (1024, 2560)
    assert {name for name in stored if "feedforward" in name or "layernorm" in name} == {
        f"model.layers.0.{name}.weight" for name in (
            "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
            "post_feedforward_layernorm")
    }  # fmt: skip


def test_gemma3_defaults():
    """A window of 4096 and no layer types in the file; the other spelling of the same RoPE."""
    text = {"hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 12}
    config = from_hf(nested("gemma3", text))
    assert kinds_of(config) == "sssssf" * 2
    assert config.layers[0].mixer.window == 4096
    assert config.layers[0].mixer.rope == Rope(1e4, 256, 128)
    assert config.layers[5].mixer.rope == Rope(1e6, 256, 128)
    newer = {FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
             SLIDING: {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
    spelled = GEMMA3_4B["text_config"] | {"rope_scaling": None, "rope_parameters": newer}
    assert from_hf(nested("gemma3", spelled)) == from_hf(GEMMA3_4B)


SOURCES = {  # (raw, layers with their own keys, their last sliding and full one)
    "E2B": (GEMMA4_E2B_TEXT, 15, 13, 14), "E4B": (GEMMA4_E4B_TEXT, 24, 22, 23)
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("form", ["nested", "flat"])
def test_gemma4(name, form):
    """The last 20 of 35 (18 of 42) layers take keys and values from the last layer of their own type
    that has some: 13 and 14 (22 and 23). The layer just before the shared ones, 14 for all, has other
    heads. Shared layers of E2B have an MLP of 12288, E4B's the same 10240 as the others."""
    raw, own, sliding_source, full_source = SOURCES[name]
    config = from_hf(nested("gemma4", raw) if form == "nested" else raw)
    assert kinds_of(config) == {"E2B": "ssssf", "E4B": "sssssf"}[name] * 7
    kv_heads, wide = {"E2B": (1, 12288), "E4B": (2, 10240)}[name]
    full = Attention(8, kv_heads, 512, Rope(1e6, 512, 64), 1.0, qk_norm=True, value_norm=True)
    sliding = dataclasses.replace(full, head_dim=256, rope=Rope(1e4, 256, 128), window=512)
    for i, (layer, kind) in enumerate(zip(config.layers, kinds_of(config), strict=True)):
        source = {"s": sliding_source, "f": full_source}[kind] if i >= own else None
        mixer = dataclasses.replace({"s": sliding, "f": full}[kind], kv_layer=source)
        assert layer == Layer(mixer, raw["intermediate_size"] if i < own else wide), i
    assert config.shared_kv == {sliding_source, full_source}
    assert (config.per_layer_dim, config.per_layer_vocab) == (256, 262144)
    assert (config.norm, config.logit_softcap, config.layer_scalar) == ("float32", 30.0, True)
    assert config.sandwich_norms and config.scale_embeddings and config.tie_word_embeddings


def test_gemma4_shapes():
    """E2B's table of per-layer embeddings packs all layers: [262144, 35 * 256]. A layer with shared keys
    has no k_proj, v_proj and k_norm, and q_proj is 8 * 512 wide on full layers."""
    raw = first_layers(GEMMA4_E2B_TEXT, 6, num_kv_shared_layers=1, layer_types=[SLIDING, FULL] * 3)
    stored = shapes(raw)
    assert stored["model.embed_tokens_per_layer.weight"] == (262144, 6 * 256)
    assert stored["model.per_layer_model_projection.weight"] == (6 * 256, 1536)
    assert stored["model.per_layer_projection_norm.weight"] == (256,)
    layer = lambda i: {
        name.removeprefix(f"model.layers.{i}."): shape
        for name, shape in stored.items()
        if f"layers.{i}." in name
    }
    assert layer(1)["self_attn.q_proj.weight"] == layer(5)["self_attn.q_proj.weight"] == (4096, 1536)
    assert layer(0)["self_attn.k_proj.weight"] == (256, 1536)
    assert layer(1)["self_attn.k_proj.weight"] == layer(1)["self_attn.v_proj.weight"] == (512, 1536)
    assert layer(1)["mlp.up_proj.weight"] == (6144, 1536) and layer(5)["mlp.up_proj.weight"] == (12288, 1536)
    assert set(layer(1)) - set(layer(5)) == {
        f"self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm")
    }
    assert layer(5)["per_layer_input_gate.weight"] == (256, 1536)
    assert layer(5)["per_layer_projection.weight"] == (1536, 256)
    assert layer(5)["layer_scalar"] == (1,)


def test_gemma4_both_spellings_of_head_sizes():
    """JSON makes the layer numbers strings. Falling back to global_head_dim's default of 512 would pass
    for the published sizes, so another one is asked for too."""
    assert from_hf({k: v for k, v in GEMMA4_E2B_TEXT.items() if k != "global_head_dim"}) == from_hf(
        GEMMA4_E2B_TEXT
    )
    for dim in (512, 384):
        older = GEMMA4_E2B_TEXT | {"global_head_dim": dim}
        newer = {name: value for name, value in older.items() if "global" not in name}
        newer["per_layer_config"] = {
            str(i): {"head_dim": dim} for i, kind in enumerate(older["layer_types"]) if kind == FULL
        }
        assert from_hf(newer) == from_hf(older)
        assert from_hf(newer).layers[4].mixer.head_dim == dim
        assert from_hf(newer).layers[4].mixer.rope == Rope(1e6, dim, dim // 8)


def test_gemma4_keys_as_values():
    """Full layers alone lose v_proj and have their own number of key heads; without attention_k_eq_v
    num_global_key_value_heads means nothing."""
    raw = GEMMA4_E4B_TEXT | dict(num_kv_shared_layers=0, num_global_key_value_heads=4)
    mixers = lambda raw: [layer.mixer for layer in from_hf(raw).layers[4:6]]
    sliding, full = mixers(raw | {"attention_k_eq_v": True})
    assert (sliding.num_kv_heads, sliding.keys_as_values) == (2, False)
    assert (full.num_kv_heads, full.keys_as_values) == (4, True)
    _, full = mixers(raw)
    assert (full.num_kv_heads, full.keys_as_values) == (2, False)
    newer = {k: v for k, v in raw.items() if "global" not in k} | {
        "attention_k_eq_v": True,
        "per_layer_config": {str(i): {"head_dim": 512, "num_key_value_heads": 4} for i in range(5, 42, 6)},
    }
    assert from_hf(newer) == from_hf(raw | {"attention_k_eq_v": True})
    stored = shapes(first_layers(raw, 2, layer_types=[SLIDING, FULL], attention_k_eq_v=True))
    assert [f"model.layers.{i}.self_attn.v_proj.weight" in stored for i in (0, 1)] == [True, False]


def test_gemma4_without_per_layer_embeddings():
    """0 and null both mean none. A null that meant the default of 256 would ask for a table of
    262144 x 10752 that is not in the file."""
    for none in (0, None):
        config = from_hf(GEMMA4_E4B_TEXT | {"hidden_size_per_layer_input": none})
        assert config.per_layer_dim == 0
    silent = {k: v for k, v in GEMMA4_E4B_TEXT.items() if k != "hidden_size_per_layer_input"}
    assert from_hf(silent).per_layer_dim == 256


def test_gemma4_forces_a_full_last_layer():
    """As the reference does, whatever the file says of it."""
    raw = first_layers(GEMMA4_E4B_TEXT, 2, num_kv_shared_layers=0, layer_types=[SLIDING, SLIDING])
    assert kinds_of(from_hf(raw)) == "sf"


def test_null_means_the_default():
    """Gemma 3 files of older tools have nulls for what they leave to the class."""
    nulls = dict.fromkeys(
        ("head_dim", "num_attention_heads", "num_key_value_heads", "layer_types", "vocab_size",
         "query_pre_attn_scalar", "rms_norm_eps", "rope_theta", "rope_local_base_freq", "hidden_activation",
         "tie_word_embeddings", "final_logit_softcapping", "attention_bias")
    )  # fmt: skip
    with_nulls = GEMMA3_4B | {"text_config": nulls | GEMMA3_4B["text_config"]}
    assert from_hf(with_nulls) == from_hf(GEMMA3_4B)
    assert from_hf(QWEN3_4B | {"head_dim": None}).layers[0].mixer.head_dim == 128


# --- rules with numbers -------------------------------------------------------------------------


def test_angles_of_gemma3_4b():
    """Position 800, pairs 0 and 1 of 128. Full layers: 800 / 8 = 100 and 100 * 1e6^(-1/128). Sliding
    layers, unscaled: 800 and 800 * 1e4^(-1/128). The factor on all layers would give 100 for both, on
    none 800; a factor that multiplies 6400."""
    layers = from_hf(GEMMA3_4B).layers
    for layer, wanted in ((layers[5], (100.0, 89.76871323473143)), (layers[0], (800.0, 744.4576327437592))):
        rope = layer.mixer.rope
        np.testing.assert_allclose(800 * rope.inverse_frequencies()[:2], wanted, rtol=1e-6)
        cos, sin = rope_table(jnp.array([[800]]), rope, jnp.float32)
        assert cos.shape == (1, 1, 1, 128)
        np.testing.assert_allclose(cos[0, 0, 0, :2], np.cos(wanted), atol=2e-4)
        np.testing.assert_allclose(sin[0, 0, 0, :2], np.sin(wanted), atol=2e-4)


def test_proportional_rope():
    """64 frequencies 1e6^(-2i/512), then 192 zeros: pair i is dims i and i + 256. Rotating the first 128
    dims would have exponents 2i/128, the last of them 1e6^(-126/128) = 1.24e-6, not 0.0334."""
    rope = from_hf(GEMMA4_E4B_TEXT).layers[5].mixer.rope
    inverse = rope.inverse_frequencies()
    assert inverse.shape == (256,) and inverse.dtype == np.float32
    np.testing.assert_allclose(inverse[:64], 1e6 ** (-2 * np.arange(64) / 512), rtol=1e-6)
    np.testing.assert_allclose(inverse[63], 0.033373, rtol=1e-4)
    assert not inverse[64:].any()


def test_partial_rope():
    """Qwen3.5: 32 frequencies 1e7^(-2i/64) over the first 64 dims. Over 256 the second one would be
    0.882, not 0.604."""
    inverse = from_hf(QWEN3_5_2B_TEXT).layers[3].mixer.rope.inverse_frequencies()
    np.testing.assert_allclose(inverse, 1e7 ** (-2 * np.arange(32) / 64), rtol=1e-6)
    np.testing.assert_allclose(inverse[1], 0.604296, rtol=1e-5)


@pytest.mark.parametrize(
    "hidden, scale",
    [(640, 25.25), (1152, 34.0), (2304, 48.0), (2560, 50.5), (3072, 55.5), (3840, 62.0), (5376, 73.5)],
)
def test_embedding_scale_is_rounded_to_bfloat16(hidden, scale):
    """sqrt(2560) = 50.596 lies between 50.5 and 50.75. Of an embedding of ones the first thing that the
    decoder makes is this number. Of fives it is 5 * 50.5 = 252.5, rounded to 252; a scale that is
    rounded only after the product gives 253."""
    config = from_hf(GEMMA3_270M | {"hidden_size": hidden, "vocab_size": 2})
    rounded = lambda x: np.asarray(jnp.asarray(x, jnp.bfloat16), np.float32)
    for value in (1.0, 5.0):
        x = embedded(config, value)
        assert x.dtype == jnp.bfloat16 and x.shape == (1, 1, hidden)
        assert set(np.unique(np.asarray(x, np.float32))) == {float(rounded(value * scale))}


def test_no_embedding_scale():
    """Qwen3 and Qwen3.5 take the embedding as it is; scaled by sqrt(2560) it would be 50.5."""
    for raw in (QWEN3_4B, QWEN3_5_2B_TEXT, SMOLLM2_135M):
        x = embedded(from_hf(raw | {"vocab_size": 2}), 1.0)
        assert set(np.unique(np.asarray(x, np.float32))) == {1.0}


def embedded(config, value):
    """What a decoder without layers hands to its final norm, of an embedding of `value`s."""
    model = Decoder(dataclasses.replace(config, layers=()), dtype=jnp.bfloat16)
    table = jnp.full((config.vocab_size, config.hidden_size), value, jnp.bfloat16)
    params = {"embed_tokens": table, "norm": {"scale": jnp.zeros(config.hidden_size)}}
    seen = []

    def watch(call, args, kwargs, context):
        if isinstance(context.module, RMSNorm):
            seen.append(args[0])
        return call(*args, **kwargs)

    with nn.intercept_methods(watch):
        model.apply({"params": params}, jnp.array([[1]]), method="hidden")
    (x,) = seen
    return x


def test_window():
    """q - window < k <= q, itself included: with 4, query 9 sees keys 6, 7, 8 and 9. One wider would see
    5 too; a window counted from the key's side would let it see 10."""
    order = np.arange(12)[None]
    seen = np.flatnonzero(np.asarray(allowed(order, order, 4))[0, 9])
    assert seen.tolist() == [6, 7, 8, 9]
    assert np.asarray(allowed(order, order, None))[0, 9].sum() == 10
    assert np.asarray(allowed(order, order, 4))[0, :4].sum(axis=1).tolist() == [1, 2, 3, 4]


# --- what is not supported ----------------------------------------------------------------------

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
REFUSED = {
    "bias of attention": (QWEN3_4B, {"attention_bias": True}, "attention_bias=True"),
    "bias of attention, Gemma": (GEMMA3_1B, {"attention_bias": True}, "attention_bias=True"),
    "bias of the MLP": (SMOLLM2_135M, {"mlp_bias": True}, "mlp_bias=True"),
    "window of Qwen3": (QWEN3_4B, {"use_sliding_window": True}, "use_sliding_window=True"),
    "sliding layer of Qwen3": (
        QWEN3_4B,
        {"layer_types": [FULL] * 35 + [SLIDING]},
        "layer_types: 'sliding_attention'",
    ),
    "unknown layer of Gemma 3": (
        GEMMA3_1B, {"layer_types": ["chunked_attention"] * 26}, "layer_types: 'chunked_attention'"),
    "too few layer types": (
        GEMMA3_270M,
        {"num_hidden_layers": 19},
        "layer_types names 18 layers, num_hidden_layers is 19",
    ),
    "YaRN": (QWEN3_4B, {"rope_scaling": YARN}, "'yarn'"),
    "YaRN in the newer spelling": (QWEN3_4B, {"rope_parameters": YARN | {"rope_theta": 1e6}}, "'yarn'"),
    "YaRN added to a file in the newer spelling": (
        QWEN3_4B,
        {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        "'yarn'",
    ),
    "YaRN of Gemma 3": (GEMMA3_1B, {"rope_scaling": YARN}, "'yarn'"),
    "YaRN added to a Gemma 3 in the newer spelling": (
        GEMMA3_1B,
        {"rope_scaling": YARN, "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e6},
                                                   SLIDING: {"rope_type": "default", "rope_theta": 1e4}}},
        "'yarn'",
    ),
    "scaling of Llama 3": (SMOLLM2_135M, {"rope_scaling": LLAMA3}, "'llama3'"),
    "older name of the type": (
        SMOLLM2_135M, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    "LongRoPE of Qwen3.5": (
        QWEN3_5_2B_TEXT, {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e7}}, "'longrope'"),
    "linear scaling of Llama": (
        SMOLLM2_135M, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "'linear'"),
    "scaling of Gemma 4": (
        GEMMA4_E4B_TEXT, {"rope_parameters": GEMMA4_ROPE | {FULL: YARN | {"rope_theta": 1e6}}}, "'yarn'"),
    "partial rotation of Llama": (
        SMOLLM2_135M, {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    "partial rotation of Qwen3": (
        QWEN3_4B, {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor=0.5"),
    "experts of Gemma 4": (GEMMA4_E4B_TEXT, {"enable_moe_block": True}, "enable_moe_block=True"),
    "number of experts": (GEMMA4_E4B_TEXT, {"num_experts": 128}, "num_experts=128"),
    "both directions, Gemma 3": (
        GEMMA3_270M, {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    "both directions, Gemma 4": (
        GEMMA4_E4B_TEXT, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention='all'"),
    "softcap of scores": (GEMMA3_1B, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    "no gate in Qwen3.5": (QWEN3_5_2B_TEXT, {"attn_output_gate": False}, "attn_output_gate=False"),
    "quantized": (QWEN3_4B, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config="),
    "split matmuls": (SMOLLM2_135M, {"pretraining_tp": 2}, "pretraining_tp=2"),
    "activation": (QWEN3_4B, {"hidden_act": "relu"}, "hidden_act='relu'"),
    "exact GELU of Gemma": (GEMMA3_1B, {"hidden_activation": "gelu"}, "hidden_activation='gelu'"),
    "field of some layers": (
        GEMMA4_E4B_TEXT, {"per_layer_config": {"5": {"head_dim": 512, "sliding_window": 64}}},
        "per_layer_config: the field 'sliding_window'"),
    "nothing to share": (GEMMA4_E4B_TEXT, {"num_kv_shared_layers": 38}, "num_kv_shared_layers=38"),
    "no full layer to share": (
        GEMMA4_E4B_TEXT, {"num_kv_shared_layers": 37}, "no layer of type full_attention"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_the_name_of_the_field(name):
    """Ignored, each would give a model that runs and is wrong."""
    raw, changes, fragment = REFUSED[name]
    from_hf(raw)
    with pytest.raises(ValueError) as error:
        from_hf(raw | changes, where="some/config.json")
    assert str(error.value).startswith("some/config.json") and fragment in str(error.value)


def test_refused_in_the_text_config_and_beside_it():
    """A quantized multimodal file says so on the outside, the text model's bias is inside."""
    for raw, field in (
        (GEMMA3_4B | {"quantization_config": {"load_in_4bit": True}}, "quantization_config="),
        (nested("gemma3", GEMMA3_4B["text_config"] | {"attention_bias": True}), "attention_bias=True"),
        (nested("gemma4", GEMMA4_E4B_TEXT | {"enable_moe_block": True}), "enable_moe_block=True"),
    ):
        with pytest.raises(ValueError, match=field):
            from_hf(raw)


@pytest.mark.parametrize("text", [None, [], "gemma3_text"])
def test_a_text_config_that_is_none(text):
    """It lacks what has no default; taking the fields beside it would find image sizes."""
    with pytest.raises(ValueError, match=r"^here: text_config="):
        from_hf(GEMMA3_4B | {"text_config": text}, where="here")


def test_images_alone_may_be_seen_both_ways():
    """Gemma 4's "vision" concerns image tokens, of which there are none."""
    vision = GEMMA4_E4B_TEXT | {"use_bidirectional_attention": "vision"}
    assert from_hf(vision) == from_hf(GEMMA4_E4B_TEXT)


@pytest.mark.parametrize("model_type", ["gemma2", "qwen2", "qwen3_moe", "gemma3n", "bert", "", None])
def test_unknown_model_type(model_type):
    """Many have the same fields and other rules: Qwen2 has biases that its file does not mention."""
    with pytest.raises(ValueError, match=rf"^here: model_type {model_type!r} .*supported: llama, qwen3, "):
        from_hf(QWEN3_4B | {"model_type": model_type}, where="here")


@pytest.mark.parametrize(
    "raw, field",
    [
        (QWEN3_4B, "hidden_size"), (QWEN3_4B, "num_attention_heads"), (QWEN3_4B, "intermediate_size"),
        (SMOLLM2_135M, "vocab_size"), (QWEN3_5_2B_TEXT, "num_hidden_layers"),
        (GEMMA3_1B, "intermediate_size"), (GEMMA4_E2B_TEXT, "hidden_size"),
    ],
)  # fmt: skip
def test_a_field_that_no_default_fits(raw, field):
    """The class's 4096 hidden units fit one model of many; a KeyError would name no file."""
    with pytest.raises(ValueError, match=f"^here lacks the field '{field}'$"):
        from_hf({name: value for name, value in raw.items() if name != field}, where="here")
