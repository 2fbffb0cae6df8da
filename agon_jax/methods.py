"""The methods of the experiment as data: the fields of the game that define each."""

from __future__ import annotations

from typing import Any

METHODS: dict[str, dict[str, Any]] = {
    "grpo": dict(policies=1, challenge=False, reward="coop"),
    "self_refine": dict(policies=1, challenge=True, reward="coop"),
    "coop": dict(policies=2, challenge=True, reward="coop"),
    "adv": dict(policies=2, challenge=True, reward="adv"),
    "margin": dict(policies=2, challenge=True, reward="margin"),
    "tie_break": dict(policies=2, challenge=True, reward="tie_break"),
    "fixed_roles": dict(policies=2, challenge=True, reward="adv", rotate=False),
}
