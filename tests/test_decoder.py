"""The decoder against transformers, its cache against itself, and adapters against merged weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax import models
from agon_jax.models import decoder
from agon_jax.models.convert import param_specs, tiny_config
from agon_jax.models.decoder import Decoder, RMSNorm, empty_cache, masked_softmax, rope_table
from agon_jax.models.lora import stack_adapters

TIED = dict(tie_word_embeddings=True, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
UNTIED = dict(
    tie_word_embeddings=False, num_attention_heads=6, num_key_value_heads=3, head_dim=24, num_hidden_layers=1
)  # fmt: skip
LENGTHS, WIDTH, CONTINUED = (9, 4, 1), 9, 8


def torch_logits(hf, ids):
    import torch

    with torch.no_grad():
        return hf(torch.tensor(np.asarray(ids))).logits.float().numpy()


def left_pad(rows, width, pad=0):
    tokens, mask = np.full((len(rows), width), pad, np.int32), np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        tokens[i, width - len(row) :], mask[i, width - len(row) :] = row, True
    return tokens, mask


@functools.partial(jax.jit, static_argnums=0)
def forward(model, variables, tokens, mask=None, adapter=None):
    return model.apply(variables, tokens, mask=mask, adapter=adapter)


@pytest.mark.parametrize("sizes", [TIED, UNTIED], ids=["tied", "untied"])
def test_parity_with_transformers(qwen3, sizes):
    """Full forward, left padding and cached decoding: within 1e-4 at logits of about 3.

    A lost q/k norm moves logits by 0.5 and more, RoPE on interleaved pairs by 1, a query group
    taken from the wrong kv head by 1, positions counted over padding or a key slot off by one by
    0.1. The small shards make transformers write an index, as for a real checkpoint.
    """
    hf, folder = qwen3(max_shard_size="20KB", **sizes)
    assert (folder / "model.safetensors.index.json").is_file()
    model, params = models.load(str(folder), dtype=jnp.float32)
    variables = {"params": params}
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 61, n + CONTINUED) for n in LENGTHS]
    wanted = [torch_logits(hf, row[None])[0] for row in rows]
    assert np.std(wanted[0]) > 1  # otherwise 1e-4 would say little

    whole = forward(model, variables, rows[0][None])
    assert whole.dtype == jnp.float32
    np.testing.assert_allclose(whole[0], wanted[0], atol=1e-4)

    tokens, mask = left_pad([row[:n] for row, n in zip(rows, LENGTHS, strict=True)], WIDTH)
    padded = forward(model, variables, tokens, mask)
    for i, n in enumerate(LENGTHS):
        np.testing.assert_allclose(padded[i, WIDTH - n :], wanted[i][:n], atol=1e-4)

    slots = WIDTH + CONTINUED
    cache = empty_cache(model.config, len(rows), slots, jnp.float32)
    prefill = jax.jit(functools.partial(model.apply, method="prefill"))
    decode = jax.jit(functools.partial(model.apply, method="decode"))
    hidden, cache = prefill(variables, tokens, mask, cache)
    last = model.apply(variables, hidden[:, -1], method="unembed")
    np.testing.assert_allclose(last, [w[n - 1] for w, n in zip(wanted, LENGTHS, strict=True)], atol=1e-4)
    lengths, seen = np.asarray(LENGTHS), np.pad(mask, ((0, 0), (0, CONTINUED)))
    for i in range(CONTINUED):
        seen[:, WIDTH + i] = True
        ids = np.asarray([row[n + i] for row, n in zip(rows, LENGTHS, strict=True)])
        logits, cache = decode(variables, ids, lengths + i, seen, cache, WIDTH + i)
        np.testing.assert_allclose(
            logits, [w[n + i] for w, n in zip(wanted, LENGTHS, strict=True)], atol=1e-4
        )


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


def test_bfloat16_is_as_close_to_float32_as_transformers(qwen3):
    """Mean KL(float32 || bfloat16) within 1.5 times the reference's own (measured: about 1.05 times)."""
    import torch
    from transformers import Qwen3ForCausalLM

    hf, folder = qwen3(**UNTIED | {"num_hidden_layers": 2})
    ids = np.random.default_rng(2).integers(0, 61, (4, 48))
    log_softmax = lambda x: np.asarray(jax.nn.log_softmax(jnp.asarray(x, jnp.float32)))
    exact = log_softmax(torch_logits(hf, ids))
    kl = lambda logits: float(np.mean(np.sum(np.exp(exact) * (exact - log_softmax(logits)), axis=-1)))
    theirs = kl(torch_logits(Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval(), ids))
    model, params = models.load(str(folder), dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    ours = kl(forward(model, {"params": params}, ids))
    assert 0 < ours <= 1.5 * theirs


def test_what_stays_in_float32():
    """Parts too small to show in the KL above, but not on long rows.

    Rotary angles: 1001 is 1000 in bfloat16, and its sine 0.827 instead of 0.920. Softmax: 1024 equal
    scores sum to 1; in bfloat16 a running sum stops growing at 256. RMSNorm: rounded before the
    weight is applied; one rounding fewer differs in the last bit.
    """
    _, sin = rope_table(jnp.asarray([[1001]]), 8, 1e4, jnp.bfloat16)
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
    mask = jnp.tril(jnp.ones((13, 13), bool))[None] & jnp.asarray(rng.random((2, 1, 13)) < 0.8)

    def value_and_grads():
        return jax.value_and_grad(lambda *x: jnp.sum(jnp.sin(decoder.attend(*x, mask))), argnums=(0, 1, 2))(
            q, k, v
        )

    whole = value_and_grads()
    monkeypatch.setattr(decoder, "QUERY_BLOCK", block)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, value_and_grads())
