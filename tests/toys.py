"""Toy sizes for tests: a two-layer Qwen3, whose fields `sizes` override."""

from agon_jax.models.config import ModelConfig
from agon_jax.models.families import from_hf

_HF = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}


def tiny_config(**sizes) -> ModelConfig:
    """A ModelConfig; sizes by short names (num_layers, num_heads, num_kv_heads) or those of config.json."""
    toy = dict(
        model_type="qwen3", vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, intermediate_size=48, rope_theta=1e4, rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    )  # fmt: skip
    return from_hf(toy | {_HF.get(name, name): value for name, value in sizes.items()})
