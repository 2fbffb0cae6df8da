"""The training loop: Algorithm 1 of the method, resumable, for all members of a population at once.

Left out: several hosts.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from agon_jax import setup, sharding
from agon_jax.actor import Players
from agon_jax.checkpoint import Checkpoints, checkpoint_folder
from agon_jax.data import stream
from agon_jax.display import Display
from agon_jax.divergence import make_divergence
from agon_jax.games.agon import Agon, Round, play, refill, to_batch
from agon_jax.games.metrics import round_metrics
from agon_jax.logs import RunLog, member_folder
from agon_jax.types import Batch, Problem
from agon_jax.update import init_state

# Pass rates on the validation split, by way to answer, for each member.
Validate = Callable[[Players], list[dict[str, float]]]


def train(
    config: ConfigDict,
    parts: setup.Parts,
    game: Agon,
    seeds: Sequence[int],
    folder: pathlib.Path,
    display: Display,
    *,
    validate: Validate | None = None,
) -> Players:
    """Train one method under every seed to its last step, from the newest checkpoint if there is one.

    Members share the program and nothing else: each is trained as it would be alone.

    Args:
      seeds: of the members: adapters, order of problems and samples follow from them.
      folder: of the method; logs go to `seed_<n>/`, checkpoints to `checkpoints/`.
      validate: called every `eval.every` steps.
    """
    actor, learner, grpo, log = parts.actor, parts.learner, config.grpo, config.log
    adapters = setup.make_population(config, actor.base, game.policies, seeds)
    state = jax.device_put(init_state(adapters, learner.optimizer), sharding.replicated(actor.mesh))
    checkpoints = Checkpoints(checkpoint_folder(folder, seeds))
    streams = [_stream(config, parts, seed) for seed in seeds]
    if restored := checkpoints.restore(state):
        state, positions = restored
        for batches, seed in zip(streams, seeds, strict=True):
            batches.set_state(positions[str(seed)])
    players = lambda: Players(state.adapters, tuple(seeds), game.policies)
    first = int(state.step)
    if first == parts.steps:
        checkpoints.close()
        return players()
    divergence = make_divergence(learner.model, learner.objective, game.policies)

    display.say(setup.memory(actor.base, state))
    logs = [RunLog(member_folder(folder, seed), first, log.tensorboard, log.wandb) for seed in seeds]
    display.begin(folder.name, total=parts.steps, done=first)
    for step in range(first, parts.steps):
        started = time.perf_counter()

        def rounds_on(problems: list[list[Problem]], step: int = step) -> list[Round]:
            return play(game, actor, players(), problems, parts.sampling, step=step)

        rounds = rounds_on([next(batches) for batches in streams])
        for _ in range(grpo.refills):
            if all(round_.live.all() for round_ in rounds):
                break
            extra = rounds_on([next(batches) for batches in streams])
            rounds = [refill(*pair) for pair in zip(rounds, extra, strict=True)]
        sampled = time.perf_counter()
        batch = place(to_batch(game, rounds, grpo.completion_buckets), actor.mesh)
        rare = step % log.transcripts_every == 0
        apart = divergence(state.adapters, actor.base, batch, game.roles(step)[0]) if rare else None
        state, learned = learner.update(state, actor.base, batch)
        learned = {name: np.asarray(values) for name, values in learned.items()}  # waits for the device
        seconds = (sampled - started, time.perf_counter() - sampled)

        metrics = [round_metrics(game, round_, step) for round_ in rounds]
        for member, own in enumerate(metrics):
            for name, values in learned.items():
                policies = values[member * game.policies : (member + 1) * game.policies]
                own |= {f"{name}/policy_{'ab'[p]}": float(v) for p, v in enumerate(policies)}
            if apart is not None:
                own["pair_divergence"] = float(apart[member])
        spent = {"seconds_sample": seconds[0], "seconds_update": seconds[1]}
        spent["tokens_per_second"] = sum(own["generated_tokens"] for own in metrics) / seconds[0]
        for run_log, own, round_ in zip(logs, metrics, rounds, strict=True):
            run_log.metrics(step, own | spent)
            if rare:
                run_log.transcripts(step, round_, actor)
        done = step + 1
        if validate is not None and config.eval.every and done % config.eval.every == 0:
            for run_log, rates in zip(logs, validate(players()), strict=True):
                run_log.evaluation(done, rates)
        if done % log.checkpoint_every == 0 or done == parts.steps:
            checkpoints.save(state, {str(s): b.get_state() for s, b in zip(seeds, streams, strict=True)})
        display.step(done, _mean(metrics) | spent)
    for run_log in logs:
        run_log.close()
    checkpoints.close()
    return players()


def place(batch: Batch, mesh: jax.sharding.Mesh) -> Batch:
    """Host rows -> device arrays, rows split over the mesh."""
    rows_of = sharding.sharding_of(mesh)
    return jax.tree.map(
        lambda x: jax.device_put(x, rows_of(("policy", "rows") + (None,) * (x.ndim - 2))), batch
    )


def _stream(config: ConfigDict, parts: setup.Parts, seed: int):
    hosts = dict(host=jax.process_index(), hosts=jax.process_count())
    return stream(parts.splits.train, config.data.problems_per_step, seed, **hosts)


def _mean(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Over the members that have a figure."""
    names = {name: None for own in metrics for name in own}  # in order
    return {name: float(np.mean([own[name] for own in metrics if name in own])) for name in names}
