"""What decoding remembers, and which tokens of a call may see which."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agon_jax.models.config import DeltaNet, ModelConfig

Array = jax.Array
# {"k", "v"}: [B, KV, S, D] of attention, {"window": [B, taps - 1, channels], "state": [B, H, K, V]}
# of a delta net, {} of a layer that uses another one's keys and values.
LayerCache = dict[str, Array]
NEVER = 2**30  # order of a key that nobody may attend to


class Cache(NamedTuple):
    """A fixed number of slots S for B rows; every call appends its T tokens to all rows.

    Attributes:
      layers: one entry a layer.
      order: [B, S] int32, the number of real tokens before the slot's token within its row; NEVER
        for padding and empty slots.
      count: [B] int32, real tokens so far: order, and by default position, of the next one.
      slot: [] int32, slots filled.
    """

    layers: list[LayerCache]
    order: Array
    count: Array
    slot: Array


class Context(NamedTuple):
    """What all layers of one call share.

    Attributes:
      query_order: [B, T] int32, see Cache.order; padding has that of a neighbour.
      key_order: [B, T] or, with a cache that is not empty, [B, S].
      mask: [B, T] bool, True on real tokens; None where all are real.
      adapter: [B] index of each row's adapter, or None.
      slot: first slot to write; None without a cache.
    """

    query_order: Array
    key_order: Array
    mask: Array | None
    adapter: Array | None
    slot: Array | int | None


def positions_of(mask: Array) -> Array:
    """[B, T] bool -> positions counted over real tokens (leading padding gets 0)."""
    return jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0).astype(jnp.int32)


def empty_cache(config: ModelConfig, rows: int, slots: int, dtype: Any) -> Cache:
    """An empty cache for `rows` rows of `slots` tokens; a delta net's state is float32."""

    def layer(mixer: Any) -> LayerCache:
        if isinstance(mixer, DeltaNet):
            state = (rows, mixer.num_value_heads, mixer.key_dim, mixer.value_dim)
            window = (rows, mixer.kernel - 1, mixer.channels)
            return {"window": jnp.zeros(window, dtype), "state": jnp.zeros(state, jnp.float32)}
        if mixer.kv_layer is not None:
            return {}
        shape = (rows, mixer.num_kv_heads, slots, mixer.head_dim)
        return {"k": jnp.zeros(shape, dtype), "v": jnp.zeros(shape, dtype)}

    return Cache(
        layers=[layer(each.mixer) for each in config.layers],
        order=jnp.full((rows, slots), NEVER, jnp.int32),
        count=jnp.zeros(rows, jnp.int32),
        slot=jnp.int32(0),
    )
