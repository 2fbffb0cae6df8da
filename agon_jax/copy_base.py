"""Makes the bases of the copy world, one a point of its phase diagram, and measures each.

The points differ in how well a challenger solves; everything else, seed included, is the same.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random

import numpy as np
from ml_collections import ConfigDict
from rich.console import Console

from agon_jax import base_maker, setup, sft, sharding
from agon_jax.actor import Players
from agon_jax.config import write_json
from agon_jax.evaluate import answer
from agon_jax.tasks.copy_world import AGREE, DIFFER, MARK, OWN, World
from agon_jax.tasks.copy_world_traces import Knobs, Writer

_NUMBERS = range(World().numbers)
WORDS = (AGREE, DIFFER, MARK, *World().operators, *map(str, _NUMBERS), *map(OWN.format, _NUMBERS))
SIZES = {
    "vocab_size": 56,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
}


def make_phase(
    name: str, knobs: Knobs, steps: int, learning_rate: float, challenger_share: float
) -> base_maker.Phase:
    """The one phase of a base: traces of its knobs, a share of them a challenger's."""
    writer = Writer(knobs)

    def draw(rng: random.Random) -> sft.Example:
        return writer.example(rng, challenger=rng.random() < challenger_share)

    return base_maker.Phase(name, steps, learning_rate, draw)


def figures(drafts: np.ndarray, finals: np.ndarray, copied: np.ndarray) -> dict[str, float]:
    """What decides between copying and solving; a rate over an empty set is NaN.

    Args:
      drafts, finals: [n] bool, draft and challenge are right.
      copied: [n] bool.

    Returns:
      q = P(draft right), p = P(challenge right | it solves), v = P(challenge right | it solves, draft
      wrong), the rate of copying on wrong and on right drafts, and P(challenge right).
    """
    rate = lambda values: float(values.mean()) if values.size else float("nan")
    return {
        "q": rate(drafts),
        "p": rate(finals[~copied]),
        "v": rate(finals[~copied & ~drafts]),
        "copy_wrong": rate(copied[~drafts]),
        "copy_right": rate(copied[drafts]),
        "cascade": rate(finals),
    }


def measure(parts: setup.Parts, seed: int) -> dict[str, float]:
    """`figures` of the base on the held-out problems: it drafts and it challenges, sampled as in
    training."""
    base = Players(None, (seed,), 0)
    ways = {"two passes": (None, None)}
    answers = answer(parts.actor, base, ways, parts.splits.heldout, parts.sampling)["two passes"]
    draft, final = answers.stages
    right = lambda stage: stage.outcome.correct.astype(bool)
    return figures(right(draft), right(final), final.copied)


def run(config: ConfigDict, workdir: pathlib.Path, console: Console) -> None:
    """The job `copy_base`: a folder a point in the work directory, with what was measured in its
    `point.json`."""
    c, mesh = config.copy_base, sharding.make_mesh(config.mesh)
    for point, solve_hard in zip(c.points, c.solve_hard, strict=True):
        knobs = Knobs(c.draft_hard, solve_hard, c.draft_slip, c.solve_slip, c.copy, config.copy_world.detect)
        phase = make_phase(point, knobs, c.steps, c.learning_rate, c.challenger_share)
        out = workdir / point
        base_maker.build(
            out,
            WORDS,
            SIZES,
            [phase],
            batch_size=c.batch_size,
            bucket=9,  # 18 tokens hold a draft or a copy, 27 a solution
            seed=config.seed,
            console=console,
            mesh=mesh,
        )
        with config.unlocked():
            config.base = str(out)
        found = measure(setup.make_parts(config), config.seed)
        write_json(out / "point.json", {"knobs": dataclasses.asdict(knobs), "measured": found})
        console.print(f"{out}: " + " ".join(f"{name} {value:.3f}" for name, value in found.items()))
