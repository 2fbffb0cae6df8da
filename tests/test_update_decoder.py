"""The update of the stacked pair on a real decoder: isolation of the policies, microbatches, sharding."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import ROWS, random_batch, tiny_config

from agon_jax import sharding
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.lora import init_adapter, stack_adapters
from agon_jax.train import place
from agon_jax.update import Objective, init_state, make_optimizer, make_update

CONFIG = tiny_config(
    vocab_size=40, hidden_size=24, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=56
)
MODEL = Decoder(CONFIG, lora_scale=2.0)


def fresh(noise=0.1):
    base = nn.meta.unbox(MODEL.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"])
    base = jax.tree.map(lambda x: x * 3, base)
    adapters = [init_adapter(jax.random.key(i), base, 4, ("_proj$",), noise) for i in range(2)]
    return base, stack_adapters(adapters)


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


# Equal gradients are compared by plain steps: Adam divides by a gradient's size, so that one element that is
# nearly 0 turns its rounding into a step of its own.
SGD = optax.sgd(1.0)


def assert_moved(before, after):
    """By far more than any tolerance here, or the comparison says nothing."""
    moved = jax.tree.map(lambda a, b: np.abs(np.asarray(a) - b).max(), before, after)
    assert max(jax.tree.leaves(moved)) > 1e-2


@pytest.mark.parametrize("parts", [2, 8])
def test_microbatches_change_nothing_but_memory(parts):
    base, adapters = fresh()
    results = []
    for microbatches in (1, parts):
        objective = Objective(kl_weight=0.1, microbatches=microbatches)
        state = init_state(jax.tree.map(jnp.copy, adapters), SGD)
        state, metrics = make_update(MODEL, SGD, objective)(state, base, random_batch())
        results.append(jax.tree.map(np.asarray, (state.adapters, metrics)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), *results)
    assert_moved(adapters, results[0][0])


def test_a_fully_padded_row_changes_nothing():
    # NaN would leak from the row's empty softmax, and its row would count in the normaliser
    base, adapters = fresh()
    batch = random_batch()
    pad = lambda x: np.concatenate([x, np.zeros_like(x)], axis=1)
    results = []
    for rows in (batch, jax.tree.map(pad, batch)):
        state = init_state(jax.tree.map(jnp.copy, adapters), SGD)
        state, metrics = make_update(MODEL, SGD, Objective())(state, base, rows)
        metrics.pop("active_rows")
        results.append(jax.tree.map(np.asarray, (state.adapters, metrics)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), *results)
    assert_moved(adapters, results[0][0])
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
        state = jax.device_put(init_state(jax.tree.map(jnp.copy, adapters), SGD), sharding.replicated(mesh))
        update = make_update(MODEL, SGD, Objective(), mesh)
        for step in range(3):
            state, _ = update(state, sharded, place(random_batch(step), mesh))
        results.append(jax.tree.map(np.asarray, state.adapters))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), *results)
    assert_moved(adapters, results[0])
