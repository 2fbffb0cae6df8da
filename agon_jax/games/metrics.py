"""Figures of one round of one member: what a run logs at every step."""

from __future__ import annotations

import numpy as np

from agon_jax.actor import Stage
from agon_jax.exchange import diagnose
from agon_jax.games.agon import Agon, Round
from agon_jax.rewards import CONVERTING


def round_metrics(game: Agon, round_: Round, step: int) -> dict[str, float]:
    """Figures of one round, by role; tokens and rollouts are all that were made, refilled groups
    included."""
    metrics: dict[str, float] = {"drafter": float(game.roles(step)[0])}
    for role, stream in zip(("draft", "challenge"), round_.streams, strict=False):
        outcome = stream.stage.outcome
        metrics |= {
            f"{role}_pass_rate": float(outcome.correct.mean()),
            f"{role}_reward": float(stream.rewards.mean()),
            f"{role}_well_formed": float(outcome.well_formed.mean()),
            f"{role}_length": float(outcome.length.mean()),
            f"{role}_truncated": float(1 - stream.stage.rollouts.finished.mean()),
            f"{role}_zero_variance": float(1 - stream.live.mean()),
        }
    metrics["reward"] = float(np.mean([s.rewards.mean() for s in round_.streams]))
    stages = [*(stream.stage for stream in round_.streams), *round_.spent]
    metrics["generated_tokens"] = sum(stage.generated_tokens for stage in stages)
    metrics["prefilled_tokens"] = sum(stage.prefilled_tokens for stage in stages)
    metrics["rollouts"] = sum(len(stage.problems) for stage in stages)
    if round_.challenges is not None:
        drafts, challenges = round_.drafts.stage, round_.challenges.stage
        metrics |= _flips(drafts, challenges)
        if game.exchange:
            metrics |= exchange_metrics(game, drafts, challenges, game.group_size)
    return metrics


def _flips(drafts: Stage, challenges: Stage) -> dict[str, float]:
    """How the second answer differs from the first; a rate over an empty set is left out."""
    was_right, right = drafts.outcome.correct == 1, challenges.outcome.correct == 1
    rates = {"conversion_rate": right[~was_right], "keep_rate": right[was_right]}
    return {name: float(values.mean()) for name, values in rates.items() if values.size}


def exchange_metrics(game: Agon, drafts: Stage, challenges: Stage, group: int) -> dict[str, float]:
    """On which side of copying and solving a round is (docs/copy_or_solve.md)."""
    grouped = lambda values: [list(values[i : i + group]) for i in range(0, len(values), group)]
    answers = lambda stage: grouped([completion.answer for completion in stage.completions])
    copied = challenges.copied
    return diagnose(
        answers(drafts),
        answers(challenges),
        drafts.outcome.correct.reshape(-1, group).astype(bool),
        challenges.outcome.correct.reshape(-1, group).astype(bool),
        copied=None if copied is None else copied.reshape(-1, group),
        correct_weight=game.weights.correct,
        conversion_weight=game.weights.conversion if game.reward in CONVERTING else 0.0,
    )
