"""Evaluation: one pass and cascades, by the same draft and challenge functions as training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from agon_jax.actor import Actor, Sampling, Stage
from agon_jax.games.agon import challenge, draft
from agon_jax.types import Problem, PyTree

# Keys of evaluation samples: steps that no training run reaches.
HELDOUT_STEP, VALIDATION_STEP = 2**30, 2**30 + 1


@dataclasses.dataclass(frozen=True)
class Result:
    """One way to answer the problems, one sample each.

    Attributes:
      correct: bool [n], in the order of the problems.
      mean_length: sampled tokens of the final stage.
      generated_tokens, prefilled_tokens: of all stages, all problems.
      truncated, well_formed: shares, of the final stage.
    """

    correct: np.ndarray
    mean_length: float
    generated_tokens: int
    prefilled_tokens: int
    truncated: float
    well_formed: float

    @property
    def pass_rate(self) -> float:
        """Share of problems answered right."""
        return float(self.correct.mean())

    def to_json(self) -> dict:
        """The fields, `correct` as a string of 0 and 1."""
        fields = dataclasses.asdict(self)
        fields.pop("correct")
        return fields | {"outcomes": "".join("01"[int(c)] for c in self.correct)}


def one_pass(
    actor: Actor,
    adapters: PyTree | None,
    policy: int | None,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    seed: int,
    step: int = HELDOUT_STEP,
) -> tuple[Result, Stage]:
    """A policy (None: the base) answers the plain prompt. The stage can start a cascade."""
    stage = draft(actor, adapters, policy, problems, 1, sampling, seed=seed, step=step)
    return _result([stage]), stage


def cascade(
    actor: Actor,
    adapters: PyTree | None,
    second: int | None,
    first_stage: Stage,
    sampling: Sampling,
    *,
    seed: int,
    step: int = HELDOUT_STEP,
) -> tuple[Result, Stage]:
    """`second` reads the first stage's summaries and answers; the pair runs as it was trained."""
    stage = challenge(actor, adapters, second, first_stage, 1, sampling, seed=seed, step=step)
    return _result([first_stage, stage]), stage


def _result(stages: list[Stage]) -> Result:
    final = stages[-1]
    return Result(
        correct=final.outcome.correct.astype(bool),
        mean_length=float(final.outcome.length.mean()),
        generated_tokens=sum(stage.generated_tokens for stage in stages),
        prefilled_tokens=sum(stage.prefilled_tokens for stage in stages),
        truncated=float(1 - final.rollouts.finished.mean()),
        well_formed=float(final.outcome.well_formed.mean()),
    )
