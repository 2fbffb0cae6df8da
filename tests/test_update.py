"""The update of the stacked pair: a gradient by hand, isolation of the policies, sharding."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import tiny_config

from agon_jax import sharding
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.lora import init_adapter, stack_adapters
from agon_jax.train import place
from agon_jax.types import Batch
from agon_jax.update import Objective, init_state, make_optimizer, make_update

ON_POLICY = Objective(kl_weight=0.0)


class TwoTokenPolicy:
    """p = softmax(theta) over two tokens, whatever the context."""

    def apply(self, variables, x, mask=None, method=None):
        if method == "hidden":
            return jnp.ones((*x.shape, 1))
        return x * variables.get("lora", {"theta": jnp.zeros(2)})["theta"]


def toy_batch(tokens, advantages, logps):
    """One policy; a prompt of one token and a completion of one token a row."""
    tokens = jnp.array([[[0, t] for t in tokens]])
    ones = jnp.ones(tokens.shape, bool)
    return Batch(tokens, ones, ones[..., 1:], jnp.array(logps)[None, :, None], jnp.array(advantages)[None])


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


def test_a_ratio_beyond_the_clip_stops_its_own_token_only():
    # token 0 is 1.5 times likelier than when it was sampled (A > 0: clipped, no gradient);
    # token 1 has ratio 1: -dL/dtheta = -1/2 (-p0, 1 - p1) = (p0, -p0) / 2 = (1/4, -1/4)
    logps = np.log([0.5 / 1.5, 0.5])
    moved, metrics = toy_step((0.0, 0.0), toy_batch([0, 1], [1.0, -1.0], logps))
    np.testing.assert_allclose(moved, [0.25, -0.25], rtol=1e-5)
    np.testing.assert_allclose(metrics["clip_share"], 0.5)


def test_the_kl_pulls_towards_the_base_and_is_measured_against_it():
    # Base: theta = 0, q = 1/2. Policy p0 = 3/4; one row, token 0, so (with A tiny) the gradient is
    # that of k3 at log-ratio log(q/p) = log(2/3): d k3/d logp = 1 - q/p = 1/3;
    # dlogp/dtheta_0 = 1 - p0 = 1/4, so theta_0 moves by -(1/12).
    theta = (np.log(3.0).item(), 0.0)
    batch = toy_batch([0], [1e-12], [np.log(0.75)])
    moved, metrics = toy_step(theta, batch, Objective(kl_weight=1.0))
    np.testing.assert_allclose(moved, [-1 / 12, 1 / 12], rtol=1e-4)
    np.testing.assert_allclose(metrics["kl"], 2 / 3 - np.log(2 / 3) - 1, rtol=1e-4)


def test_dropped_groups_add_nothing_to_gradient_or_normaliser():
    # the dropped rows would double the normaliser: (0.25, -0.25) instead of (0.5, -0.5)
    logps = np.log([0.5] * 4)
    moved, metrics = toy_step((0.0, 0.0), toy_batch([0, 1, 0, 0], [1.0, -1.0, 0.0, 0.0], logps))
    np.testing.assert_allclose(moved, [0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(metrics["active_rows"], 0.5)


def test_without_any_signal_nothing_moves_even_with_momentum_and_decay():
    optimizer = make_optimizer(learning_rate=0.1, steps=9, warmup=0.0, weight_decay=0.1, max_grad_norm=1.0)
    update = make_update(TwoTokenPolicy(), optimizer, ON_POLICY)
    state = init_state({"theta": jnp.array([[1.0, 2.0]])}, optimizer)
    logps = [float(jax.nn.log_softmax(jnp.array([1.0, 2.0]))[t]) for t in (0, 1)]
    state, _ = update(state, {}, toy_batch([0, 1], [1.0, -1.0], logps))
    before = jax.tree.map(np.asarray, (state.adapters, state.opt_state))
    state, _ = update(state, {}, toy_batch([0, 1], [0.0, 0.0], logps))
    jax.tree.map(np.testing.assert_array_equal, before, (state.adapters, state.opt_state))
    assert int(state.step) == 2


def test_learning_rate_warms_up_and_decays_to_zero():
    optimizer = make_optimizer(learning_rate=1.0, steps=10, warmup=0.2, weight_decay=0.0, max_grad_norm=1e9)
    params, sizes = jnp.array([0.0]), []
    state = optimizer.init(params)
    for _ in range(10):
        updates, state = optimizer.update(jnp.array([1.0]), state, params)
        sizes.append(-float(updates[0]))
    # Adam with a constant gradient moves by the learning rate: 1/2, 1, then linearly down to 1/9
    np.testing.assert_allclose(sizes, [0.5, *np.arange(9, 0, -1) / 9], rtol=1e-3)


# ---------------------------------------------------------------- a real decoder

CONFIG = tiny_config(
    vocab_size=40, hidden_size=24, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=56
)
MODEL = Decoder(CONFIG, lora_scale=2.0)
ROWS, WIDTH, LENGTH = 8, 5, 7


def fresh(noise=0.1):
    base = nn.meta.unbox(MODEL.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"])
    base = jax.tree.map(lambda x: x * 3, base)
    adapters = [init_adapter(jax.random.key(i), base, 4, ("_proj$",), noise) for i in range(2)]
    return base, stack_adapters(adapters)


def random_batch(seed=0, advantages=None):
    rng = np.random.default_rng(seed)
    shape = (2, ROWS, WIDTH + LENGTH)
    lengths = rng.integers(1, LENGTH + 1, (2, ROWS, 1))
    completion = np.arange(LENGTH) < lengths
    prompt = np.arange(WIDTH) >= rng.integers(0, 3, (2, ROWS, 1))
    return Batch(
        tokens=rng.integers(0, 40, shape).astype(np.int32),
        mask=np.concatenate([prompt, completion], axis=-1),
        completion_mask=completion,
        logps=np.where(completion, rng.normal(-3, 0.3, completion.shape), 0).astype(np.float32),
        advantages=rng.normal(size=(2, ROWS)).astype(np.float32) if advantages is None else advantages,
    )


def optimizer():
    return make_optimizer(learning_rate=1e-2, steps=10, warmup=0.1, weight_decay=0.01, max_grad_norm=1.0)


@pytest.mark.parametrize("quiet", [0, 1])
def test_updating_one_policy_leaves_the_other_and_the_base_bit_identical(quiet):
    base, adapters = fresh()
    state = init_state(adapters, optimizer())
    advantages = np.random.default_rng(1).normal(size=(2, ROWS)).astype(np.float32)
    advantages[quiet] = 0
    before = jax.tree.map(np.array, (state.adapters, state.opt_state, base))
    state, _ = make_update(MODEL, optimizer(), Objective())(state, base, random_batch(advantages=advantages))
    pick = lambda tree, p: jax.tree.map(lambda x: np.asarray(x)[p], tree)
    after = state.adapters, state.opt_state
    jax.tree.map(np.testing.assert_array_equal, pick(before[:2], quiet), pick(after, quiet))
    jax.tree.map(np.testing.assert_array_equal, before[2], jax.tree.map(np.asarray, base))
    moved = jax.tree.map(
        lambda a, b: not np.array_equal(a, b), pick(before[0], 1 - quiet), pick(after[0], 1 - quiet)
    )
    assert all(jax.tree.leaves(moved))


def test_each_policy_is_clipped_by_its_own_norm():
    # A clip over the stacked tree would let the loud policy shrink the quiet one's step.
    base, adapters = fresh()
    both = random_batch()
    loud = dataclasses.replace(both, advantages=both.advantages * np.array([[100.0], [1.0]], np.float32))
    results = []
    for batch in (both, loud):
        sgd = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0))
        state, _ = make_update(MODEL, sgd, Objective())(
            init_state(jax.tree.map(jnp.copy, adapters), sgd), base, batch
        )
        results.append(jax.tree.map(lambda x: np.asarray(x)[1], state.adapters))
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_the_optimizer_state_has_slots_for_adapters_only():
    _, adapters = fresh()
    state = init_state(adapters, optimizer())
    count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    # two Adam moments a parameter plus two counters a policy; none for the base
    assert count(state.opt_state) == 2 * count(adapters) + 2 * 2


def test_the_base_stays_unbatched_under_vmap():
    base, adapters = fresh()
    state = init_state(adapters, optimizer())
    lowered = make_update(MODEL, optimizer(), Objective()).lower(state, base, random_batch())
    text = lowered.as_text()
    for path, (shape, _) in param_specs(MODEL).items():
        if len(shape) == 2:
            for dims in (shape, shape[::-1]):
                assert f"tensor<2x{dims[0]}x{dims[1]}xf32>" not in text, path
    # the check can fail: the adapters are batched
    assert "tensor<2x24x4xf32>" in text


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_microbatches_change_nothing_but_memory(parts):
    base, adapters = fresh()
    results = []
    for microbatches in (1, parts):
        objective = Objective(kl_weight=0.1, microbatches=microbatches)
        state = init_state(jax.tree.map(jnp.copy, adapters), optimizer())
        state, metrics = make_update(MODEL, optimizer(), objective)(state, base, random_batch())
        results.append(jax.tree.map(np.asarray, (state.adapters, metrics)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), *results)


def test_a_fully_padded_row_changes_nothing():
    # NaN would leak from the row's empty softmax, and its row would count in the normaliser
    base, adapters = fresh()
    batch = random_batch()
    pad = lambda x: np.concatenate([x, np.zeros_like(x)], axis=1)
    results = []
    for rows in (batch, jax.tree.map(pad, batch)):
        state = init_state(jax.tree.map(jnp.copy, adapters), optimizer())
        state, metrics = make_update(MODEL, optimizer(), Objective())(state, base, rows)
        metrics.pop("active_rows")
        results.append(jax.tree.map(np.asarray, (state.adapters, metrics)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *results)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(results))


def test_three_steps_on_a_mesh_equal_one_device():
    base, adapters = fresh()
    specs, results = param_specs(MODEL), []
    for shape in ((1, 1, 1), (2, 2, 2)):
        mesh = sharding.make_mesh(shape, jax.devices()[: int(np.prod(shape))])
        rules = sharding.sharding_of(mesh)
        sharded = jax.tree_util.tree_map_with_path(
            lambda path, x, rules=rules: jax.device_put(x, rules(specs[tuple(e.key for e in path)][1])), base
        )
        state = jax.device_put(
            init_state(jax.tree.map(jnp.copy, adapters), optimizer()), sharding.replicated(mesh)
        )
        update = make_update(MODEL, optimizer(), Objective(), mesh)
        for step in range(3):
            state, _ = update(state, sharded, place(random_batch(step), mesh))
        results.append(jax.tree.map(np.asarray, state.adapters))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *results)
