"""Rewards of the game: pure array functions (method: equations (2) and (3) and the ablations).

All arguments of one call share a shape; outcomes are 0/1 arrays (bool or float).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

Array = Any


@dataclasses.dataclass(frozen=True)
class Weights:
    """How much each term pays."""

    correct: float = 2.0
    format: float = 0.5
    conversion: float = 1.0
    length: float = 0.5
    solving: float = 1.0
    copy_ceiling: float = 0.8


class Outcome(NamedTuple):
    """How a set of rollouts ended."""

    correct: Array  # 1 if the answer is right
    well_formed: Array  # 1 if the format is right
    length: Array  # sampled tokens
    copied: Array | None = None  # 1 if the draft was copied, for tasks that can see it


Reward = Callable[[Outcome, Outcome, Weights], Array]


def cooperative(own: Outcome, rival: Outcome, weights: Weights) -> Array:
    """(2): w_c c + w_f f. The rival does not matter; drafters are always paid by this."""
    del rival
    return weights.correct * own.correct + weights.format * own.well_formed


def adversarial(own: Outcome, rival: Outcome, weights: Weights) -> Array:
    """(3): (2) plus the conversion bonus w_v c (1 - c_d): right where the rival was wrong."""
    bonus = own.correct * (1 - rival.correct)
    return cooperative(own, rival, weights) + weights.conversion * bonus


def margin(own: Outcome, rival: Outcome, weights: Weights) -> Array:
    """(2) plus w_v (c - c_d). Expected to equal cooperation: see the identities in the tests."""
    return cooperative(own, rival, weights) + weights.conversion * (own.correct - rival.correct)


def tie_break(own: Outcome, rival: Outcome, weights: Weights) -> Array:
    """(3) plus w_len c c_d [shorter than the rival]: fires only when both are right."""
    shorter = own.correct * rival.correct * (own.length < rival.length)
    return adversarial(own, rival, weights) + weights.length * shorter


def floor_on_copying(own: Outcome, rival: Outcome, weights: Weights) -> Array:
    """(2) plus w_s for not copying while more than the ceiling of all rollouts copy: pressure
    against copying that does not ask who was right. A control of docs/copy_or_solve.md.

    Raises:
      ValueError: the task cannot see copying.
    """
    if own.copied is None:
        raise ValueError("game.reward='coop_floor' needs a task that can see copying (copy_world)")
    crowded = own.copied.mean() > weights.copy_ceiling
    return cooperative(own, rival, weights) + weights.solving * crowded * (1 - own.copied)


CONVERTING = frozenset({"adv", "tie_break"})  # those that pay a bonus which copying cannot earn
REWARDS: dict[str, Reward] = {
    "coop": cooperative,
    "adv": adversarial,
    "margin": margin,
    "tie_break": tie_break,
    "coop_floor": floor_on_copying,
}
