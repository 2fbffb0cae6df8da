"""Gated delta net (Qwen3.5): linear attention whose state is corrected, not only added to.

Per head, with a state S [dk, dv] in float32 and, for every token, a decay g <= 0 and a strength
beta in (0, 1):

    S <- exp(g) S;   S <- S + k (beta (v - S^T k))^T;   o = S^T q

Many tokens go in chunks: inside a chunk the corrections solve a triangular system, between chunks
only S is carried (Yang et al. 2024, "Gated Delta Networks", section 3.3).
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from agon_jax.models.cache import Context, LayerCache
from agon_jax.models.config import DeltaNet, ModelConfig
from agon_jax.models.layers import Projection, RMSNorm

Array = jax.Array
CHUNK = 64


class GatedDeltaNet(nn.Module):
    """The mixer of one layer: projections, causal convolution, delta rule, gated norm."""

    config: ModelConfig
    mixer: DeltaNet
    lora_scale: float

    @nn.compact
    def __call__(
        self, x: Array, context: Context, layer_cache: LayerCache | None
    ) -> tuple[Array, LayerCache | None]:
        """x [B, T, hidden] -> (output [B, T, hidden], cache)."""
        m, f32 = self.mixer, jnp.float32
        rows, length = x.shape[:2]
        if context.mask is not None:  # before the projections: padding must not enter the window
            x = jnp.where(context.mask[..., None], x, 0)
        project = lambda name, width, axis: Projection(width, ("embed", axis), self.lora_scale, name=name)(
            x, context.adapter
        )
        parameter = lambda name, shape: self.param(
            name, nn.with_logical_partitioning(nn.initializers.zeros, (None,) * len(shape)), shape
        )

        qkv = project("in_proj_qkv", m.channels, None)
        window = None if layer_cache is None else layer_cache["window"]
        qkv, window = causal_convolution(qkv, parameter("conv1d", (m.kernel, m.channels)), window)
        keys = m.num_key_heads * m.key_dim
        q, k, v = jnp.split(nn.silu(qkv), [keys, 2 * keys], axis=-1)
        repeats = m.num_value_heads // m.num_key_heads
        spread = lambda y: jnp.repeat(y.reshape(rows, length, m.num_key_heads, m.key_dim), repeats, axis=2)
        q, k = spread(q), spread(k)
        v = v.reshape(rows, length, m.num_value_heads, m.value_dim)

        beta = nn.sigmoid(project("in_proj_b", m.num_value_heads, None).astype(f32))
        step = project("in_proj_a", m.num_value_heads, None).astype(f32)
        step = nn.softplus(step + parameter("dt_bias", (m.num_value_heads,)).astype(f32))
        decay = -jnp.exp(parameter("A_log", (m.num_value_heads,)).astype(f32)) * step
        if context.mask is not None:  # padding leaves the state as it is
            decay = jnp.where(context.mask[..., None], decay, 0.0)

        state = None if layer_cache is None else layer_cache["state"]
        q, k = unit(q) * m.key_dim**-0.5, unit(k)
        out, state = gated_delta_rule(q, k, v, decay, beta, state)
        z = project("in_proj_z", m.num_value_heads * m.value_dim, "heads").reshape(out.shape)
        out = RMSNorm(self.config.rms_norm_eps, name="norm")(out.astype(x.dtype))
        out = (out.astype(f32) * nn.silu(z.astype(f32))).astype(x.dtype)
        o_proj = Projection(self.config.hidden_size, ("heads", "embed"), self.lora_scale, name="out_proj")
        out = o_proj(out.reshape(rows, length, -1), context.adapter)
        return out, None if layer_cache is None else {"window": window, "state": state}


def unit(x: Array) -> Array:
    """x over its Euclidean norm on the last axis, in float32."""
    x = x.astype(jnp.float32)
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def causal_convolution(x: Array, taps: Array, window: Array | None) -> tuple[Array, Array]:
    """Depthwise: y[t] = sum_k taps[k] x[t - K + 1 + k], float32 [B, T, C].

    Args:
      x: [B, T, C].
      taps: [K, C].
      window: [B, K - 1, C], the inputs before x; None is zeros.

    Returns:
      (y, the next window in x's dtype).
    """
    size, length = taps.shape[0], x.shape[1]
    if window is None:
        window = jnp.zeros((x.shape[0], size - 1, x.shape[2]), x.dtype)
    joined = jnp.concatenate([window.astype(x.dtype), x], axis=1)
    taps = taps.astype(jnp.float32)
    y = sum(taps[k] * joined[:, k : k + length].astype(jnp.float32) for k in range(size))
    return y, joined[:, length:]


def gated_delta_rule(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array | None
) -> tuple[Array, Array]:
    """The recurrence of the module's docstring over T tokens, in float32.

    Args:
      q, k: [B, T, H, K].
      v: [B, T, H, V].
      decay, beta: [B, T, H]; decay <= 0. Padding has k = 0 and decay 0, which changes no state.
      state: [B, H, K, V] before the first token; None is zeros.

    Returns:
      (o [B, T, H, V], the state after the last token).
    """
    q, k, v, decay, beta = (x.astype(jnp.float32) for x in (q, k, v, decay, beta))
    rows, length, heads = beta.shape
    if state is None:
        state = jnp.zeros((rows, heads, k.shape[-1], v.shape[-1]), jnp.float32)
    if length == 1:
        return _one_token(*(x[:, 0] for x in (q, k, v, decay, beta)), state)
    pad = -length % CHUNK

    def chunks(x: Array) -> Array:  # [B, T, H, ...] -> [chunks, B, H, CHUNK, ...]
        x = jnp.pad(x, ((0, 0), (0, pad)) + ((0, 0),) * (x.ndim - 2))
        x = x.reshape(rows, -1, CHUNK, *x.shape[2:])
        return jnp.moveaxis(jnp.moveaxis(x, 1, 0), 3, 2)

    # Rematerialised: of a chunk only the state before it is kept for the backward pass.
    body = jax.checkpoint(lambda state, chunk: _one_chunk(state, *chunk))
    state, out = lax.scan(body, state, tuple(map(chunks, (q, k, v, decay, beta))))
    out = jnp.moveaxis(jnp.moveaxis(out, 2, 3), 0, 1)  # [B, chunks, CHUNK, H, V]
    return out.reshape(rows, length + pad, heads, -1)[:, :length], state


def _one_token(q, k, v, decay, beta, state):
    """q, k [B, H, K], v [B, H, V], decay, beta [B, H]."""
    state = state * jnp.exp(decay)[..., None, None]
    error = (v - jnp.einsum("bhk,bhkv->bhv", k, state)) * beta[..., None]
    state = state + k[..., None] * error[..., None, :]
    return jnp.einsum("bhk,bhkv->bhv", q, state)[:, None], state


def _one_chunk(state, q, k, v, decay, beta):
    """q, k [B, H, C, K], v [B, H, C, V], decay, beta [B, H, C] -> (state, o [B, H, C, V]).

    With G = cumsum(decay), the correction of token i is
    u_i = beta_i (v_i - exp(G_i) S^T k_i - sum_{j < i} exp(G_i - G_j) (k_i . k_j) u_j),
    a unit lower triangular system in u.
    """
    total = jnp.cumsum(decay, axis=-1)
    gap = total[..., :, None] - total[..., None, :]
    lower = jnp.tril(jnp.ones(gap.shape[-2:], bool))
    # Masked before exp: above the diagonal the gap is positive and exp of it may overflow.
    fade = jnp.where(lower, jnp.exp(jnp.where(lower, gap, 0.0)), 0.0)
    mixed = jnp.einsum("bhik,bhjk->bhij", k, k) * fade * beta[..., None]
    target = beta[..., None] * (v - jnp.exp(total)[..., None] * jnp.einsum("bhik,bhkv->bhiv", k, state))
    system = jnp.tril(mixed, -1) + jnp.eye(mixed.shape[-1])
    u = jax.scipy.linalg.solve_triangular(system, target, lower=True, unit_diagonal=True)

    out = jnp.exp(total)[..., None] * jnp.einsum("bhik,bhkv->bhiv", q, state)
    out = out + jnp.einsum("bhij,bhjv->bhiv", jnp.einsum("bhik,bhjk->bhij", q, k) * fade, u)
    left = jnp.exp(total[..., -1:] - total)[..., None]
    state = jnp.exp(total[..., -1])[..., None, None] * state
    return state + jnp.einsum("bhik,bhiv->bhkv", k * left, u), out
