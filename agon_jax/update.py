"""One sharded GRPO update of the stacked pair over ONE unbatched frozen base."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from agon_jax import grpo, sharding
from agon_jax.logprobs import token_logprobs
from agon_jax.models.decoder import Decoder
from agon_jax.types import Batch, PyTree, TrainState

Array = jax.Array
Update = Callable[[TrainState, PyTree, Batch], tuple[TrainState, dict[str, Array]]]


@dataclasses.dataclass(frozen=True)
class Objective:
    """The GRPO objective.

    Attributes:
      clip_low, clip_high: the ratio stays within [1 - clip_low, 1 + clip_high].
      kl_weight: of the KL to the base with no adapter; 0 skips the reference's forward pass.
      aggregation: a key of grpo.AGGREGATIONS.
      temperature, top_p: of the distribution that the rollouts were sampled from.
      chunk: positions a row whose logits exist at the same time.
      microbatches: the rows of a policy are processed in this many parts; changes memory only.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_weight: float = 0.001
    aggregation: str = "sequence"
    temperature: float = 1.0
    top_p: float = 1.0
    chunk: int = 256
    microbatches: int = 1


def make_optimizer(
    *, learning_rate: float, steps: int, warmup: float, weight_decay: float, max_grad_norm: float
) -> optax.GradientTransformation:
    """AdamW with linear warm-up over a share of the steps and linear decay to 0, after a clip of
    the global gradient norm. Meant to be vmapped: each policy is clipped by its own norm."""
    warm = max(round(warmup * steps), 1)
    schedule = optax.join_schedules(
        [
            optax.linear_schedule(learning_rate / warm, learning_rate, warm - 1),
            optax.linear_schedule(learning_rate, 0.0, max(steps - warm + 1, 1)),
        ],
        [warm - 1],
    )
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.adamw(schedule, b2=0.98, weight_decay=weight_decay)
    )


def init_state(adapters: PyTree, optimizer: optax.GradientTransformation) -> TrainState:
    """TrainState of stacked adapters (leading axis P), at step 0."""
    return TrainState(adapters, jax.vmap(optimizer.init)(adapters), jnp.int32(0))


def make_update(
    model: Decoder,
    optimizer: optax.GradientTransformation,
    objective: Objective,
    mesh: jax.sharding.Mesh | None = None,
) -> Update:
    """The jitted update: (state, base, batch) -> (state, metrics with a policy axis [P]).

    The state is donated. Loss, gradient, clip and optimizer are vmapped over the policy axis; the
    base is not, so its matmuls see [P * N * S, in] against one [in, out]. A policy none of whose
    groups carries a signal is left bit-identical, optimizer state included.
    """

    def update(state: TrainState, base: PyTree, batch: Batch):
        one = lambda adapter, opt_state, rows: _update_one(
            model, optimizer, objective, base, adapter, opt_state, rows
        )
        adapters, opt_state, metrics = jax.vmap(one)(state.adapters, state.opt_state, batch)
        return TrainState(adapters, opt_state, state.step + 1), metrics

    where = None if mesh is None else sharding.replicated(mesh)
    return jax.jit(update, donate_argnums=0, out_shardings=where)


def _update_one(model, optimizer, objective, base, adapter, opt_state, rows: Batch):
    """The update of one policy on its rows [N, ...]."""
    active = rows.advantages != 0
    weights = grpo.AGGREGATIONS[objective.aggregation](rows.completion_mask, active)
    gradient = lambda rows, weights: jax.grad(_loss, has_aux=True)(
        adapter, model, objective, base, rows, weights
    )
    if objective.microbatches == 1:
        grads, metrics = gradient(rows, weights)
    else:  # terms are weighted already, so gradients and metrics of the parts just add up
        parts = jax.tree.map(lambda x: _split(x, objective.microbatches), (rows, weights))
        shapes = jax.eval_shape(gradient, *jax.tree.map(lambda x: x[0], parts))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        add = lambda total, part: (jax.tree.map(jnp.add, total, gradient(*part)), None)
        (grads, metrics), _ = jax.lax.scan(add, zeros, parts)

    metrics["grad_norm"] = optax.tree.norm(grads)
    metrics["active_rows"] = jnp.mean(active.astype(jnp.float32))
    updates, new_opt_state = optimizer.update(grads, opt_state, adapter)
    new = optax.apply_updates(adapter, updates), new_opt_state
    # Without a signal Adam would still move by momentum and decay.
    keep = lambda fresh, old: jnp.where(jnp.any(active), fresh, old)
    adapter, opt_state = jax.tree.map(keep, new, (adapter, opt_state))
    return adapter, opt_state, metrics


def _loss(adapter, model, objective, base, rows: Batch, weights):
    """(loss, metrics): sums over rows and tokens of terms that `weights` already averages."""
    start = rows.tokens.shape[1] - rows.completion_mask.shape[1]
    score = lambda variables: token_logprobs(
        model,
        variables,
        rows.tokens,
        rows.mask,
        start=start,
        chunk=objective.chunk,
        temperature=objective.temperature,
        top_p=objective.top_p,
    )
    logps = score({"params": base, "lora": adapter})
    mask = rows.completion_mask
    clip = objective.clip_low, objective.clip_high
    losses = jax.vmap(lambda *row: grpo.clipped_loss(*row, *clip))(logps, rows.logps, rows.advantages, mask)
    gap = jnp.where(mask, jax.lax.stop_gradient(logps) - rows.logps, 0.0)
    outside = (jnp.exp(gap) < 1 - clip[0]) | (jnp.exp(gap) > 1 + clip[1])
    metrics = {
        "log_ratio_abs": jnp.sum(weights * jnp.abs(gap)),  # sampler and learner must agree
        "clip_share": jnp.sum(weights * outside),
    }
    if objective.kl_weight > 0:
        reference = jax.lax.stop_gradient(score({"params": base}))
        kl = jax.vmap(grpo.kl_to_reference)(logps, reference, mask)
        losses = losses + objective.kl_weight * kl
        metrics["kl"] = jnp.sum(weights * jax.lax.stop_gradient(kl))
    loss = jnp.sum(weights * losses)
    return loss, metrics | {"loss": loss}


def _split(x: Array, parts: int) -> Array:
    """[N, ...] -> [parts, N / parts, ...]; part p takes rows p, p + parts, ..., so that every
    device of a mesh keeps its share of each part."""
    if x.shape[0] % parts:
        raise ValueError(f"{x.shape[0]} rows do not split into {parts} microbatches")
    return jnp.swapaxes(x.reshape(x.shape[0] // parts, parts, *x.shape[1:]), 0, 1)
