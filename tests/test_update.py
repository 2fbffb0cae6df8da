"""The update of the stacked pair: gradients by hand, identities of the objective."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import LENGTH, WIDTH, random_batch

from agon_jax import setup
from agon_jax.config import default
from agon_jax.logprobs import token_logprobs
from agon_jax.types import Batch
from agon_jax.update import Objective, init_state, make_optimizer, make_update

ON_POLICY = Objective(kl_weight=0.0)


class TwoTokenPolicy:
    """p = softmax(theta) over two tokens, whatever the context."""

    def apply(self, variables, x, mask=None, method=None):
        if method == "hidden":
            return jnp.ones((*x.shape, 1))
        return x * variables.get("lora", {"theta": jnp.zeros(2)})["theta"]


def toy_batch(tokens, advantages, logps, active=None):
    """One policy; a prompt of one token and a completion of one token a row."""
    tokens = jnp.array([[[0, t] for t in tokens]])
    ones = jnp.ones(tokens.shape, bool)
    advantages = jnp.array(advantages)[None]
    active = advantages != 0 if active is None else jnp.array(active)[None]
    return Batch(tokens, ones, ones[..., 1:], jnp.array(logps)[None, :, None], advantages, active)


def toy_step(theta, batch, objective=ON_POLICY):
    optimizer = optax.sgd(1.0)
    state = init_state({"theta": jnp.array([theta])}, optimizer)
    new, metrics = make_update(TwoTokenPolicy(), optimizer, objective)(state, {}, batch)
    return np.asarray(new.adapters["theta"][0]) - np.asarray(theta), metrics


@pytest.mark.parametrize("theta", [(0.0, 0.0), (1.0, -0.5), (-2.0, 3.0)])
def test_gradient_of_a_two_token_policy_by_hand(theta):
    # Rewards 1, 0 -> advantages +1 (token 0), -1 (token 1). With ratio 1 and the mean over two
    # sequences, -dL/dtheta_0 = 1/2 [(1 - p0) - (-p0)] = 1/2 and -dL/dtheta_1 = -1/2, for any p.
    logps = np.log(np.exp(theta) / np.exp(theta).sum())
    moved, metrics = toy_step(theta, toy_batch([0, 1], [1.0, -1.0], logps))
    np.testing.assert_allclose(moved, [0.5, -0.5], rtol=1e-5)
    np.testing.assert_allclose(metrics["log_ratio_abs"], 0, atol=1e-6)


@pytest.mark.parametrize("level", ["token", "sequence"])  # of one token: the same
def test_a_ratio_beyond_the_clip_stops_its_own_token_only(level):
    # token 0 is 1.5 times likelier than when it was sampled (A > 0: clipped, no gradient);
    # token 1 has ratio 1: -dL/dtheta = -1/2 (-p0, 1 - p1) = (p0, -p0) / 2 = (1/4, -1/4)
    logps = np.log([0.5 / 1.5, 0.5])
    objective = Objective(kl_weight=0.0, importance_level=level)
    moved, metrics = toy_step((0.0, 0.0), toy_batch([0, 1], [1.0, -1.0], logps), objective)
    np.testing.assert_allclose(moved, [0.25, -0.25], rtol=1e-5)
    np.testing.assert_allclose(metrics["clip_share"], 0.5)


@pytest.mark.parametrize(
    "estimator, slope, value",
    [
        ("k1", 1.0, np.log(1.5)),
        ("k2", np.log(1.5), np.log(1.5) ** 2 / 2),
        ("k3", 1 / 3, 2 / 3 - np.log(2 / 3) - 1),  # slope 1 - q / p
    ],
)
def test_the_kl_pulls_towards_the_base_and_is_measured_against_it(estimator, slope, value):
    # Base: theta = 0, q = 1/2. Policy p0 = 3/4; one row, token 0, so (with A tiny) the gradient is
    # that of the estimate at log(p/q) = log(3/2) alone; dlogp/dtheta_0 = 1 - p0 = 1/4.
    theta = (np.log(3.0).item(), 0.0)
    batch = toy_batch([0], [1e-12], [np.log(0.75)])
    moved, metrics = toy_step(theta, batch, Objective(kl_weight=1.0, kl_estimator=estimator))
    np.testing.assert_allclose(moved, [-slope / 4, slope / 4], rtol=1e-4)
    np.testing.assert_allclose(metrics["kl"], value, rtol=1e-4)


def test_dropped_groups_add_nothing_to_gradient_or_normaliser():
    # the dropped rows would double the normaliser: (0.25, -0.25) instead of (0.5, -0.5)
    logps = np.log([0.5] * 4)
    moved, metrics = toy_step((0.0, 0.0), toy_batch([0, 1, 0, 0], [1.0, -1.0, 0.0, 0.0], logps))
    np.testing.assert_allclose(moved, [0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(metrics["active_rows"], 0.5)


A = 1.5**0.5  # rewards 0, 1, 2 -> advantages -A, 0, A


def test_a_member_at_the_mean_of_a_live_group_counts():
    # -dL/dtheta_0 = 1/3 [(-A)(-1/2) + 0 + A/2] = A/3; read off the advantages, active rows would be two
    # of three and it would be A/2
    batch = toy_batch([1, 0, 0], [-A, 0.0, A], np.log([0.5] * 3), active=[True] * 3)
    moved, metrics = toy_step((0.0, 0.0), batch)
    np.testing.assert_allclose(moved, [A / 3, -A / 3], rtol=1e-5)
    np.testing.assert_allclose(metrics["active_rows"], 1)


def test_the_kl_of_a_member_at_the_mean_counts():
    # p0 = 3/4 against 1/2: k3 is 0.30685 at token 1 and 0.07213 at token 0. Rows 1, 0, 0: mean 0.15037;
    # without the middle one 0.18949
    theta = (np.log(3.0).item(), 0.0)
    batch = toy_batch([1, 0, 0], [-A, 0.0, A], np.log([0.25, 0.75, 0.75]), active=[True] * 3)
    _, metrics = toy_step(theta, batch, Objective(kl_weight=0.1))
    np.testing.assert_allclose(metrics["kl"], 0.15037, rtol=1e-4)


def test_a_masked_row_adds_nothing_whatever_its_advantage():
    # trained on, the third row would give 1/3 [1/2 + 1/2 + 5/2] = 7/6 in place of 1/2
    batch = toy_batch([0, 1, 0], [1.0, -1.0, 5.0], np.log([0.5] * 3), active=[True, True, False])
    moved, _ = toy_step((0.0, 0.0), batch)
    np.testing.assert_allclose(moved, [0.5, -0.5], rtol=1e-5)


def test_a_constant_length_scales_the_loss_but_no_mean():
    # one token a row under a cap of 4: 1/4 of the 1/2 of the sequence mean; the metrics stay means
    batch = toy_batch([0, 1], [1.0, -1.0], np.log([0.5 / 1.5, 0.5]))
    objective = Objective(kl_weight=0.0, aggregation="constant", max_new_tokens=4)
    moved, metrics = toy_step((0.0, 0.0), batch, objective)
    np.testing.assert_allclose(moved, [0.25 / 4, -0.25 / 4], rtol=1e-5)  # the first row is clipped
    np.testing.assert_allclose(metrics["clip_share"], 0.5)
    np.testing.assert_allclose(metrics["log_ratio_abs"], np.log(1.5) / 2, rtol=1e-5)


# Token 0 was sampled at 1/4, and the learner gives it 1/2: ratio 2 between learner and sampler.
OFF_POLICY = toy_batch([0, 1], [1.0, -1.0], np.log([0.25, 0.5]))


def test_truncated_importance_sampling_by_hand():
    # Against the learner itself both ratios are 1; weights min(2, 1.5) and 1: 1/2 (1.5/2 + 1/2) = 0.625.
    # Untruncated it would be 0.75; against the sampler the ratio 2 is clipped, and 1/4 is left.
    moved, metrics = toy_step((0.0, 0.0), OFF_POLICY, Objective(kl_weight=0.0, importance_cap=1.5))
    np.testing.assert_allclose(moved, [0.625, -0.625], rtol=1e-5)
    seen = [float(metrics[name][0]) for name in ("importance_weight", "importance_truncated", "clip_share")]
    np.testing.assert_allclose(seen, [1.25, 0.5, 0], rtol=1e-5)


def test_without_a_cap_the_mismatch_is_measured_all_the_same():
    moved, metrics = toy_step((0.0, 0.0), OFF_POLICY)
    np.testing.assert_allclose(moved, [0.25, -0.25], rtol=1e-5)
    names = ("importance_weight", "importance_truncated", "clip_share", "log_ratio_abs")
    np.testing.assert_allclose([metrics[n][0] for n in names], [1.5, 0, 0.5, np.log(2) / 2], rtol=1e-5)


def test_a_second_epoch_takes_its_ratio_against_the_learner_before_the_first():
    # Sampled at 1/4 each: both weights are min(2, 1.5). First epoch, ratio 1: theta = (0.75, -0.75), so
    # p0 = sigmoid(1.5) = 0.817574. Second: ratios 2 p0 and 2 p1 against 1/2, no clip:
    # 1.5/2 [2 p0 (1 - p0) + 2 p1 p0] = 3 p0 p1 = 0.447440. Against itself anew it would be 0.75.
    batch = toy_batch([0, 1], [1.0, -1.0], np.log([0.25, 0.25]))
    objective = Objective(kl_weight=0.0, importance_cap=1.5, inner_epochs=2, clip_low=0.9, clip_high=9.0)
    moved, metrics = toy_step((0.0, 0.0), batch, objective)
    np.testing.assert_allclose(moved, [0.75 + 0.44744, -0.75 - 0.44744], rtol=1e-5)
    np.testing.assert_allclose(metrics["importance_weight"], 1.5)  # of the learner before the update
    # gradients (g, -g) of norm g sqrt(2); the metric is the mean of the epochs
    np.testing.assert_allclose(metrics["grad_norm"], (0.75 + 0.44744) / 2 * 2**0.5, rtol=1e-5)


def test_rounds_do_not_recompile():
    optimizer = make_optimizer(learning_rate=0.1, steps=9, warmup=0.0, weight_decay=0.1, max_grad_norm=1.0)
    update = make_update(TwoTokenPolicy(), optimizer, Objective(inner_epochs=3, importance_cap=2.0))
    state = jax.device_put(init_state({"theta": jnp.zeros((1, 2))}, optimizer), jax.devices()[0])
    for cached in (1, 1, 1):
        state, _ = update(state, {}, OFF_POLICY)
        assert update._cache_size() == cached
    assert int(state.step) == 3
    # what counts steps for the schedule counts epochs
    assert {int(x[0]) for x in jax.tree.leaves(state.opt_state) if x.dtype == jnp.int32} == {9}


@pytest.mark.parametrize("epochs", [1, 3])
def test_without_any_signal_nothing_moves_even_with_momentum_and_decay(epochs):
    optimizer = make_optimizer(learning_rate=0.1, steps=9, warmup=0.0, weight_decay=0.1, max_grad_norm=1.0)
    update = make_update(TwoTokenPolicy(), optimizer, Objective(kl_weight=0.5, inner_epochs=epochs))
    state = init_state({"theta": jnp.array([[1.0, 2.0]])}, optimizer)
    logps = [float(jax.nn.log_softmax(jnp.array([1.0, 2.0]))[t]) for t in (0, 1)]
    state, _ = update(state, {}, toy_batch([0, 1], [1.0, -1.0], logps))
    before = jax.tree.map(np.asarray, (state.adapters, state.opt_state))
    state, _ = update(state, {}, toy_batch([0, 1], [0.0, 0.0], logps))
    jax.tree.map(np.testing.assert_array_equal, before, (state.adapters, state.opt_state))
    assert int(state.step) == 2


def step_sizes(optimizer, steps=10):
    """Adam with a constant gradient moves by the learning rate."""
    params, sizes = jnp.array([0.0]), []
    state = optimizer.init(params)
    advance = jax.jit(optimizer.update)
    for _ in range(steps):
        updates, state = advance(jnp.array([1.0]), state, params)
        sizes.append(-float(updates[0]))
    return sizes


@pytest.mark.parametrize(
    "schedule, after_peak", [("linear", np.arange(8, 0, -1) / 9), ("constant", np.ones(8))]
)
def test_learning_rate_warms_up_and_then_follows_its_schedule(schedule, after_peak):
    optimizer = make_optimizer(
        learning_rate=1.0, steps=10, warmup=0.2, weight_decay=0.0, max_grad_norm=1e9, schedule=schedule
    )
    np.testing.assert_allclose(step_sizes(optimizer), [0.5, 1, *after_peak], rtol=1e-3)


def test_the_schedule_of_a_run_counts_inner_epochs():
    # five rounds of two steps: ten steps down to 1/10; over five steps it would be 0 from the sixth on
    config = default()
    config.grpo.update(dict(learning_rate=1.0, warmup=0.0, inner_epochs=2))
    optimizer = setup.make_optimizer(config, steps=5)
    np.testing.assert_allclose(step_sizes(optimizer), np.arange(10, 0, -1) / 10, rtol=1e-3)


# ---------------------------------------------------------------- identities of the objective


class BigramPolicy:
    """The logits of the next token are the row of a table at the last one."""

    def apply(self, variables, x, mask=None, method=None):
        if method == "hidden":
            return jax.nn.one_hot(x, 40)
        table = variables["params"]["table"]
        return x @ (table + variables["lora"]["table"] if "lora" in variables else table)


BASE = {"table": np.random.default_rng(2).normal(size=(40, 40)).astype(np.float32)}
PAIR = {"table": np.random.default_rng(3).normal(0, 0.3, (2, 40, 40)).astype(np.float32)}


def learned(objective, batch, rounds=1, adapters=PAIR):
    """(adapters, metrics) after rounds on the same batch, as numpy arrays. Steps are proportional to the
    gradient: Adam would blow the rounding of small gradients up."""
    sgd = optax.sgd(5.0)
    state = init_state(jax.tree.map(jnp.array, adapters), sgd)
    update = make_update(BigramPolicy(), sgd, objective)
    for _ in range(rounds):
        state, metrics = update(state, BASE, batch)
    assert int(state.step) == rounds
    return jax.tree.map(np.asarray, (state.adapters, metrics))


def assert_close(a, b):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), a, b)


@pytest.mark.parametrize(
    "parts, variant",
    [
        (8, dict(aggregation="token", kl_estimator="k2", inner_epochs=3)),
        (2, dict(importance_cap=0.9)),
        (4, dict(aggregation="constant", importance_level="sequence", importance_cap=1.1, inner_epochs=2)),
    ],
)
def test_microbatches_change_no_variant(parts, variant):
    # parts of unequal numbers of active rows and tokens: a mean of their means would differ
    objective = Objective(kl_weight=0.1, max_new_tokens=2 * LENGTH, **variant)
    batch = random_batch(inactive=(0, 4, 5))
    assert_close(
        learned(objective, batch), learned(dataclasses.replace(objective, microbatches=parts), batch)
    )


def on_policy_batch():
    """A batch whose sampler is the learner itself."""
    batch = random_batch()
    score = lambda adapter, tokens, mask: token_logprobs(
        BigramPolicy(), {"params": BASE, "lora": adapter}, tokens, mask, start=WIDTH, chunk=LENGTH
    )
    logps = jax.vmap(score)(PAIR, batch.tokens, batch.mask)
    return dataclasses.replace(batch, logps=np.where(batch.completion_mask, logps, 0))


@pytest.mark.parametrize("cap", [0.0, math.inf])
def test_two_epochs_are_two_updates_with_the_first_log_probs(cap):
    # With the sampler equal to the learner before the update all weights are 1, and the batch's own
    # log-probs are those that stay frozen.
    batch = on_policy_batch()
    two = learned(Objective(kl_weight=0.1, importance_cap=cap, inner_epochs=2), batch)
    sequential = learned(Objective(kl_weight=0.1), batch, rounds=2)
    assert_close(two[0], sequential[0])
    # it matters what is frozen: with the log-probs of each step's own learner the end is another one
    renewed = learned(Objective(kl_weight=0.1, importance_cap=math.inf), batch, rounds=2)
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), two[0], renewed[0])
    assert max(jax.tree.leaves(apart)) > 1e-3


def test_without_truncation_and_on_policy_importance_sampling_changes_nothing():
    batch = on_policy_batch()
    plain, weighted = (learned(Objective(importance_cap=cap), batch) for cap in (0.0, math.inf))
    assert_close(plain, weighted)
    np.testing.assert_allclose(plain[1]["importance_weight"], 1, atol=1e-5)


def test_a_longer_policy_axis_is_its_parts():
    # two pairs stacked are updated as each pair alone
    objective = Objective(inner_epochs=2, importance_cap=1.5, microbatches=2)
    batch = random_batch()
    twice = lambda tree: jax.tree.map(lambda x: np.concatenate([x, x[::-1]]), tree)
    four = learned(objective, twice(batch), adapters=twice(PAIR))
    alone = learned(objective, batch)
    assert_close(four, twice(alone))
