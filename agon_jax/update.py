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
      importance_level: a key of grpo.IMPORTANCE_LEVELS: a ratio a token, or one a sequence (GSPO).
      importance_cap: 0: the ratio is taken against the sampler's own log-probs. Above 0, truncated
        importance sampling: the ratio is taken against the learner's log-probs before the update, and
        the clipped loss of each token (not its KL) is weighted by min(learner / sampler, cap),
        learner before the update as well.
      kl_weight: of the KL to the base with no adapter; 0 skips the reference's forward pass.
      kl_estimator: a key of grpo.KL_ESTIMATORS.
      aggregation: a key of grpo.AGGREGATIONS.
      max_new_tokens: the cap of a completion, the constant length of aggregation "constant".
      inner_epochs: optimizer steps on one batch.
      temperature, top_p: of the distribution that the rollouts were sampled from.
      chunk: positions a row whose logits exist at the same time.
      microbatches: the rows of a policy are processed in this many parts; changes memory only.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    importance_level: str = "token"
    importance_cap: float = 0.0
    kl_weight: float = 0.001
    kl_estimator: str = "k3"
    aggregation: str = "sequence"
    max_new_tokens: int = 0
    inner_epochs: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    chunk: int = 256
    microbatches: int = 1


# What follows warm-up: (peak, steps left) -> schedule.
SCHEDULES: dict[str, Callable[[float, int], optax.Schedule]] = {
    "linear": lambda peak, steps: optax.linear_schedule(peak, 0.0, max(steps, 1)),
    "constant": lambda peak, steps: optax.constant_schedule(peak),
}


def make_optimizer(
    *,
    learning_rate: float,
    steps: int,
    warmup: float,
    weight_decay: float,
    max_grad_norm: float,
    schedule: str = "linear",
) -> optax.GradientTransformation:
    """AdamW after a clip of the global gradient norm. Meant to be vmapped: each policy is clipped by
    its own norm.

    Args:
      learning_rate: the peak.
      steps: optimizer steps of the whole run: rounds times inner epochs.
      warmup: share of the steps in which the learning rate rises linearly to its peak.
      weight_decay: decoupled from the gradient.
      max_grad_norm: of one policy.
      schedule: a key of SCHEDULES: after warm-up, linear decay to 0 or the peak throughout.
    """
    warm = max(round(warmup * steps), 1)
    rate = optax.join_schedules(
        [
            optax.linear_schedule(learning_rate / warm, learning_rate, warm - 1),
            SCHEDULES[schedule](learning_rate, steps - warm + 1),
        ],
        [warm - 1],
    )
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.adamw(rate, b2=0.98, weight_decay=weight_decay)
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

    One call is one round: `inner_epochs` optimizer steps, and `state.step` grows by 1. The state is
    donated. Loss, gradient, clip and optimizer are vmapped over the policy axis; the base is not, so
    its matmuls see [P * N * S, in] against one [in, out]. A policy without an active row is left
    bit-identical, optimizer state included.

    Metrics are means over the epochs. Those of tokens are means over active rows, weighted as the loss
    is: `log_ratio_abs`, `importance_weight` and `importance_truncated` compare the sampler with the
    learner before the update (|log-ratio|, the truncated ratio, the share that the cap truncates),
    `clip_share` and `kl` are of the learner at each epoch.
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
    aggregate = grpo.AGGREGATIONS[objective.aggregation]
    weights = aggregate(rows.completion_mask, rows.active, objective.max_new_tokens)
    any_active = jnp.any(rows.active)

    def epoch(learner, frozen):
        adapter, opt_state = learner
        grads, metrics, frozen = _gradient(adapter, model, objective, base, rows, weights, frozen)
        metrics["grad_norm"] = optax.tree.norm(grads)
        updates, new_opt_state = optimizer.update(grads, opt_state, adapter)
        new = optax.apply_updates(adapter, updates), new_opt_state
        # Without a signal Adam would still move by momentum and decay.
        keep = lambda fresh, old: jnp.where(any_active, fresh, old)
        return jax.tree.map(keep, new, learner), metrics, frozen

    learner, metrics, frozen = epoch((adapter, opt_state), None)
    if objective.inner_epochs > 1:
        again = lambda learner, _: epoch(learner, frozen)[:2]
        learner, more = jax.lax.scan(again, learner, length=objective.inner_epochs - 1)
        mean = lambda first, rest: (first + jnp.sum(rest)) / objective.inner_epochs
        metrics = jax.tree.map(mean, metrics, more)
    metrics["active_rows"] = jnp.mean(rows.active.astype(jnp.float32))
    return *learner, metrics


def _gradient(adapter, model, objective, base, rows: Batch, weights, frozen):
    """(gradient, metrics, what later epochs keep of the first), over microbatches."""

    def gradient(*arguments):
        (loss, (means, kept)), grads = jax.value_and_grad(_loss, has_aux=True)(
            adapter, model, objective, base, *arguments
        )
        return (grads, loss, means), kept

    arguments, parts = (rows, weights, frozen), objective.microbatches
    if parts == 1:
        (grads, loss, means), kept = gradient(*arguments)
    else:  # terms are weighted already, so gradients and metrics of the parts just add up
        split = jax.tree.map(lambda x: _split(x, parts), arguments)
        shapes, _ = jax.eval_shape(gradient, *jax.tree.map(lambda x: x[0], split))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def add(total, part):
            terms, kept = gradient(*part)
            return jax.tree.map(jnp.add, total, terms), kept

        (grads, loss, means), kept = jax.lax.scan(add, zeros, split)
        kept = jax.tree.map(_join, kept)
    # The weights of a constant length do not sum to 1; a metric is a mean all the same.
    whole = jnp.sum(weights)
    metrics = {name: total / jnp.where(whole > 0, whole, 1.0) for name, total in means.items()}
    return grads, metrics | {"loss": loss}, kept


def _loss(adapter, model, objective, base, rows: Batch, weights, frozen):
    """(loss, (metrics, frozen)): sums over rows and tokens of terms that `weights` already averages.

    `frozen` is None in the first epoch, which returns it for the others: the log-probs [N, C] of the
    learner before the update, and of the reference (None without a KL).
    """
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
    if frozen is None:
        reference = score({"params": base}) if objective.kl_weight > 0 else None
        frozen = jax.lax.stop_gradient((logps, reference))
    before, reference = frozen

    mask, clip = rows.completion_mask, (objective.clip_low, objective.clip_high)
    ratio_of = lambda level: jax.vmap(lambda *row: grpo.importance_ratio(*row, level))
    mismatch = ratio_of("token")(before, rows.logps, mask)
    capped = objective.importance_cap > 0
    importance = jnp.minimum(mismatch, objective.importance_cap) if capped else mismatch
    ratio = ratio_of(objective.importance_level)(logps, before if capped else rows.logps, mask)
    losses = jax.vmap(lambda *row: grpo.clipped_loss(*row, *clip))(ratio, rows.advantages, mask)
    if capped:
        losses = importance * losses
    outside = (ratio < 1 - clip[0]) | (ratio > 1 + clip[1])
    metrics = {
        "log_ratio_abs": jnp.abs(jnp.where(mask, before - rows.logps, 0.0)),
        "importance_weight": importance,
        "importance_truncated": mismatch > importance,
        "clip_share": outside,
    }
    if objective.kl_weight > 0:
        estimate = lambda *row: grpo.kl_to_reference(*row, objective.kl_estimator)
        metrics["kl"] = jax.vmap(estimate)(logps, reference, mask)
        losses = losses + objective.kl_weight * metrics["kl"]
    metrics = {name: jnp.sum(weights * values) for name, values in metrics.items()}
    return jnp.sum(weights * losses), jax.lax.stop_gradient((metrics, frozen))


def _split(x: Array, parts: int) -> Array:
    """[N, ...] -> [parts, N / parts, ...]; part p takes rows p, p + parts, ..., so that every
    device of a mesh keeps its share of each part."""
    if x.shape[0] % parts:
        raise ValueError(f"{x.shape[0]} rows do not split into {parts} microbatches")
    return jnp.swapaxes(x.reshape(x.shape[0] // parts, parts, *x.shape[1:]), 0, 1)


def _join(x: Array) -> Array:
    """[parts, n, ...] -> [parts * n, ...], the inverse of `_split`."""
    return jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])
