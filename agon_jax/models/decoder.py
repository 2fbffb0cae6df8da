"""The Qwen3 decoder in Flax Linen: teacher-forced, prefill and cached decode, with LoRA.

`apply({"params": base}, ...)` is the reference policy; adding a `"lora"` collection makes it a
policy. Layers are unrolled: a scan over layers would carry, and so copy, the whole KV cache at
every decoded token.

Left out: dropout, biases, sliding windows (no Qwen3 checkpoint uses them).

Axis letters in einsum strings: b row, t query token, s key slot, k kv head, g query heads per kv
head, d head_dim, p adapter, r LoRA rank.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from agon_jax.models.config import ModelConfig

Array = jax.Array
QUERY_BLOCK = 2048  # query tokens whose attention scores exist at the same time
# One entry a layer: {"k", "v"}: [B, KV, S, D]. Which slots may be attended to is the caller's mask.
Cache = list[dict[str, Array]]


class Projection(nn.Module):
    """y = x W, plus scale * x A B for the row's adapter when a `lora` collection is present."""

    features: int
    axes: tuple[str, str]
    lora_scale: float

    @nn.compact
    def __call__(self, x: Array, adapter: Array | None) -> Array:
        init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), self.axes)
        kernel = self.param("kernel", init, (x.shape[-1], self.features))
        y = x @ kernel.astype(x.dtype)
        if not self.has_variable("lora", "a"):
            return y
        a = self.get_variable("lora", "a").astype(x.dtype)
        b = self.get_variable("lora", "b").astype(x.dtype)
        if adapter is None:  # one adapter for all rows: a [in, r], b [r, out]
            return y + expand(self.lora_scale * (x @ a), b)
        # A stack of adapters, one index a row: plain matmuls with all P adapters side by side (the
        # rank is small), between them a one-hot that keeps the row's own. Gathering A and B per
        # row would move B times the adapter's bytes.
        policies, fan_in, rank = a.shape
        own = self.lora_scale * jax.nn.one_hot(adapter, policies, dtype=x.dtype)
        low = x @ a.swapaxes(0, 1).reshape(fan_in, policies * rank)
        low = low.reshape(*x.shape[:-1], policies, rank) * own[:, None, :, None]
        return y + low.reshape(*x.shape[:-1], policies * rank) @ b.reshape(policies * rank, self.features)


@jax.custom_vjp
def expand(low: Array, b: Array) -> Array:
    """low [..., r] @ b [r, out], with a gradient of b that transposes the small operand.

    JAX would contract (cotangent, low); XLA then transposes the cotangent, out / r times larger.
    """
    return low @ b


def _expand_backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    low, b = residuals
    tokens = lambda x: x.reshape(-1, x.shape[-1])
    grad_b = lax.dot_general(tokens(low), tokens(cotangent), (((0,), (0,)), ((), ())))
    return cotangent @ b.T, grad_b


expand.defvjp(lambda low, b: (low @ b, (low, b)), _expand_backward)


class RMSNorm(nn.Module):
    """Normalise in float32, cast to the input's dtype, then multiply by the weight."""

    eps: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
        weight = self.param("scale", init, (x.shape[-1],))
        x32 = x.astype(jnp.float32)
        normed = x32 * lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + self.eps)
        return weight.astype(x.dtype) * normed.astype(x.dtype)


def rope_table(positions: Array, head_dim: int, theta: float, dtype: Any) -> tuple[Array, Array]:
    """cos and sin [B, T, 1, D / 2] for positions [B, T]; angles in float32, then cast."""
    half = head_dim // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def rotate(x: Array, table: tuple[Array, Array]) -> Array:
    """Split-half rotary embedding of x [B, T, heads, D]."""
    cos, sin = table
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Softmax in float32 over the last axis. A row with no allowed key gives uniform, not NaN."""
    # Masked before the cast: on a TPU the masked scores are written out, here in the narrow dtype.
    return jax.nn.softmax(jnp.where(mask, scores, -1e30).astype(jnp.float32), axis=-1)


def attend(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """q [B, T, KV, G, D] on k, v [B, KV, S, D] under mask [B, T, S] -> [B, T, KV, G, D].

    The query heads of one kv head and the query tokens form one axis of a plain batched matmul:
    every backend has a fast path for that shape, and the cache is read once, where it lies. Rows
    longer than QUERY_BLOCK go block by block, so that no [T, S] scores exist for 16k tokens.
    """
    length = q.shape[1]
    if length <= QUERY_BLOCK:
        return _attend_block(q, k, v, mask)
    pad = -length % QUERY_BLOCK
    blocks = lambda x: jnp.moveaxis(
        jnp.pad(x, ((0, 0), (0, pad)) + ((0, 0),) * (x.ndim - 2)).reshape(
            x.shape[0], -1, QUERY_BLOCK, *x.shape[2:]
        ),
        1,
        0,
    )
    one = jax.checkpoint(lambda block: _attend_block(block[0], k, v, block[1]))
    out = jnp.moveaxis(lax.map(one, (blocks(q), blocks(mask))), 0, 1)
    return out.reshape(q.shape[0], length + pad, *q.shape[2:])[:, :length]


def _attend_block(q: Array, k: Array, v: Array, mask: Array) -> Array:
    rows, length, kv_heads, group, dim = q.shape
    q = q.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * length, dim)
    scores = jnp.einsum("bkqd,bksd->bkqs", q, k) * dim**-0.5
    scores = scores.reshape(rows, kv_heads, group, length, -1)
    weights = masked_softmax(scores, mask[:, None, None]).astype(v.dtype)
    weights = weights.reshape(rows, kv_heads, group * length, -1)
    out = jnp.einsum("bkqs,bksd->bkqd", weights, v)
    return out.reshape(rows, kv_heads, group, length, dim).transpose(0, 3, 1, 2, 4)


class Attention(nn.Module):
    """Grouped-query attention with per-head RMSNorm of q and k before RoPE."""

    config: ModelConfig
    lora_scale: float

    @nn.compact
    def __call__(self, x, table, mask, adapter, layer_cache, slot):
        c = self.config
        rows, length = x.shape[:2]
        project = lambda name, heads, axis: Projection(
            heads * c.head_dim, ("embed", axis), self.lora_scale, name=name
        )(x, adapter).reshape(rows, length, heads, c.head_dim)
        q = project("q_proj", c.num_heads, "heads")
        k = project("k_proj", c.num_kv_heads, "kv_heads")
        v = project("v_proj", c.num_kv_heads, "kv_heads")
        q = rotate(RMSNorm(c.rms_norm_eps, name="q_norm")(q), table)
        k = rotate(RMSNorm(c.rms_norm_eps, name="k_norm")(k), table)
        q = q.reshape(rows, length, c.num_kv_heads, c.queries_per_kv, c.head_dim)
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, KV, T, D]
        if layer_cache is not None:
            write = lambda buffer, new: lax.dynamic_update_slice(
                buffer, new.astype(buffer.dtype), (0, 0, slot, 0)
            )
            layer_cache = {"k": write(layer_cache["k"], k), "v": write(layer_cache["v"], v)}
            if mask.shape[-1] > length:  # prefill of an empty cache needs only the keys it brings
                k, v = layer_cache["k"], layer_cache["v"]
        out = attend(q, k, v, mask)
        out = out.reshape(rows, length, c.num_heads * c.head_dim)
        out = Projection(c.hidden_size, ("heads", "embed"), self.lora_scale, name="o_proj")(out, adapter)
        return out, layer_cache


class Mlp(nn.Module):
    """down(silu(gate) * up)."""

    config: ModelConfig
    lora_scale: float

    @nn.compact
    def __call__(self, x, adapter):
        c = self.config
        project = lambda name, width, axes: Projection(width, axes, self.lora_scale, name=name)
        gate = project("gate_proj", c.intermediate_size, ("embed", "mlp"))(x, adapter)
        up = project("up_proj", c.intermediate_size, ("embed", "mlp"))(x, adapter)
        return project("down_proj", c.hidden_size, ("mlp", "embed"))(nn.silu(gate) * up, adapter)


class Layer(nn.Module):
    """Pre-norm block."""

    config: ModelConfig
    lora_scale: float

    @nn.compact
    def __call__(self, x, table, mask, adapter, layer_cache, slot):
        norm = lambda name: RMSNorm(self.config.rms_norm_eps, name=name)
        attention = Attention(self.config, self.lora_scale, name="self_attn")
        out, layer_cache = attention(norm("input_layernorm")(x), table, mask, adapter, layer_cache, slot)
        x = x + out
        x = x + Mlp(self.config, self.lora_scale, name="mlp")(norm("post_attention_layernorm")(x), adapter)
        return x, layer_cache


class Decoder(nn.Module):
    """A causal language model.

    Attributes:
      config: sizes.
      dtype: dtype of activations and of the KV cache.
      lora_scale: alpha / rank of the adapters in the `lora` collection.
      num_ids: ids the tokenizer has. Logits of padded vocabulary rows (id >= num_ids) are
        -1e30, so they can never be sampled and take no mass in a log-softmax.
      remat: recompute each layer in the backward pass (memory of one layer's activations).
      rows: sharding of the row axis, for weights split over the same mesh axis. The lookup's
        output would else follow the split embedding, hidden axis first, and every matmul would
        gather all rows and add up partial sums: logits of all rows on every chip.
    """

    config: ModelConfig
    dtype: Any = jnp.float32
    lora_scale: float = 1.0
    num_ids: int | None = None
    remat: bool = False
    rows: jax.sharding.NamedSharding | None = None

    def setup(self):
        c = self.config
        init = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed"))
        self.embed_tokens = self.param("embed_tokens", init, (c.vocab_size, c.hidden_size))
        layer = nn.remat(Layer) if self.remat else Layer
        self.layers = [layer(c, self.lora_scale, name=f"layers_{i}") for i in range(c.num_layers)]
        self.norm = RMSNorm(c.rms_norm_eps)
        if not c.tie_word_embeddings:
            init = nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed"))
            self.lm_head = self.param("lm_head", init, (c.vocab_size, c.hidden_size))

    def __call__(
        self,
        tokens: Array,
        positions: Array | None = None,
        mask: Array | None = None,
        adapter: Array | None = None,
    ) -> Array:
        """Float32 logits [B, T, V] of teacher-forced tokens [B, T]; see `hidden`."""
        return self.unembed(self.hidden(tokens, positions, mask, adapter))

    def hidden(self, tokens, positions=None, mask=None, adapter=None) -> Array:
        """Final normed hidden states [B, T, hidden].

        Args:
          tokens: [B, T] int.
          positions: [B, T] int; by default the count of real tokens before each.
          mask: [B, T] bool, True on real tokens (padding on either side); default all real.
          adapter: [B] index into a stacked `lora` collection; None when `lora` is one adapter.
        """
        mask = jnp.ones(tokens.shape, bool) if mask is None else mask
        causal = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
        hidden, _ = self._run(
            tokens,
            positions_of(mask) if positions is None else positions,
            causal[None] & mask[:, None, :],
            adapter,
            None,
            None,
        )
        return hidden

    def prefill(self, tokens, mask, cache: Cache, adapter=None) -> tuple[Array, Cache]:
        """Write T prompt tokens into slots 0..T-1 of an empty cache; hidden [B, T, hidden]."""
        causal = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
        return self._run(tokens, positions_of(mask), causal[None] & mask[:, None, :], adapter, cache, 0)

    def decode(self, tokens, positions, mask, cache: Cache, slot, adapter=None):
        """One token a row: tokens, positions [B]; mask [B, S] of the slots it may attend to,
        its own `slot` included. Returns float32 logits [B, V] and the cache."""
        hidden, cache = self._run(tokens[:, None], positions[:, None], mask[:, None, :], adapter, cache, slot)
        return self.unembed(hidden)[:, 0], cache

    def unembed(self, hidden: Array) -> Array:
        """Hidden states [..., hidden] -> float32 logits [..., V]."""
        table = self.embed_tokens if self.config.tie_word_embeddings else self.lm_head
        logits = jnp.einsum(
            "...h,vh->...v", hidden, table.astype(self.dtype), preferred_element_type=jnp.float32
        )
        if self.num_ids is not None and self.num_ids < self.config.vocab_size:
            real = jnp.arange(self.config.vocab_size) < self.num_ids
            logits = jnp.where(real, logits, -1e30)
        return logits

    def _run(self, tokens, positions, mask, adapter, cache, slot):
        c = self.config
        x = self.embed_tokens.astype(self.dtype)[tokens]
        if self.rows is not None:
            x = lax.with_sharding_constraint(x, self.rows)
        table = rope_table(positions, c.head_dim, c.rope_theta, self.dtype)
        new_cache = []
        for i, layer in enumerate(self.layers):
            x, layer_cache = layer(x, table, mask, adapter, None if cache is None else cache[i], slot)
            new_cache.append(layer_cache)
        return self.norm(x), new_cache


def positions_of(mask: Array) -> Array:
    """[B, T] bool -> positions counted over real tokens (padding gets 0)."""
    return jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)


def empty_cache(config: ModelConfig, rows: int, slots: int, dtype: Any) -> Cache:
    """Zeroed KV cache for `rows` rows of `slots` tokens."""
    zeros = lambda: jnp.zeros((rows, config.num_kv_heads, slots, config.head_dim), dtype)
    return [{"k": zeros(), "v": zeros()} for _ in range(config.num_layers)]
