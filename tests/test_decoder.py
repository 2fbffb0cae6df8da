"""The decoder against transformers, its cache against itself, and adapters against merged weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import tiny_config

from agon_jax import models
from agon_jax.models import attention
from agon_jax.models.attention import masked_softmax, rope_table
from agon_jax.models.cache import NEVER, empty_cache
from agon_jax.models.config import Rope
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.layers import RMSNorm
from agon_jax.models.lora import stack_adapters

UNTIED = dict(
    tie_word_embeddings=False, num_attention_heads=6, num_key_value_heads=3, head_dim=24, num_hidden_layers=1
)  # fmt: skip


def torch_logits(hf, ids):
    import torch

    with torch.no_grad():
        return hf(torch.tensor(np.asarray(ids))).logits.float().numpy()


@functools.partial(jax.jit, static_argnums=0)
def forward(model, variables, tokens, mask=None, adapter=None):
    return model.apply(variables, tokens, mask=mask, adapter=adapter)


def test_adapter_equals_merged_transformers_model(qwen3, noisy_adapter):
    """alpha / r = 2 on every linear layer. Without the scale or without one projection: 0.1 and more."""
    import torch

    hf, folder = qwen3(**UNTIED)
    model, params = models.load(str(folder), dtype=jnp.float32, lora_scale=2.0)
    adapter = noisy_adapter(params)
    ids = np.random.default_rng(1).integers(0, 61, (2, 12))
    plain = torch_logits(hf, ids)
    with torch.no_grad():
        for i, layer in enumerate(hf.model.layers):
            for block in ("self_attn", "mlp"):
                for name, ab in adapter[f"layers_{i}"][block].items():
                    delta = 2.0 * np.asarray(ab["a"]) @ np.asarray(ab["b"])
                    getattr(getattr(layer, block), name).weight += torch.tensor(delta.T)
    merged = torch_logits(hf, ids)
    assert np.abs(merged - plain).max() > 0.5
    ours = forward(model, {"params": params, "lora": adapter}, ids)
    np.testing.assert_allclose(ours, merged, atol=1e-4)


def test_what_stays_in_float32():
    """Parts too small to show in the KL above, but not on long rows.

    Rotary angles: 1001 is 1000 in bfloat16, and its sine 0.827 instead of 0.920. Softmax: 1024 equal
    scores sum to 1; in bfloat16 a running sum stops growing at 256. RMSNorm: rounded before the
    weight is applied; one rounding fewer differs in the last bit.
    """
    _, sin = rope_table(jnp.asarray([[1001]]), Rope(1e4, 8, 4), jnp.bfloat16)
    np.testing.assert_allclose(np.float32(sin[0, 0, 0, 0]), np.sin(1001), atol=4e-3)
    weights = masked_softmax(jnp.zeros((1, 1024), jnp.bfloat16), True)
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights.sum(), 1.0, atol=1e-6)
    x = np.random.default_rng(0).normal(0, 3, (4, 64)).astype(jnp.bfloat16)
    scale = np.random.default_rng(1).uniform(0.5, 1.5, 64).astype(jnp.bfloat16)
    x64 = x.astype(np.float64)
    normed = (x64 / np.sqrt((x64**2).mean(axis=-1, keepdims=True) + 1e-6)).astype(jnp.bfloat16)
    got = jax.jit(RMSNorm(1e-6).apply)({"params": {"scale": scale}}, x)
    np.testing.assert_array_equal(np.asarray(got), scale * normed)


def test_tree_of_shapes():
    """heads * head_dim = 96, hidden = 32. With head_dim = hidden / heads, q_proj would be (32, 32)."""
    sizes = dict(vocab_size=61, hidden_size=32, num_layers=1, num_heads=6, num_kv_heads=3, head_dim=16,
                 intermediate_size=48, tie_word_embeddings=False)  # fmt: skip
    specs = param_specs(Decoder(tiny_config(**sizes)))
    assert {"/".join(path): spec for path, spec in specs.items()} == {
        "embed_tokens": ((61, 32), ("vocab", "embed")),
        "layers_0/input_layernorm/scale": ((32,), ("norm",)),
        "layers_0/self_attn/q_proj/kernel": ((32, 96), ("embed", "heads")),
        "layers_0/self_attn/k_proj/kernel": ((32, 48), ("embed", "kv_heads")),
        "layers_0/self_attn/v_proj/kernel": ((32, 48), ("embed", "kv_heads")),
        "layers_0/self_attn/o_proj/kernel": ((96, 32), ("heads", "embed")),
        "layers_0/self_attn/q_norm/scale": ((16,), ("norm",)),
        "layers_0/self_attn/k_norm/scale": ((16,), ("norm",)),
        "layers_0/post_attention_layernorm/scale": ((32,), ("norm",)),
        "layers_0/mlp/gate_proj/kernel": ((32, 48), ("embed", "mlp")),
        "layers_0/mlp/up_proj/kernel": ((32, 48), ("embed", "mlp")),
        "layers_0/mlp/down_proj/kernel": ((48, 32), ("mlp", "embed")),
        "norm/scale": ((32,), ("norm",)),
        "lm_head": ((61, 32), ("vocab", "embed")),
    }
    tied = param_specs(Decoder(tiny_config(**sizes | {"tie_word_embeddings": True})))
    assert set(specs) - set(tied) == {("lm_head",)}


def test_each_row_uses_its_own_adapter(toy, noisy_adapter):
    """Rows of a stack equal the single adapter; an adapter never leaks into another's rows."""
    model, params = toy(num_layers=1, lora_scale=2.0)
    singles = [noisy_adapter(params, seed) for seed in range(3)]
    index = np.asarray([2, 0, 1, 0])
    ids = np.random.default_rng(0).integers(0, 64, (4, 7))
    together = forward(model, {"params": params, "lora": stack_adapters(singles)}, ids, None, index)
    alone = [forward(model, {"params": params, "lora": adapter}, ids) for adapter in singles]
    for row, which in enumerate(index):
        # 4e-6 from another order of summation; the wrong adapter is off by 1.
        np.testing.assert_allclose(together[row], alone[which][row], atol=2e-5)
        assert np.abs(together[row] - alone[(which + 1) % 3][row]).max() > 0.1

    # Filling adapter 2 with other numbers leaves the rows of 0 and 1 alone, bit for bit.
    changed = [*singles[:2], jax.tree.map(lambda leaf: leaf + 0.1, singles[2])]
    again = forward(model, {"params": params, "lora": stack_adapters(changed)}, ids, None, index)
    np.testing.assert_array_equal(again[1:], together[1:])
    assert np.abs(again[0] - together[0]).max() > 0.1


def test_zero_b_is_the_base_bit_for_bit(toy, noisy_adapter):
    """The standard init changes nothing, alone or in a stack beside a noisy partner: KL to the
    reference at step 0 is exactly 0. The reference itself is the call without `lora`."""
    model, params = toy(num_layers=1, lora_scale=2.0)
    ids = np.random.default_rng(0).integers(0, 64, (4, 7))
    base = forward(model, {"params": params}, ids)
    zero = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * (path[-1].key == "a"), noisy_adapter(params, 1)
    )
    np.testing.assert_array_equal(forward(model, {"params": params, "lora": zero}, ids), base)
    noisy = noisy_adapter(params)
    stack = {"params": params, "lora": stack_adapters([noisy, zero, noisy])}
    np.testing.assert_array_equal(forward(model, stack, ids, None, np.full(4, 1)), base)


def test_prefill_of_a_single_token(toy):
    """A prompt of one token must not attend to the empty slots of the cache (off by about 1)."""
    model, params = toy(num_layers=1)
    tokens, mask = np.asarray([[5], [9]]), np.ones((2, 1), bool)
    cache = empty_cache(model.config, 2, 6, jnp.float32)
    call = lambda method: jax.jit(functools.partial(model.apply, {"params": params}, method=method))
    hidden, _ = call("prefill")(tokens, mask, cache)
    np.testing.assert_allclose(hidden, call("hidden")(tokens), atol=1e-5)


def test_a_row_of_padding_is_finite(toy):
    """A row without one real token has no key to attend to: softmax over nothing is NaN."""
    model, params = toy(num_layers=1)
    tokens = np.zeros((2, 5), np.int32)
    mask = np.asarray([[False] * 5, [True] * 5])
    assert np.isfinite(forward(model, {"params": params}, tokens, mask)).all()


def test_remat_changes_memory_only(toy, noisy_adapter):
    """Same logits and gradients when layers are recomputed."""
    ids = np.random.default_rng(0).integers(0, 64, (2, 6))
    results = []
    for remat in (False, True):
        model, params = toy(num_layers=1, remat=remat)
        adapter = noisy_adapter(params, targets=("q_proj", "down_proj"))
        loss = lambda lora, model=model, params=params: jnp.sum(
            jax.nn.log_softmax(model.apply({"params": params, "lora": lora}, ids))[..., 3]
        )
        results.append(jax.jit(jax.value_and_grad(loss))(adapter))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *results)


@pytest.mark.parametrize("block", [1, 4, 5, 16])
def test_attention_block_by_block_is_attention(monkeypatch, block):
    # 13 tokens: blocks that divide them, that leave a rest, and that are longer
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.normal(size=(2, 13, 2, 3, 8)), jnp.float32)
    k, v = (jnp.asarray(rng.normal(size=(2, 2, 13, 8)), jnp.float32) for _ in range(2))
    order = jnp.tile(jnp.arange(13), (2, 1))
    keys = jnp.where(jnp.asarray(rng.random((2, 13)) < 0.8), order, NEVER)

    def value_and_grads():
        loss = lambda *qkv: jnp.sum(jnp.sin(attention.attend(*qkv, order, keys, scale=0.3, window=7)))
        return jax.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)

    whole = value_and_grads()
    monkeypatch.setattr(attention, "QUERY_BLOCK", block)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, value_and_grads())


@pytest.mark.parametrize("bad", [64, -1])
def test_ids_outside_the_embedding(toy, bad):
    """JAX would take row 63 for both, without a word."""
    model, params = toy(num_layers=1)
    with pytest.raises(ValueError, match=rf"ids must lie in 0\.\.63, got {min(bad, 3)}\.\.{max(bad, 3)}"):
        model.apply({"params": params}, np.asarray([[3, bad]]))
