"""Teacher-forced log-probs of sampled ids, in chunks: no [tokens, vocabulary] array exists."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from agon_jax.distribution import log_prob, sampling_logits
from agon_jax.models.decoder import Decoder
from agon_jax.types import PyTree

Array = jax.Array


def token_logprobs(
    model: Decoder,
    variables: PyTree,
    tokens: Array,
    mask: Array,
    *,
    start: int,
    chunk: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> Array:
    """Float32 [B, S - start]: log p(tokens[:, s] | tokens[:, :s]) for s >= start.

    Args:
      model: the decoder.
      variables: {"params": base} is the reference; with "lora": one adapter, a policy.
      tokens: [B, S] int32, left- or right-padded.
      mask: [B, S] bool, True on real tokens. Log-probs of padding are finite and meaningless.
      start: first scored position, at least 1 (the first token is conditioned on nothing).
      chunk: positions whose logits exist at the same time: [B, chunk, V]; rematerialised in the
        backward pass.
      temperature, top_p: of the distribution the ids were drawn from.
    """
    if not 1 <= start < tokens.shape[1]:
        raise ValueError(f"start must be within 1..{tokens.shape[1] - 1}, got {start}")
    hidden = model.apply(variables, tokens, mask=mask, method="hidden")[:, start - 1 : -1]
    targets = tokens[:, start:]

    def score(hidden: Array, targets: Array) -> Array:
        logits = model.apply(variables, hidden, method="unembed")
        return log_prob(sampling_logits(logits, temperature, top_p, kept=targets), targets)

    rows, length = targets.shape
    if length <= chunk:
        return score(hidden, targets)
    pad = -length % chunk
    split = (
        lambda x: jnp.moveaxis(  # [B, L, ...] -> [chunks, B, chunk, ...]: rows stay sharded
            jnp.pad(x, ((0, 0), (0, pad)) + ((0, 0),) * (x.ndim - 2)).reshape(rows, -1, chunk, *x.shape[2:]),
            1,
            0,
        )
    )
    scored = jax.lax.map(jax.checkpoint(lambda pair: score(*pair)), (split(hidden), split(targets)))
    return jnp.moveaxis(scored, 0, 1).reshape(rows, length + pad)[:, :length]
