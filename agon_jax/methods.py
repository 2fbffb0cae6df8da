"""The methods of the experiment as data: what defines each (method: section 4, the matrix)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

Way = tuple[int | None, ...]  # who answers, stage by stage: a policy, or None for the base


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of the experiment.

    Attributes:
      name: for people.
      game: the fields of games.agon.Agon that define its training (of `weights`, those that differ
        from the config's); None trains nothing.
      passes: stages of the answer that counts as its result.
      trained_as: the method whose adapters it answers with, when it trains none of its own.
    """

    name: str
    game: Mapping[str, Any] | None
    passes: int
    trained_as: str | None = None

    @property
    def ways(self) -> dict[str, Way]:
        """Every way to answer that is evaluated, by name; those of `passes` stages compete, on the
        validation split, to be the method's result."""
        source = METHODS[self.trained_as] if self.trained_as else self
        if source.game is None:
            return {"one pass": (None,)} if self.passes == 1 else {"two passes": (None, None)}
        if source.game["policies"] == 1:
            return {"one pass": (0,)} | ({"two passes": (0, 0)} if self.passes == 2 else {})
        alone: dict[str, Way] = {"A alone": (0,), "B alone": (1,)}
        return alone | ({"A then B": (0, 1), "B then A": (1, 0)} if self.passes == 2 else {})

    @property
    def results(self) -> dict[str, Way]:
        """The ways that may be the method's result."""
        return {name: way for name, way in self.ways.items() if len(way) == self.passes}


def _single(**fields: Any) -> dict[str, Any]:
    return dict(policies=1, challenge=False, exchange=False, reward="coop", opponent="paired") | fields


def _pair(**fields: Any) -> dict[str, Any]:
    return dict(policies=2, challenge=True, exchange=True, reward="adv", opponent="paired") | fields


METHODS: dict[str, Method] = {
    "zero_shot": Method("Zero-shot", None, 1),
    "moa": Method("MoA, untrained", None, 2),
    "grpo": Method("GRPO", _single(), 1),
    "grpo_cascade": Method("GRPO, two-pass", None, 2, trained_as="grpo"),
    "self_refine": Method("Self-refine", _single(challenge=True, exchange=True), 2),
    "shared_opponent": Method("Shared opponent", _pair(exchange=False, opponent="shared"), 1),
    "hidden_drafts": Method("Hidden drafts", _pair(exchange=False), 1),
    "coop": Method("Coop", _pair(reward="coop"), 2),
    "adv": Method("Agon", _pair(), 2),
    "margin": Method("Margin", _pair(reward="margin"), 2),
    "fixed_roles": Method("Agon, fixed roles", _pair(rotate=False), 2),
    "tie_break": Method("Agon, tie-break", _pair(reward="tie_break"), 2),
    # By identity the same as a shared opponent, whose outcome all rivals of a group have in common.
    "plain_pair": Method("Plain pair", _pair(exchange=False, reward="coop"), 1),
    # Of docs/copy_or_solve.md: other weights of the bonus, and pressure against copying without it.
    "adv_half": Method("Agon, half the bonus", _pair(weights={"conversion": 0.5}), 2),
    "adv_double": Method("Agon, twice the bonus", _pair(weights={"conversion": 2.0}), 2),
    "coop_floor": Method("Coop, floor on copying", _pair(reward="coop_floor"), 2),
}
