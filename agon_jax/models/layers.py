"""What every block is made of: linear layers with adapters, RMSNorm, the gated MLP."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from agon_jax.models.config import ModelConfig

Array = jax.Array
ACTIVATIONS = {"silu": nn.silu, "gelu_tanh": lambda x: nn.gelu(x, approximate=True)}


class Projection(nn.Module):
    """y = x W, plus scale * x A B for the row's adapter when a `lora` collection is present."""

    features: int
    axes: tuple[str | None, str | None]
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
        if adapter is None and a.ndim == 2:  # one adapter for all rows: a [in, r], b [r, out]
            return y + expand(self.lora_scale * (x @ a), b)
        if adapter is None:  # a stack of G adapters [G, in, r], row i under adapter i % G
            grouped = x.reshape(-1, len(a), *x.shape[1:])
            low = self.lora_scale * jnp.einsum("ng...i,gir->ng...r", grouped, a)
            return y + jnp.einsum("ng...r,gro->ng...o", low, b).reshape(y.shape)
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
    """Normalise in float32, then apply the weight as the family does (`ModelConfig.norm`)."""

    eps: float
    style: str = "cast_first"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        plain = nn.initializers.zeros if self.style == "one_plus" else nn.initializers.ones
        weight = self.param("scale", nn.with_logical_partitioning(plain, ("norm",)), (x.shape[-1],))
        normed = normalize(x, self.eps)
        if self.style == "cast_first":
            return weight.astype(x.dtype) * normed.astype(x.dtype)
        weight = weight.astype(jnp.float32) + (1.0 if self.style == "one_plus" else 0.0)
        return (normed * weight).astype(x.dtype)


def normalize(x: Array, eps: float) -> Array:
    """x over its root mean square on the last axis, in float32."""
    x = x.astype(jnp.float32)
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)


class Mlp(nn.Module):
    """down(act(gate) * up)."""

    config: ModelConfig
    intermediate_size: int
    lora_scale: float

    @nn.compact
    def __call__(self, x: Array, adapter: Array | None) -> Array:
        project = lambda name, width, axes: Projection(width, axes, self.lora_scale, name=name)
        gate = project("gate_proj", self.intermediate_size, ("embed", "mlp"))(x, adapter)
        up = project("up_proj", self.intermediate_size, ("embed", "mlp"))(x, adapter)
        gated = ACTIVATIONS[self.config.activation](gate) * up
        return project("down_proj", self.config.hidden_size, ("mlp", "embed"))(gated, adapter)
