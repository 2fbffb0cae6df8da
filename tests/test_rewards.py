"""Rewards as the method's table gives them, and the identities between the modes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax.grpo import group_advantages
from agon_jax.rewards import REWARDS, Outcome, Weights

WEIGHTS = Weights()
advantages = jax.vmap(group_advantages)


def outcome(correct, well_formed=1, length=10):
    correct = np.asarray(correct, np.float32)
    return Outcome(correct, np.broadcast_to(np.float32(well_formed), correct.shape),
                   np.broadcast_to(np.float32(length), correct.shape))  # fmt: skip


def test_ladder_of_the_competitive_reward():
    # wrong 0 < right, rival right too 2 < right where the rival was wrong 3; format adds 0.5
    own = outcome([0, 0, 1, 1], well_formed=0)
    rival = outcome([0, 1, 1, 0])
    np.testing.assert_array_equal(REWARDS["adv"](own, rival, WEIGHTS), [0, 0, 2, 3])
    np.testing.assert_array_equal(REWARDS["adv"](outcome([0, 0, 1, 1]), rival, WEIGHTS), [0.5, 0.5, 2.5, 3.5])
    np.testing.assert_array_equal(REWARDS["coop"](own, rival, WEIGHTS), [0, 0, 2, 2])
    # margin pays -1 for being wrong where the rival was right
    np.testing.assert_array_equal(REWARDS["margin"](own, rival, WEIGHTS), [0, -1, 2, 3])


def test_tie_break_fires_only_when_both_are_right_and_the_challenger_is_shorter():
    cases = list(itertools.product([0, 1], [0, 1], [9, 10, 11]))
    own = Outcome(*(np.array(x, np.float32) for x in zip(*((c, 0, n) for c, _, n in cases), strict=True)))
    rival = Outcome(*(np.array(x, np.float32) for x in zip(*((r, 0, 10) for _, r, _ in cases), strict=True)))
    extra = REWARDS["tie_break"](own, rival, WEIGHTS) - REWARDS["adv"](own, rival, WEIGHTS)
    assert [case for case, e in zip(cases, extra, strict=True) if e] == [(1, 1, 9)]
    assert extra.max() == 0.5


@pytest.mark.parametrize("mode", ["adv", "margin"])
@pytest.mark.parametrize("well_formed", [0, 1])
def test_a_shared_hidden_draft_gives_the_advantages_of_cooperation(mode, well_formed):
    # Shared draft wrong: every right answer is scaled by 3/2, which the division by the standard
    # deviation cancels. Shared draft right: nothing is added. Paired drafts would differ.
    groups = np.array(list(itertools.product([0.0, 1.0], repeat=6)), np.float32)
    own = outcome(groups, well_formed)
    cooperative = advantages(jnp.asarray(REWARDS["coop"](own, own, WEIGHTS)))
    for shared in (0.0, 1.0):
        rival = outcome(np.full_like(groups, shared))
        rewards = REWARDS[mode](own, rival, WEIGHTS)
        np.testing.assert_allclose(advantages(jnp.asarray(rewards)), cooperative, atol=2e-6)


def test_paired_drafts_make_competition_differ_from_cooperation():
    own, rival = outcome([[1, 1, 0, 0]]), outcome([[1, 0, 1, 0]])
    coop = advantages(jnp.asarray(REWARDS["coop"](own, rival, WEIGHTS)))[0]
    adv = advantages(jnp.asarray(REWARDS["adv"](own, rival, WEIGHTS)))[0]
    np.testing.assert_allclose(coop, [1, 1, -1, -1], atol=1e-6)
    # rewards 2 3 0 0 (+0.5): mean 1.25, deviations .75 1.75 -1.25 -1.25, variance 1.6875
    np.testing.assert_allclose(adv, np.array([0.75, 1.75, -1.25, -1.25]) / 1.6875**0.5, atol=1e-6)


def test_margin_with_paired_drafts_subtracts_what_the_action_cannot_change():
    # The scalar 3/2 on c cancels, the rest is the rival's luck: E over drafts equals coop's order.
    own, rival = outcome([1, 0]), outcome([1, 1])
    np.testing.assert_array_equal(REWARDS["margin"](own, rival, WEIGHTS), [2.5, -0.5])


def test_weights_are_what_is_paid():
    weights = Weights(correct=1.0, format=0.25, conversion=0.5, length=0.125)
    own, rival = outcome([1.0], length=5), outcome([0.0], length=9)
    assert REWARDS["adv"](own, rival, weights) == [1.75]
    assert REWARDS["tie_break"](own, outcome([1.0], length=9), weights) == [1.375]
