"""The audit of training budgets, by hand."""

from __future__ import annotations

import pytest

from agon_jax.budget import audit, matched

TRAINING = {
    "grpo": {"rollouts": 1000, "generated_tokens": 10_000, "prefilled_tokens": 0, "steps": 3},
    "adv": {"rollouts": 1010, "generated_tokens": 10_102, "prefilled_tokens": 50},
    "zero_shot": {"rollouts": 0, "generated_tokens": 0, "prefilled_tokens": 0},
}


def test_tolerance_is_a_share_of_the_larger() -> None:
    # 10 of 1010 is 0.99 % of the larger (1 % of the smaller); 102 of 10102 is 1.0097 %.
    assert matched(TRAINING, "grpo", "adv")
    assert not matched(TRAINING, "grpo", "adv", "generated_tokens")
    assert matched(TRAINING, "grpo", "adv", "generated_tokens", tolerance=0.0101)
    # The order of the methods does not matter, and 0 asks for equality.
    for first, second in [("grpo", "adv"), ("adv", "grpo")]:
        assert not matched(TRAINING, first, second, tolerance=0.0099)
        assert not matched(TRAINING, first, second, tolerance=0)
    assert matched(TRAINING, "grpo", "grpo", tolerance=0)


def test_audit_lists_every_pair_and_quantity() -> None:
    rows = audit(TRAINING)
    assert [tuple(row.values()) for row in rows] == [
        ("grpo", "adv", "rollouts", 1.01, True),
        ("grpo", "adv", "generated_tokens", pytest.approx(1.0102), False),
        ("grpo", "adv", "prefilled_tokens", None, False),  # 50 / 0
        ("grpo", "zero_shot", "rollouts", 0.0, False),
        ("grpo", "zero_shot", "generated_tokens", 0.0, False),
        ("grpo", "zero_shot", "prefilled_tokens", 1.0, True),  # neither spent any
        ("adv", "zero_shot", "rollouts", 0.0, False),
        ("adv", "zero_shot", "generated_tokens", 0.0, False),
        ("adv", "zero_shot", "prefilled_tokens", 0.0, False),
    ]
    assert list(rows[0]) == ["first", "second", "quantity", "ratio", "matched"]
    assert all(row["matched"] for row in audit(TRAINING, tolerance=0.0101)[:2])
    assert audit({"grpo": TRAINING["grpo"]}) == audit({}) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((TRAINING, "grpo", "coop"), "no training of 'coop' is recorded, only of grpo, adv, zero_shot"),
        ((TRAINING, "grpo", "adv", "steps"), "training of 'adv' records no 'steps'"),
        (({"a": {"rollouts": -1}, "b": {"rollouts": 1}}, "a", "b"), "rollouts = -1"),
        ((TRAINING, "grpo", "adv", "rollouts", 1.0), "tolerance"),
    ],
)
def test_mistakes_are_named(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        matched(*arguments)
