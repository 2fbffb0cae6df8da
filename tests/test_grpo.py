"""GRPO mathematics for one group and one sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agon_jax import grpo


@pytest.mark.parametrize("std", grpo.ADVANTAGE_VARIANCES)
@pytest.mark.parametrize("value", [0.1, 0.4, 0.7, 0.9, 1.0, 0.0, 2.5, -3.3, 1e-7, 1e7])
@pytest.mark.parametrize("size", [2, 4, 6, 7, 8, 16])
def test_equal_rewards_give_exactly_zero(value, size, std):
    # (x - mean) / (std + 1e-8) in float32 gives -0.43 for 8 x 0.1 and +0.86 for 8 x 0.7
    rewards = jnp.full((size,), value, jnp.float32)
    np.testing.assert_array_equal(grpo.group_advantages(rewards, std), np.zeros(size))
    assert not grpo.has_signal(rewards)


def test_gradient_through_equal_rewards_is_finite():
    # the gradient of a plain standard deviation at equal values is NaN
    grads = jax.jacobian(grpo.group_advantages)(jnp.full((4,), 0.3))
    assert np.isfinite(grads).all()


@pytest.mark.parametrize(
    "std, first, rest",
    [
        ("population", 3**0.5, -(3**-0.5)),  # std sqrt(3) / 4
        ("sample", 1.5, -0.5),  # std sqrt(3/4 / 3) = 1/2
        ("none", 0.75, -0.25),
    ],
)
def test_advantages_by_hand(std, first, rest):
    # 1 0 0 0: mean 1/4, squared deviations 9/16 + 3 * 1/16 = 3/4
    advantages = grpo.group_advantages(jnp.array([1.0, 0, 0, 0]), std)
    np.testing.assert_allclose(advantages, [first] + [rest] * 3, rtol=1e-6)


def test_the_default_standard_deviation_is_the_populations():
    rewards = jnp.array([1.0, 0, 0, 0])
    np.testing.assert_array_equal(
        grpo.group_advantages(rewards), grpo.group_advantages(rewards, "population")
    )


def test_a_member_at_the_mean_has_no_advantage_but_its_group_has_a_signal():
    # reading the signal off the advantages would drop the middle member from the normaliser
    rewards = jnp.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(grpo.group_advantages(rewards), [-(1.5**0.5), 0, 1.5**0.5], rtol=1e-6)
    assert grpo.has_signal(rewards)


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


def loss_of(logps, behaviour, advantage, mask, clip_low=0.2, clip_high=0.2, level="token"):
    ratio = grpo.importance_ratio(logps, behaviour, mask, level)
    return grpo.clipped_loss(ratio, jnp.float32(advantage), mask, clip_low, clip_high)


@pytest.mark.parametrize("level", grpo.IMPORTANCE_LEVELS)  # one token: its ratio is the sequence's
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
def test_clipped_loss_by_hand(ratio, advantage, loss, slope, level):
    # L = -min(r A, clip(r, .8, 1.2) A); dL/dlogp = -r A where unclipped, 0 where clipped
    f = lambda logp: loss_of(logp[None], jnp.array([-1.0]), advantage, jnp.array([True]), level=level)[0]
    logp = jnp.float32(-1.0) + jnp.log(jnp.float32(ratio))
    np.testing.assert_allclose(f(logp), loss, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(f)(logp), slope, rtol=1e-6, atol=1e-7)


def test_two_sided_clip_is_asymmetric_when_asked():
    f = lambda r: loss_of(jnp.log(jnp.array([r])), jnp.zeros(1), 1, jnp.array([True]), 0.2, 0.28)[0]
    np.testing.assert_allclose([f(1.25), f(1.5)], [-1.25, -1.28], rtol=1e-6)


SEQUENCE = dict(
    logps=jnp.array([-1.0, -2.0, 9.0]),
    behaviour=jnp.array([-1.2, -2.4, 0.0]),
    mask=jnp.array([True, True, False]),
)  # log-ratios 0.2 and 0.4; the third token was not sampled


def test_importance_ratios_by_hand():
    # mean 0.3; over the padded width it would be 0.2, and without the length 0.6
    token, sequence = (grpo.importance_ratio(**SEQUENCE, level=level) for level in ("token", "sequence"))
    np.testing.assert_allclose(token, np.exp([0.2, 0.4, 0]), rtol=1e-6)
    np.testing.assert_allclose(sequence, np.exp([0.3, 0.3, 0.3]), rtol=1e-6)


@pytest.mark.parametrize(
    "advantage, loss, slope",
    [
        (1.0, -1.2, 0.0),  # e^0.3 = 1.35 is clipped as a whole; the token of ratio e^0.2 = 1.22 too
        (-1.0, np.exp(0.3), np.exp(0.3)),
        (0.5, -0.6, 0.0),
    ],
)
def test_a_sequence_is_clipped_as_one_and_its_gradient_reaches_all_tokens(advantage, loss, slope):
    # Over the two tokens the losses add up to -2 r A, and dr/dlogp_t = r / 2: slope -r A at each token,
    # the same; at token level it would be e^0.2 and e^0.4.
    f = lambda logps: loss_of(logps, SEQUENCE["behaviour"], advantage, SEQUENCE["mask"], level="sequence")
    np.testing.assert_allclose(f(SEQUENCE["logps"]), [loss, loss, 0], rtol=1e-6)
    grad = jax.grad(lambda logps: jnp.sum(f(logps)))(SEQUENCE["logps"])
    np.testing.assert_allclose(grad, [slope, slope, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "estimator, expected",
    [
        ("k1", [1.0, -1.0, 0.0]),  # log p - log q
        ("k2", [0.5, 0.5, 0.0]),
        ("k3", [0.36787944, 0.71828183, 0.0]),  # upside down it would give 0.7183, 0.3679
    ],
)
def test_kl_estimates_by_hand(estimator, expected):
    logps, reference = jnp.array([-1.0, -2.0, -3.0]), jnp.array([-2.0, -1.0, -3.0])
    kl = grpo.kl_to_reference(logps, reference, jnp.ones(3, bool), estimator)
    np.testing.assert_allclose(kl, expected, atol=1e-6)


THETA, Q = jnp.array([0.3, -1.0, 2.0]), jax.nn.softmax(jnp.array([1.0, 0.0, 0.5]))
REVERSE = lambda theta: jnp.sum(jax.nn.softmax(theta) * (jax.nn.log_softmax(theta) - jnp.log(Q)))
FORWARD = lambda theta: jnp.sum(Q * (jnp.log(Q) - jax.nn.log_softmax(theta)))


def expected_kl(theta, estimator):
    """E_p[estimate] over all three tokens; the draw itself is not differentiated, as in a loss."""
    logps = jax.nn.log_softmax(theta)
    kl = grpo.kl_to_reference(logps, jnp.log(Q), jnp.ones(3, bool), estimator)
    return jnp.sum(jax.lax.stop_gradient(jnp.exp(logps)) * kl)


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    values = {name: float(expected_kl(THETA, name)) for name in grpo.KL_ESTIMATORS}
    np.testing.assert_allclose([values["k1"], values["k3"]], REVERSE(THETA), rtol=1e-5)
    second_moment = jnp.sum(jax.nn.softmax(THETA) * (jax.nn.log_softmax(THETA) - jnp.log(Q)) ** 2)
    np.testing.assert_allclose(values["k2"], second_moment / 2, rtol=1e-5)
    assert abs(values["k2"] - REVERSE(THETA)) > 1e-3


@pytest.mark.parametrize(
    "estimator, target", [("k1", lambda theta: 0.0 * theta[0]), ("k2", REVERSE), ("k3", FORWARD)]
)
def test_the_expected_gradient_of_each_estimate(estimator, target):
    # k1: none at all; k2: that of KL(p || q); k3: that of KL(q || p), which is another one here
    gradient = jax.grad(expected_kl)(THETA, estimator)
    np.testing.assert_allclose(gradient, jax.grad(target)(THETA), atol=1e-6)
    assert np.abs(jax.grad(REVERSE)(THETA) - jax.grad(FORWARD)(THETA)).max() > 0.01


def test_k2_and_k3_agree_to_second_order():
    # k3(d) = e^d - 1 - d = d^2/2 + d^3/6 + d^4/24 + ... with d = log q - log p
    gaps = jnp.array([-0.4, -0.2, 0.2, 0.4])
    k2, k3 = (grpo.kl_to_reference(-gaps, 0 * gaps, gaps != 0, name) for name in ("k2", "k3"))
    np.testing.assert_allclose(k3 - k2, gaps**3 / 6 + gaps**4 / 24, rtol=0.03)


@pytest.mark.parametrize("gap", [100.0, -100.0, 1e4, -1e4])
def test_extreme_log_ratios_stay_finite(gap):
    # exp overflows float32 from 88.7 on
    mask = jnp.array([True])
    kl = lambda p: grpo.kl_to_reference(p, p + gap - 0 * p, mask).sum()
    loss = lambda p: loss_of(p, jnp.array([-1.0 - gap]), 1, mask).sum()
    for f in (kl, loss):
        value, grad = jax.value_and_grad(f)(jnp.array([-1.0]))
        assert np.isfinite(value) and np.isfinite(grad).all()


@pytest.mark.parametrize("level, estimator", [("token", "k3"), ("sequence", "k2"), ("token", "k1")])
@pytest.mark.parametrize("garbage", [jnp.inf, -jnp.inf, 1e30, 200.0])
def test_masked_tokens_change_neither_value_nor_gradient(garbage, level, estimator):
    # where() after exp would turn the gradient of the masked entry into NaN
    mask = jnp.array([True, False])

    def total(logp, other):
        logps = jnp.array([0.0, 1.0]) * logp + jnp.array([0.0, other])
        reference = jnp.array([-1.5, 0.0])
        loss = loss_of(logps, reference, 1, mask, level=level)
        return jnp.sum(loss + grpo.kl_to_reference(logps, reference, mask, estimator))

    clean, dirty = (jax.value_and_grad(total)(jnp.float32(-1), other) for other in (0.0, garbage))
    np.testing.assert_array_equal(clean, dirty)
    assert np.isfinite(dirty[1])


MASK = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], bool)
ACTIVE = jnp.array([True, True, False])
CAP = 8


def test_sequence_mean_by_hand():
    # two active sequences: 1/2 each, spread over 4 and over 2 tokens
    expected = [[1 / 8] * 4, [1 / 4, 1 / 4, 0, 0], [0] * 4]
    np.testing.assert_allclose(grpo.sequence_mean(MASK, ACTIVE, CAP), expected)


def test_token_mean_by_hand():
    # six tokens in active sequences; counting the dropped row too would give 1/9
    expected = [[1 / 6] * 4, [1 / 6, 1 / 6, 0, 0], [0] * 4]
    np.testing.assert_allclose(grpo.token_mean(MASK, ACTIVE, CAP), expected)


def test_constant_length_by_hand():
    # 1 / (2 active x 8); the width of the arrays would give 1/8, counting the dropped row 1/24
    expected = [[1 / 16] * 4, [1 / 16, 1 / 16, 0, 0], [0] * 4]
    np.testing.assert_allclose(grpo.constant_length(MASK, ACTIVE, CAP), expected)


@pytest.mark.parametrize("name", grpo.AGGREGATIONS)
def test_aggregations_agree_when_every_row_has_the_length_of_the_cap(name):
    weights = grpo.AGGREGATIONS[name](jnp.ones((3, 4), bool), ACTIVE, 4)
    np.testing.assert_allclose(weights, [[1 / 8] * 4] * 2 + [[0] * 4])


def test_a_constant_length_needs_a_cap():
    with pytest.raises(ValueError, match="cap"):
        grpo.constant_length(MASK, ACTIVE, 0)


@pytest.mark.parametrize("name", grpo.AGGREGATIONS)
def test_aggregations_without_any_active_row_are_zero_not_nan(name):
    weights = grpo.AGGREGATIONS[name](MASK, jnp.zeros(3, bool), CAP)
    np.testing.assert_array_equal(weights, np.zeros((3, 4)))
