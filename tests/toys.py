"""Toys for tests: a two-layer Qwen3, and rows for an update of two policies."""

import numpy as np

from agon_jax.models.config import ModelConfig
from agon_jax.models.families import from_hf
from agon_jax.types import Batch

ROWS, WIDTH, LENGTH = 8, 5, 7  # of `random_batch`: rows a policy, tokens of a prompt and of a completion

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


def random_batch(seed=0, advantages=None, inactive=()):
    """Rows of both policies; the rows `inactive` have an advantage and no part in the update."""
    rng = np.random.default_rng(seed)
    shape = (2, ROWS, WIDTH + LENGTH)
    lengths = rng.integers(1, LENGTH + 1, (2, ROWS, 1))
    completion = np.arange(LENGTH) < lengths
    prompt = np.arange(WIDTH) >= rng.integers(0, 3, (2, ROWS, 1))
    logps = np.where(completion, rng.normal(-3, 0.3, completion.shape), 0).astype(np.float32)
    if advantages is None:
        advantages = rng.normal(size=(2, ROWS)).astype(np.float32)
    active = (advantages != 0) & ~np.isin(np.arange(ROWS), inactive)
    return Batch(
        tokens=rng.integers(0, 40, shape).astype(np.int32),
        mask=np.concatenate([prompt, completion], axis=-1),
        completion_mask=completion,
        logps=logps,
        advantages=advantages,
        active=active,
    )
