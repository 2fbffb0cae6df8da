"""The sampling distribution: hand-derived log-probs, the nucleus, and finite gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax.distribution import NEVER, log_prob, sampling_logits

PROBS = (0.5, 0.3, 0.15, 0.05)


def logp(logits, token, temperature=1.0, top_p=1.0, kept=None):
    logits = sampling_logits(jnp.asarray(logits, jnp.float32), temperature, top_p, kept)
    return log_prob(logits, jnp.asarray(token))


def test_temperature():
    """logits (2, 0), T = 0.5: log sigmoid(4) = -0.0181499. Without T: log sigmoid(2) = -0.12693, a
    ratio of 0.8969 before any update."""
    np.testing.assert_allclose(logp([2.0, 0.0], 0, temperature=0.5), -0.01814993, atol=1e-6)
    np.testing.assert_allclose(logp([2.0, 0.0], 0), -0.12692801, atol=1e-6)


def test_nucleus():
    """top_p 0.8 keeps 0.5 and 0.3: log(0.5 / 0.8) = -0.4700036. Over all ids: log 0.5 = -0.6931472,
    a ratio of 0.8."""
    logits = np.log(PROBS)
    np.testing.assert_allclose(logp(logits, 0, top_p=0.8), -0.4700036, atol=1e-6)
    np.testing.assert_allclose(logp(logits, 1, top_p=0.8), np.log(0.3 / 0.8), atol=1e-6)
    np.testing.assert_allclose(logp(logits, 0), -0.6931472, atol=1e-6)
    assert logp(logits, 2, top_p=0.8) < -1e29


def test_a_sum_that_rounds_below_top_p():
    """0.42 + 0.33 is 0.75 - 6e-8 in float32: a bare comparison keeps a third id."""
    logits = sampling_logits(jnp.log(jnp.asarray([0.42, 0.33, 0.15, 0.1])), 1.0, 0.75)
    assert int(jnp.sum(logits > NEVER)) == 2


@pytest.mark.parametrize(
    "top_p, kept", [(1.0, 4), (0.96, 4), (0.95, 3), (0.9, 3), (0.8, 2), (0.79, 2), (0.5, 1), (1e-3, 1)]
)
def test_size_of_the_nucleus(top_p, kept):
    """The smallest set that reaches top_p; never empty. Ids lie in another order than their mass."""
    order = np.asarray([2, 0, 3, 1])
    logits = sampling_logits(jnp.log(jnp.asarray(PROBS))[order], 1.0, top_p)
    assert [i for i in range(4) if logits[i] > NEVER] == [i for i in range(4) if order[i] < kept]


def test_nucleus_is_taken_after_the_temperature():
    """At T = 2 the masses are 0.379, 0.293, 0.207, 0.120: 0.8 needs three ids, not two."""
    logits = sampling_logits(jnp.log(jnp.asarray(PROBS)), 2.0, 0.8)
    assert int(jnp.sum(logits > NEVER)) == 3


def test_equal_ids_are_kept_together():
    """Half the mass of four equal ids: which two would depend on the sort, so all four stay."""
    assert int(jnp.sum(sampling_logits(jnp.zeros(4), 1.0, 0.5) > NEVER)) == 4


def test_the_sampled_id_stays_in_the_support():
    """The learner's nucleus may lack it by one rounding. Without `kept` its log-prob is -1e30 and the
    ratio 0; with it, log(0.15 / 0.95) = -1.8458. An id inside changes nothing."""
    logits = np.log(PROBS)
    np.testing.assert_allclose(logp(logits, 2, top_p=0.8, kept=jnp.asarray(2)), -1.8458266, atol=1e-5)
    np.testing.assert_allclose(logp(logits, 0, top_p=0.8, kept=jnp.asarray(0)), -0.4700036, atol=1e-6)


def test_batched_rows_are_independent():
    """[2, 3] rows at once equal each row alone, `kept` included."""
    logits = jax.random.normal(jax.random.key(0), (2, 3, 8)) * 2
    tokens = jnp.asarray([[0, 1, 2], [3, 4, 5]])
    score = jax.jit(lambda logits, tokens: logp(logits, tokens, 0.7, 0.6, tokens))
    together = score(logits, tokens)
    alone = [[score(logits[i, j], tokens[i, j]) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert np.isfinite(together).all() and (np.asarray(together) > -100).all()


def test_gradient():
    """Softmax over the kept ids, 0 outside: d log p(0) / d logits = (1 - 0.625, -0.375, 0, 0).
    A -inf in the masked places would give NaN."""
    gradient = jax.jit(jax.grad(lambda logits, token: logp(logits, token, top_p=0.8, kept=token)))
    logits = jnp.log(jnp.asarray(PROBS))
    np.testing.assert_allclose(gradient(logits, 0), [0.375, -0.375, 0, 0], atol=1e-6)
    # 0.05 stays in the support beside 0.5 and 0.3: (-0.5, -0.3, 0, 0.8) / 0.85.
    np.testing.assert_allclose(gradient(logits, 3), [-0.5882353, -0.3529412, 0, 0.9411765], atol=1e-6)


def test_extreme_logits_are_finite():
    """Removed ids (-1e30) under the lowest temperature that sampling uses stay within float32."""
    logits = jnp.asarray([80.0, -80.0, NEVER])
    value, gradient = jax.value_and_grad(lambda x: logp(x, 0, temperature=1e-6))(logits)
    assert value == 0 and np.isfinite(gradient).all()
