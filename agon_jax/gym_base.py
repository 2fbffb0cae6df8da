"""Makes a tiny base for family_relationships of reasoning_gym: a 0.2M-parameter Qwen3.

Three phases of supervised traces (see `tasks/gym_traces.py`): reading, skill, and noise over it.
"""

from __future__ import annotations

import pathlib
import random
from collections.abc import Sequence

import jax
from ml_collections import ConfigDict
from rich.console import Console

from agon_jax import base_maker, sft, sharding
from agon_jax.data import load_splits
from agon_jax.tasks import make_task
from agon_jax.tasks.gym_traces import DATASET, HOPS, NO, OK, PHASES, READ, RELATIONS, Reader, Writer
from agon_jax.types import Problem

MARKS = ".,?"
SIZES = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "intermediate_size": 128,
}
_STORY = "is married to They have a children called and What relation How related"  # `child` is a hop


def names() -> tuple[list[str], list[str]]:
    """(women, men) of the library's families."""
    import reasoning_gym

    config = reasoning_gym.create_dataset(DATASET, size=1, seed=0).config
    return list(config.female_names), list(config.male_names)


def words() -> list[str]:
    """What the base can read and write; other words of a question are unknown to it."""
    answers = [word for pair in RELATIONS.values() for word in pair]
    people = [name for group in names() for name in group]
    return [*MARKS, OK, NO, *HOPS, *_STORY.split(), *answers, *people]


def train_problems(config: ConfigDict) -> list[Problem]:
    """The train split that a run with this config's `data` and `seed` has: of the other splits the base
    sees nothing."""
    data, task = config.data, make_task(config.task)
    return load_splits(
        data.source,
        path=data.path,
        question_field=data.question_field,
        answer_field=data.answer_field,
        task=config.task,
        sizes=(data.train, data.validation, data.heldout),
        shares=tuple(data.shares),
        transfer=tuple(data.transfer),
        seed=config.seed,
        fits=lambda problem: True,
        fault=task.fault,
    ).train


def make_phase(
    name: str, steps: int, learning_rate: float, problems: Sequence[Problem], challenger_share: float
) -> base_maker.Phase:
    """The phase called `name`, "read" or a key of PHASES; a share of the prompts is a challenger's."""
    writer = Reader(problems) if name == READ else Writer(PHASES[name], problems, frozenset(names()[0]))

    def draw(rng: random.Random) -> sft.Example:
        return writer.example(rng, challenger=rng.random() < challenger_share)

    return base_maker.Phase(name, steps, learning_rate, draw)


def run(
    config: ConfigDict, workdir: pathlib.Path, console: Console, devices: Sequence[jax.Device] | None = None
) -> None:
    """The job `gym_base`, on all devices unless told: writes the folder to the work directory."""
    c, problems = config.gym_base, train_problems(config)
    plans = zip(c.phases, c.steps, c.learning_rates, strict=True)
    base_maker.build(
        workdir,
        words(),
        SIZES,
        [make_phase(*plan, problems, c.challenger_share) for plan in plans],
        batch_size=c.batch_size,
        bucket=24,  # two widths, 72 and 96, hold every example: each is compiled once a phase
        marks=MARKS,
        seed=config.seed,
        console=console,
        mesh=sharding.make_mesh(config.mesh, devices),
    )
    console.print(f"Written to {workdir}")
