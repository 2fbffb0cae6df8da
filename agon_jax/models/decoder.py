"""The decoder in Flax Linen: teacher-forced, prefill and cached decode, with LoRA.

One module for all families; what differs between them is data (`config.py`).
`apply({"params": base}, ...)` is the reference policy; adding a `"lora"` collection makes it a
policy. Layers are unrolled: a scan over layers would carry, and so copy, the whole KV cache at
every decoded token.

Left out: dropout, biases, mixture of experts, images and sound; ring buffers for windows (a layer
with a window keeps all slots).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from agon_jax.models import config as config_lib
from agon_jax.models.attention import Attention, rope_table
from agon_jax.models.cache import NEVER, Cache, Context, positions_of
from agon_jax.models.config import DeltaNet, ModelConfig
from agon_jax.models.delta_net import GatedDeltaNet
from agon_jax.models.layers import ACTIVATIONS, Mlp, Projection, RMSNorm

Array = jax.Array


class Layer(nn.Module):
    """Pre-norm block; with `sandwich_norms` every branch is normed again before it is added."""

    config: ModelConfig
    layer: config_lib.Layer
    lora_scale: float

    @nn.compact
    def __call__(self, x, table, context, layer_cache, shared, per_layer):
        c, adapter, mixer = self.config, context.adapter, self.layer.mixer
        norm = lambda name: RMSNorm(c.rms_norm_eps, c.norm, name=name)
        kv = None
        branch = norm("input_layernorm")(x)
        if isinstance(mixer, DeltaNet):
            delta_net = GatedDeltaNet(c, mixer, self.lora_scale, name="linear_attn")
            branch, layer_cache = delta_net(branch, context, layer_cache)
        else:
            attention = Attention(c, mixer, self.lora_scale, name="self_attn")
            branch, layer_cache, kv = attention(branch, table, context, layer_cache, shared)
        mlp = Mlp(c, self.layer.intermediate_size, self.lora_scale, name="mlp")
        if c.sandwich_norms:
            x = x + norm("post_attention_layernorm")(branch)
            branch = mlp(norm("pre_feedforward_layernorm")(x), adapter)
            x = x + norm("post_feedforward_layernorm")(branch)
        else:
            x = x + branch
            x = x + mlp(norm("post_attention_layernorm")(x), adapter)
        if per_layer is not None:
            project = lambda name, width, axes: Projection(width, axes, self.lora_scale, name=name)
            gate = project("per_layer_input_gate", c.per_layer_dim, ("embed", None))(x, adapter)
            branch = ACTIVATIONS[c.activation](gate) * per_layer
            branch = project("per_layer_projection", c.hidden_size, (None, "embed"))(branch, adapter)
            x = x + norm("post_per_layer_input_norm")(branch)
        if c.layer_scalar:
            init = nn.with_logical_partitioning(nn.initializers.ones, (None,))
            x = x * self.param("layer_scalar", init, (1,)).astype(x.dtype)
        return x, layer_cache, kv


class Decoder(nn.Module):
    """A causal language model.

    Attributes:
      config: sizes and rules.
      dtype: dtype of activations and of the KV cache.
      lora_scale: alpha / rank of the adapters in the `lora` collection (alpha / sqrt(rank) with
        rsLoRA).
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
        self.layers = [layer(c, each, self.lora_scale, name=f"layers_{i}") for i, each in enumerate(c.layers)]
        self.norm = RMSNorm(c.rms_norm_eps, c.norm)
        if not c.tie_word_embeddings:
            self.lm_head = self.param("lm_head", init, (c.vocab_size, c.hidden_size))
        if c.per_layer_dim:
            width = c.per_layer_count * c.per_layer_dim
            self.embed_tokens_per_layer = self.param(
                "embed_tokens_per_layer", init, (c.per_layer_vocab, width)
            )
            self.per_layer_model_projection = Projection(width, ("embed", None), self.lora_scale)
            self.per_layer_projection_norm = RMSNorm(c.rms_norm_eps, c.norm)

    def __call__(
        self,
        tokens: Array,
        positions: Array | None = None,
        mask: Array | None = None,
        adapter: Array | None = None,
        cache: Cache | None = None,
    ) -> Array | tuple[Array, Cache]:
        """Float32 logits [B, T, V] of tokens [B, T], and the new cache if one was given.

        Args:
          tokens: [B, T] int.
          positions: [B, T] int, for RoPE; by default the count of real tokens before each.
          mask: [B, T] bool, True on real tokens (padding on either side); default all real.
          adapter: [B] index into a stacked `lora` collection; None when `lora` is one adapter.
          cache: of `empty_cache`; the tokens are appended to it and see what it holds.

        Raises:
          ValueError: the cache is too small (inside jit, where its fill is unknown, the caller
            must make sure).
        """
        if cache is None:
            return self.unembed(self.hidden(tokens, positions, mask, adapter))
        hidden, cache = self._append(tokens, positions, mask, adapter, cache)
        return self.unembed(hidden), cache

    def hidden(self, tokens, positions=None, mask=None, adapter=None) -> Array:
        """Final normed hidden states [B, T, hidden]; arguments as of `__call__`."""
        order = positions_of(jnp.ones(tokens.shape, bool) if mask is None else mask)
        keys = order if mask is None else jnp.where(mask, order, NEVER)
        positions = order if positions is None else positions
        return self._run(tokens, positions, Context(order, keys, mask, adapter, None), None)[0]

    def prefill(self, tokens, mask, cache: Cache, adapter=None) -> tuple[Array, Cache]:
        """Write T prompt tokens into the first slots of an EMPTY cache; hidden [B, T, hidden]."""
        order = positions_of(mask)
        keys = jnp.where(mask, order, NEVER)
        hidden, layers = self._run(tokens, order, Context(order, keys, mask, adapter, 0), cache.layers)
        return hidden, Cache(
            layers,
            lax.dynamic_update_slice(cache.order, keys, (0, 0)),
            mask.sum(axis=1, dtype=jnp.int32),
            jnp.int32(tokens.shape[1]),
        )

    def decode(self, tokens, cache: Cache, adapter=None) -> tuple[Array, Cache]:
        """One more token a row, [B]: float32 logits [B, V] and the cache."""
        hidden, cache = self._append(tokens[:, None], None, None, adapter, cache)
        return self.unembed(hidden)[:, 0], cache

    def unembed(self, hidden: Array) -> Array:
        """Hidden states [..., hidden] -> float32 logits [..., V]."""
        c = self.config
        table = self.embed_tokens if c.tie_word_embeddings else self.lm_head
        logits = jnp.einsum(
            "...h,vh->...v", hidden, table.astype(self.dtype), preferred_element_type=jnp.float32
        )
        if c.logit_softcap is not None:
            logits = c.logit_softcap * jnp.tanh(logits / c.logit_softcap)
        if self.num_ids is not None and self.num_ids < c.vocab_size:
            logits = jnp.where(jnp.arange(c.vocab_size) < self.num_ids, logits, -1e30)
        return logits

    def _append(self, tokens, positions, mask, adapter, cache: Cache) -> tuple[Array, Cache]:
        """T more tokens a row after whatever the cache holds."""
        rows, length = tokens.shape
        slots = cache.order.shape[1]
        known = not isinstance(cache.slot, jax.core.Tracer)
        if length > slots or (known and int(cache.slot) + length > slots):
            filled = f", {int(cache.slot)} of them filled" if known else ""
            raise ValueError(f"{length} more tokens do not fit the cache of {slots} slots{filled}")
        real = jnp.ones((rows, length), bool) if mask is None else mask
        order = jnp.maximum(cache.count[:, None] + jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1, 0)
        keys = lax.dynamic_update_slice(cache.order, jnp.where(real, order, NEVER), (0, cache.slot))
        positions = order if positions is None else positions
        context = Context(order, keys, mask, adapter, cache.slot)
        hidden, layers = self._run(tokens, positions, context, cache.layers)
        count = cache.count + real.sum(axis=1, dtype=jnp.int32)
        return hidden, Cache(layers, keys, count, cache.slot + length)

    def _run(self, tokens, positions, context: Context, layer_caches) -> tuple[Array, list]:
        c = self.config
        # Indexing with an id that is too large would take the last row.
        if isinstance(tokens, np.ndarray) and np.any((tokens < 0) | (tokens >= c.vocab_size)):
            raise ValueError(f"ids must lie in 0..{c.vocab_size - 1}, got {tokens.min()}..{tokens.max()}")
        x = self._embed(self.embed_tokens, tokens, c.hidden_size if c.scale_embeddings else None)
        per_layer = self._per_layer(tokens, x, context.adapter) if c.per_layer_dim else None
        tables, kv, new_caches = {}, {}, []
        for i, (layer, each) in enumerate(zip(self.layers, c.layers, strict=True)):
            table, shared = None, None
            if isinstance(each.mixer, config_lib.Attention):
                rope = each.mixer.rope
                if rope not in tables:
                    tables[rope] = rope_table(positions, rope, self.dtype)
                table, shared = tables[rope], kv.get(each.mixer.kv_layer)
            x, layer_cache, own = layer(
                x,
                table,
                context,
                None if layer_caches is None else layer_caches[i],
                shared,
                None if per_layer is None else per_layer[:, :, i],
            )
            if i in c.shared_kv:
                kv[i] = own
            new_caches.append(layer_cache)
        return self.norm(x), new_caches

    def _embed(self, table: Array, tokens: Array, scale: int | None) -> Array:
        """Rows of a table, times sqrt(scale) rounded to the activations' dtype."""
        x = table.astype(self.dtype)[tokens]
        if self.rows is not None:
            x = lax.with_sharding_constraint(x, self.rows)
        return x if scale is None else x * jnp.asarray(scale**0.5, self.dtype)

    def _per_layer(self, tokens: Array, x: Array, adapter: Array | None) -> Array:
        """Gemma 4's second input of every layer, [B, T, per_layer_count, per_layer_dim]."""
        c = self.config
        looked_up = self._embed(self.embed_tokens_per_layer, tokens, c.per_layer_dim)
        shape = (*tokens.shape, c.per_layer_count, c.per_layer_dim)
        scaled = lambda y, by: (y.astype(jnp.float32) * by).astype(self.dtype)
        projected = scaled(self.per_layer_model_projection(x, adapter), c.hidden_size**-0.5)
        projected = self.per_layer_projection_norm(projected.reshape(shape))
        return scaled(projected + looked_up.reshape(shape), 2**-0.5)
