"""Makes the bundled tiny base, a 0.6M-parameter Qwen3 of the operators world.

Three phases of supervised traces (see `tasks/operators_traces.py`): mixed, skill, noise.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random

from ml_collections import ConfigDict
from rich.console import Console

from agon_jax import base_maker, sft, sharding
from agon_jax.tasks.operators import World
from agon_jax.tasks.operators_traces import PHASES, Writer

WORDS = ("+", "-", "=", "?", "ok", "no", *map(str, range(World().max_total + 1)))
SIZES = {
    "vocab_size": 128,  # a few rows more than ids, as in the real checkpoints
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
}


def make_phase(
    name: str, steps: int, learning_rate: float, *, challenger_share: float, short_share: float
) -> base_maker.Phase:
    """A phase of the traces called `name`.

    Args:
      name: a key of PHASES.
      steps, learning_rate: see `base_maker.Phase`.
      challenger_share: share of examples with a challenger's prompt.
      short_share: share of examples with one operand fewer.
    """
    world = World()
    short = dataclasses.replace(world, num_operands=world.num_operands - 1)
    writers = [Writer(PHASES[name], w) for w in (world, short)]

    def draw(rng: random.Random) -> sft.Example:
        writer = writers[rng.random() < short_share]
        return writer.example(rng, challenger=rng.random() < challenger_share)

    return base_maker.Phase(name, steps, learning_rate, draw)


def run(config: ConfigDict, workdir: pathlib.Path, console: Console) -> None:
    """The job `tiny_base`: writes the folder to the work directory."""
    c = config.tiny_base
    shares = dict(challenger_share=c.challenger_share, short_share=c.short_share)
    plans = zip(c.phases, c.steps, c.learning_rates, strict=True)
    base_maker.build(
        workdir,
        WORDS,
        SIZES,
        [make_phase(*plan, **shares) for plan in plans],
        batch_size=c.batch_size,
        seed=config.seed,
        console=console,
        mesh=sharding.make_mesh(config.mesh),
    )
    console.print(f"Written to {workdir}")
