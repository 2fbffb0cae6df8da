"""The training loop: Algorithm 1 of the method, resumable.

Left out: several hosts.
"""

from __future__ import annotations

import pathlib
import time

import jax
import numpy as np
from ml_collections import ConfigDict

from agon_jax import setup, sharding
from agon_jax.checkpoint import Checkpoints
from agon_jax.data import stream
from agon_jax.display import Display
from agon_jax.games.agon import Agon, play, round_metrics, to_batch
from agon_jax.logs import RunLog
from agon_jax.types import Batch, PyTree
from agon_jax.update import init_state, make_update


def train(
    config: ConfigDict, parts: setup.Parts, game: Agon, workdir: pathlib.Path, display: Display
) -> PyTree:
    """Train one method to its last step, from its newest checkpoint if there is one.

    Returns:
      The stacked adapters [P, ...].
    """
    actor, grpo = parts.actor, config.grpo
    optimizer = setup.make_optimizer(config, parts.steps)
    adapters = setup.make_adapters(config, actor.base, game.policies)
    state = jax.device_put(init_state(adapters, optimizer), sharding.replicated(actor.mesh))
    checkpoints = Checkpoints(workdir / "checkpoints")
    batches = stream(
        parts.splits.train,
        config.data.problems_per_step,
        config.seed,
        host=jax.process_index(),
        hosts=jax.process_count(),
    )
    if restored := checkpoints.restore(state):
        state, position = restored
        batches.set_state(position)
    first = int(state.step)
    update = make_update(parts.learner, optimizer, setup.make_objective(config), actor.mesh)

    display.say(setup.memory(actor.base, state))
    log = RunLog(workdir, first_step=first, tensorboard=config.log.tensorboard)
    display.begin(workdir.name, total=parts.steps, done=first)
    for step in range(first, parts.steps):
        started = time.perf_counter()
        problems = next(batches)
        round_ = play(game, actor, state.adapters, problems, parts.sampling, seed=config.seed, step=step)
        sampled = time.perf_counter()
        batch = place(to_batch(game, round_, grpo.completion_buckets), actor.mesh)
        state, learned = update(state, actor.base, batch)
        learned = {name: np.asarray(values) for name, values in learned.items()}  # waits for the device
        ended = time.perf_counter()

        metrics = round_metrics(game, round_, step)
        for name, values in learned.items():
            metrics |= {f"{name}/policy_{'ab'[p]}": float(v) for p, v in enumerate(values)}
        metrics["seconds_sample"] = sampled - started
        metrics["seconds_update"] = ended - sampled
        metrics["tokens_per_second"] = metrics["generated_tokens"] / (sampled - started)
        log.metrics(step, metrics)
        if step % config.log.transcripts_every == 0:
            log.transcripts(step, round_)
        if (step + 1) % config.log.checkpoint_every == 0 or step + 1 == parts.steps:
            checkpoints.save(state, batches.get_state())
        display.step(step + 1, metrics)
    log.close()
    checkpoints.close()
    return state.adapters


def place(batch: Batch, mesh: jax.sharding.Mesh) -> Batch:
    """Host rows -> device arrays, rows split over the mesh."""
    rows_of = sharding.sharding_of(mesh)
    return jax.tree.map(
        lambda x: jax.device_put(x, rows_of(("policy", "rows") + (None,) * (x.ndim - 2))), batch
    )
