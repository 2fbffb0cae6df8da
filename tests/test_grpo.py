"""GRPO mathematics for one group and one sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agon_jax import grpo


@pytest.mark.parametrize("value", [0.1, 0.4, 0.7, 0.9, 1.0, 0.0, 2.5, -3.3, 1e-7, 1e7])
@pytest.mark.parametrize("size", [2, 4, 6, 7, 8, 16])
def test_equal_rewards_give_exactly_zero(value, size):
    # (x - mean) / (std + 1e-8) in float32 gives -0.43 for 8 x 0.1 and +0.86 for 8 x 0.7
    advantages = grpo.group_advantages(jnp.full((size,), value, jnp.float32))
    np.testing.assert_array_equal(advantages, np.zeros(size))


def test_gradient_through_equal_rewards_is_finite():
    # the gradient of a plain standard deviation at equal values is NaN
    grads = jax.jacobian(grpo.group_advantages)(jnp.full((4,), 0.3))
    assert np.isfinite(grads).all()


def test_the_standard_deviation_is_the_populations():
    # 1 0 0 0: mean 1/4, std sqrt(3)/4 -> sqrt(3), -1/sqrt(3); dividing by n - 1 would give 1.5, -0.5
    advantages = grpo.group_advantages(jnp.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(advantages, [3**0.5] + [-(3**-0.5)] * 3, rtol=1e-6)


@given(st.lists(st.sampled_from([0.0, 0.5, 2.0, 2.5, 3.0, 3.5]), min_size=2, max_size=16))
@settings(max_examples=60, deadline=None)
def test_advantages_are_centred_unit_and_finite(rewards):
    advantages = np.asarray(jax.jit(grpo.group_advantages)(jnp.array(rewards)))
    assert np.isfinite(advantages).all()
    assert abs(advantages.sum()) < 1e-4
    if len(set(rewards)) > 1:
        np.testing.assert_allclose((advantages**2).mean(), 1, rtol=1e-4)
        assert (advantages != 0).any()


def test_a_small_but_real_difference_is_a_signal():
    advantages = grpo.group_advantages(jnp.array([2.0, 2.0 + 1e-3]))
    np.testing.assert_allclose(advantages, [-1, 1], rtol=1e-3)


@pytest.mark.parametrize(
    "ratio, advantage, loss, slope",
    [
        (1.0, 1.0, -1.0, -1.0),
        (1.5, 1.0, -1.2, 0.0),  # clipped above: no gradient pushes further
        (1.5, -1.0, 1.5, 1.5),  # the pessimistic side stays unclipped
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),  # clipped below
    ],
)
def test_clipped_loss_by_hand(ratio, advantage, loss, slope):
    # L = -min(r A, clip(r, .8, 1.2) A); dL/dlogp = -r A where unclipped, 0 where clipped
    f = lambda logp: grpo.clipped_loss(
        logp[None], jnp.array([-1.0]), jnp.float32(advantage), jnp.array([True]), 0.2, 0.2
    )[0]
    logp = jnp.float32(-1.0) + jnp.log(jnp.float32(ratio))
    np.testing.assert_allclose(f(logp), loss, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(f)(logp), slope, rtol=1e-6, atol=1e-7)


def test_two_sided_clip_is_asymmetric_when_asked():
    f = lambda r: grpo.clipped_loss(
        jnp.log(jnp.array([r])), jnp.zeros(1), jnp.float32(1), jnp.array([True]), 0.2, 0.28
    )[0]
    np.testing.assert_allclose([f(1.25), f(1.5)], [-1.25, -1.28], rtol=1e-6)


def test_k3_by_hand():
    # exp(q - p) - (q - p) - 1; upside down it would give 0.7183, 0.3679 instead
    logps, reference = jnp.array([-1.0, -2.0, -3.0]), jnp.array([-2.0, -1.0, -3.0])
    kl = grpo.kl_to_reference(logps, reference, jnp.ones(3, bool))
    np.testing.assert_allclose(kl, [0.36787944, 0.71828183, 0.0], atol=1e-6)


def test_k3_is_unbiased():
    # E_p[k3] = KL(p || q) exactly, summed over the vocabulary
    p, q = jax.nn.softmax(jnp.array([0.3, -1.0, 2.0])), jax.nn.softmax(jnp.array([1.0, 0.0, 0.5]))
    kl = grpo.kl_to_reference(jnp.log(p), jnp.log(q), jnp.ones(3, bool))
    np.testing.assert_allclose(jnp.sum(p * kl), jnp.sum(p * jnp.log(p / q)), rtol=1e-5)


@pytest.mark.parametrize("gap", [100.0, -100.0, 1e4, -1e4])
def test_extreme_log_ratios_stay_finite(gap):
    # exp overflows float32 from 88.7 on
    mask = jnp.array([True])
    kl = lambda p: grpo.kl_to_reference(p, p + gap - 0 * p, mask).sum()
    loss = lambda p: grpo.clipped_loss(p, jnp.array([-1.0 - gap]), jnp.float32(1), mask, 0.2, 0.2).sum()
    for f in (kl, loss):
        value, grad = jax.value_and_grad(f)(jnp.array([-1.0]))
        assert np.isfinite(value) and np.isfinite(grad).all()


@pytest.mark.parametrize("garbage", [jnp.inf, -jnp.inf, 1e30, 200.0])
def test_masked_tokens_change_neither_value_nor_gradient(garbage):
    # where() after exp would turn the gradient of the masked entry into NaN
    mask = jnp.array([True, False])

    def total(logp, other):
        logps = jnp.array([0.0, 1.0]) * logp + jnp.array([0.0, other])
        reference = jnp.array([-1.5, 0.0])
        loss = grpo.clipped_loss(logps, reference, jnp.float32(1), mask, 0.2, 0.2)
        return jnp.sum(loss + grpo.kl_to_reference(logps, reference, mask))

    clean, dirty = (jax.value_and_grad(total)(jnp.float32(-1), other) for other in (0.0, garbage))
    np.testing.assert_array_equal(clean, dirty)
    assert np.isfinite(dirty[1])


MASK = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], bool)
ACTIVE = jnp.array([True, True, False])


def test_sequence_mean_by_hand():
    # two active sequences: 1/2 each, spread over 4 and over 2 tokens
    expected = [[1 / 8] * 4, [1 / 4, 1 / 4, 0, 0], [0] * 4]
    np.testing.assert_allclose(grpo.sequence_mean(MASK, ACTIVE), expected)


def test_token_mean_by_hand():
    # six tokens in active sequences; counting the dropped row too would give 1/9
    expected = [[1 / 6] * 4, [1 / 6, 1 / 6, 0, 0], [0] * 4]
    np.testing.assert_allclose(grpo.token_mean(MASK, ACTIVE), expected)


@pytest.mark.parametrize("name", grpo.AGGREGATIONS)
def test_aggregations_without_any_active_row_are_zero_not_nan(name):
    weights = grpo.AGGREGATIONS[name](MASK, jnp.zeros(3, bool))
    np.testing.assert_array_equal(weights, np.zeros((3, 4)))
