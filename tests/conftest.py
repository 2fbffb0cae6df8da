"""Eight CPU devices for every test (sharding needs several), and the two models most tests use."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

# One compilation cache for the session: many tests, and the processes that they start, compile the
# same few programs. The workers of pytest-xdist inherit the one of the process that started them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"

import jax  # below the flags, which jax reads when it starts
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture
def toy():
    """Factory of a toy (model, params): spread-out logits and every norm away from 1."""
    from toys import tiny_config

    from agon_jax.models.convert import param_specs
    from agon_jax.models.decoder import Decoder

    def make(seed=0, *, dtype=jnp.float32, num_ids=None, remat=False, lora_scale=1.0, **sizes):
        model = Decoder(
            tiny_config(**sizes), dtype=dtype, num_ids=num_ids, remat=remat, lora_scale=lora_scale
        )
        params, rng = {}, np.random.default_rng(seed)
        for path, (shape, _) in param_specs(model).items():
            if path[-1] == "scale":
                value = rng.uniform(0.5, 1.5, shape)
            else:
                value = rng.normal(0, shape[0] ** -0.5 if path[-1] == "kernel" else 0.4, shape)
            node = params
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = jnp.asarray(value, dtype)
        return model, params

    return make


@pytest.fixture
def noisy_adapter():
    """Factory of a random adapter, A and B far from 0; NumPy draws need no compilation."""
    from agon_jax.models.lora import init_adapter

    def make(params, seed=0, targets=("self_attn", "mlp"), rank=4, spread=0.15):
        rng = np.random.default_rng(seed)
        shapes = jax.eval_shape(lambda: init_adapter(jax.random.key(0), params, rank, targets, 0.0))
        return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, spread, leaf.shape), leaf.dtype), shapes)

    return make


@pytest.fixture
def qwen3(tmp_path):
    """Factory of a random transformers Qwen3 in float32 and its folder, every norm perturbed.

    Fresh norms are all 1 and would hide a lost, doubled or misplaced weight.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def make(seed=0, dtype=torch.float32, max_shard_size="1GB", **sizes):
        torch.manual_seed(seed)
        config = Qwen3Config(**(dict(
            vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, intermediate_size=48, rope_theta=1e4,
            max_position_embeddings=128, initializer_range=0.3, tie_word_embeddings=True,
            eos_token_id=None, bos_token_id=None, pad_token_id=None, attn_implementation="eager",
        ) | sizes))  # fmt: skip
        model = Qwen3ForCausalLM(config).eval().to(dtype)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "norm" in name:
                    weight.uniform_(0.5, 1.5)
        model.save_pretrained(tmp_path, safe_serialization=True, max_shard_size=max_shard_size)
        return model, tmp_path

    return make
