"""Grouped-query softmax attention: rotary embedding, windows, a KV cache updated in place.

Axis letters in einsum strings: b row, q query head and token of one kv head, s key slot, k kv head,
d head_dim.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from agon_jax.models.cache import Context, LayerCache
from agon_jax.models.config import Attention as AttentionConfig
from agon_jax.models.config import ModelConfig, Rope
from agon_jax.models.layers import Projection, RMSNorm, normalize

Array = jax.Array
QUERY_BLOCK = 2048  # query tokens whose attention scores exist at the same time


class Attention(nn.Module):
    """Attention of one layer, as its config says."""

    config: ModelConfig
    mixer: AttentionConfig
    lora_scale: float

    @nn.compact
    def __call__(
        self,
        x: Array,
        table: tuple[Array, Array],
        context: Context,
        layer_cache: LayerCache | None,
        shared: tuple[Array, Array] | None,
    ) -> tuple[Array, LayerCache | None, tuple[Array, Array]]:
        """x [B, T, hidden] -> (output [B, T, hidden], cache, the keys and values attended to).

        Args:
          table: cos and sin of this layer's RoPE.
          context: who may attend to whom; see Context.
          layer_cache: this layer's entry of the cache; None without a cache.
          shared: keys and values [B, KV, S, D] of the layer `mixer.kv_layer`.
        """
        m = self.mixer
        rows, length = x.shape[:2]
        heads_of = lambda y, heads: y.reshape(rows, length, heads, -1)
        project = lambda name, width, axis: Projection(width, ("embed", axis), self.lora_scale, name=name)(
            x, context.adapter
        )
        norm = lambda name: RMSNorm(self.config.rms_norm_eps, self.config.norm, name=name)
        maybe_norm = norm if m.qk_norm else lambda name: lambda y: y

        q = heads_of(
            project("q_proj", m.num_heads * m.head_dim * (2 if m.output_gate else 1), "heads"), m.num_heads
        )
        if m.output_gate:  # q and its gate lie side by side, head by head
            q, gate = jnp.split(q, 2, axis=-1)
        q = rotate(maybe_norm("q_norm")(q), table)
        q = q.reshape(rows, length, m.num_kv_heads, m.queries_per_kv, m.head_dim)

        if m.kv_layer is None:
            k = heads_of(project("k_proj", m.num_kv_heads * m.head_dim, "kv_heads"), m.num_kv_heads)
            if m.keys_as_values:
                v = k
            else:
                v = heads_of(project("v_proj", m.num_kv_heads * m.head_dim, "kv_heads"), m.num_kv_heads)
            k = rotate(maybe_norm("k_norm")(k), table)
            if m.value_norm:
                v = normalize(v, self.config.rms_norm_eps).astype(v.dtype)
            k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)  # [B, KV, T, D]
            if layer_cache is not None:
                write = lambda buffer, new: lax.dynamic_update_slice(
                    buffer, new.astype(buffer.dtype), (0, 0, context.slot, 0)
                )
                layer_cache = {"k": write(layer_cache["k"], k), "v": write(layer_cache["v"], v)}
                # A prefill into an empty cache needs only the keys it brings.
                if context.key_order.shape[1] != length:
                    k, v = layer_cache["k"], layer_cache["v"]
        else:
            k, v = shared

        out = attend(q, k, v, context.query_order, context.key_order, scale=m.scale, window=m.window)
        out = out.reshape(rows, length, m.num_heads * m.head_dim)
        if m.output_gate:
            out = out * nn.sigmoid(gate).reshape(out.shape)
        o_proj = Projection(self.config.hidden_size, ("heads", "embed"), self.lora_scale, name="o_proj")
        return o_proj(out, context.adapter), layer_cache, (k, v)


def rope_table(positions: Array, rope: Rope, dtype: Any) -> tuple[Array, Array]:
    """cos and sin [B, T, 1, dims / 2] for positions [B, T]; angles in float32, then cast."""
    angles = positions[..., None, None].astype(jnp.float32) * rope.inverse_frequencies()
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def rotate(x: Array, table: tuple[Array, Array]) -> Array:
    """Split-half rotary embedding of the leading dims of x [B, T, heads, D]."""
    cos, sin = table
    dims = 2 * cos.shape[-1]
    left, right = jnp.split(x[..., :dims], 2, axis=-1)
    turned = [left * cos - right * sin, right * cos + left * sin]
    return jnp.concatenate([*turned, x[..., dims:]], axis=-1)


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Softmax in float32 over the last axis. A row with no allowed key gives uniform, not NaN."""
    # Masked before the cast: on a TPU the masked scores are written out, here in the narrow dtype.
    return jax.nn.softmax(jnp.where(mask, scores, -1e30).astype(jnp.float32), axis=-1)


def allowed(query_order: Array, key_order: Array, window: int | None) -> Array:
    """[B, T], [B, S] -> [B, T, S]: keys that are not later than the query and within its window."""
    queries, keys = query_order[:, :, None], key_order[:, None, :]
    mask = keys <= queries
    return mask if window is None else mask & (keys > queries - window)


def attend(
    q: Array,
    k: Array,
    v: Array,
    query_order: Array,
    key_order: Array,
    *,
    scale: float,
    window: int | None = None,
) -> Array:
    """q [B, T, KV, G, D] on k, v [B, KV, S, D] -> [B, T, KV, G, D].

    The query heads of one kv head and the query tokens form one axis of a plain batched matmul:
    every backend has a fast path for that shape, and the cache is read once, where it lies. Rows
    longer than QUERY_BLOCK go block by block, so that no [T, S] scores exist for 16k tokens.
    """
    block = lambda q, order: _attend_block(q, k, v, allowed(order, key_order, window), scale)
    rows, length = q.shape[:2]
    if length <= QUERY_BLOCK:
        return block(q, query_order)
    pad = -length % QUERY_BLOCK

    def blocks(x: Array) -> Array:  # [B, T, ...] -> [blocks, B, QUERY_BLOCK, ...]
        x = jnp.pad(x, ((0, 0), (0, pad)) + ((0, 0),) * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(rows, -1, QUERY_BLOCK, *x.shape[2:]), 1, 0)

    out = lax.map(jax.checkpoint(lambda pair: block(*pair)), (blocks(q), blocks(query_order)))
    return jnp.moveaxis(out, 0, 1).reshape(rows, length + pad, *q.shape[2:])[:, :length]


def _attend_block(q: Array, k: Array, v: Array, mask: Array, scale: float) -> Array:
    rows, length, kv_heads, group, dim = q.shape
    q = q.transpose(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * length, dim)
    scores = jnp.einsum("bkqd,bksd->bkqs", q, k) * scale
    scores = scores.reshape(rows, kv_heads, group, length, -1)
    weights = masked_softmax(scores, mask[:, None, None]).astype(v.dtype)
    weights = weights.reshape(rows, kv_heads, group * length, -1)
    out = jnp.einsum("bkqs,bksd->bkqd", weights, v)
    return out.reshape(rows, kv_heads, group, length, dim).transpose(0, 3, 1, 2, 4)
