"""Adapters: their shapes and their start."""

import functools

import jax
import numpy as np
import pytest

from agon_jax.models.lora import init_adapter, projections, stack_adapters


def init(key, params, rank, targets, noise):
    """init_adapter in one compilation."""
    make = functools.partial(init_adapter, rank=rank, targets=targets, noise=noise)
    return jax.jit(make)(jax.random.key(key), params)


def shapes(tree):
    return {
        "/".join(entry.key for entry in path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def test_tree_of_shapes(toy):
    """a is [in, r] and b [r, out]; heads * head_dim = 64 while hidden = 32; a stack leads with P."""
    _, params = toy(num_layers=1)
    make = lambda params: init_adapter(jax.random.key(0), params, 4, ("self_attn", "mlp"), noise=0.0)
    adapter = jax.eval_shape(make, params)
    literal = {
        "layers_0/self_attn/q_proj/a": (32, 4), "layers_0/self_attn/q_proj/b": (4, 64),
        "layers_0/self_attn/k_proj/a": (32, 4), "layers_0/self_attn/k_proj/b": (4, 32),
        "layers_0/self_attn/v_proj/a": (32, 4), "layers_0/self_attn/v_proj/b": (4, 32),
        "layers_0/self_attn/o_proj/a": (64, 4), "layers_0/self_attn/o_proj/b": (4, 32),
        "layers_0/mlp/gate_proj/a": (32, 4), "layers_0/mlp/gate_proj/b": (4, 48),
        "layers_0/mlp/up_proj/a": (32, 4), "layers_0/mlp/up_proj/b": (4, 48),
        "layers_0/mlp/down_proj/a": (48, 4), "layers_0/mlp/down_proj/b": (4, 32),
    }  # fmt: skip
    assert shapes(adapter) == literal
    stack = jax.eval_shape(lambda adapter: stack_adapters([adapter] * 3), adapter)
    assert shapes(stack) == {name: (3, *shape) for name, shape in literal.items()}
    assert len(projections(params)) == 7


def test_targets_choose_layers(toy):
    _, params = toy(num_layers=2)
    targets = ("layers_1/.*q_proj", "v_proj")
    adapter = jax.eval_shape(lambda: init_adapter(jax.random.key(0), params, 2, targets, noise=0.0))
    assert {name.removesuffix("/a") for name in shapes(adapter) if name.endswith("/a")} == {
        "layers_0/self_attn/v_proj", "layers_1/self_attn/q_proj", "layers_1/self_attn/v_proj"
    }  # fmt: skip


def test_a_pattern_without_a_match_is_named(toy):
    """The other pattern matches: an adapter with fewer layers than asked for would train unnoticed."""
    _, params = toy(num_layers=1)
    with pytest.raises(ValueError, match=r"'query_key_value' matches no linear layer.*q_proj"):
        init(0, params, 4, ("q_proj", "query_key_value"), noise=0.0)


def test_start(toy):
    """A uniform in +-1/sqrt(in): 0.1768 for 32, standard deviation 0.1021. A bound of
    sqrt(6 / in), the other Kaiming, would be 0.433. B has the asked-for noise, 0 without one."""
    _, params = toy(num_layers=1)
    leaf = lambda key, noise: init(key, params, 16, ("q_proj",), noise)[
        "layers_0"]["self_attn"]["q_proj"]  # fmt: skip
    zero, noisy, other = leaf(0, 0.0), leaf(0, 1e-3), leaf(1, 1e-3)
    assert 0.95 * 32**-0.5 < np.abs(zero["a"]).max() <= 32**-0.5
    np.testing.assert_allclose(np.std(zero["a"]), 32**-0.5 / 3**0.5, rtol=0.1)
    assert not np.any(zero["b"])
    np.testing.assert_allclose(np.std(noisy["b"]), 1e-3, rtol=0.1)
    np.testing.assert_array_equal(zero["a"], noisy["a"])
    assert np.abs(noisy["a"] - other["a"]).max() > 0.1  # two players do not share their A


def test_layers_do_not_share_their_draws(toy):
    """One key for all layers would give every q_proj the same A."""
    _, params = toy(num_layers=2)
    adapter = init(0, params, 4, ("q_proj",), noise=0.1)
    first, second = (adapter[f"layers_{i}"]["self_attn"]["q_proj"] for i in range(2))
    assert np.abs(first["a"] - second["a"]).max() > 0.05
    assert np.abs(first["b"] - second["b"]).max() > 0.05


def test_rows_take_turns_over_a_stack_without_an_index(toy):
    """Row i under adapter i % 3, as with that index written out; blocks of rows (0, 0, 1, 1, 2, 2) or the
    first adapter for all would differ in four rows of six."""
    model, params = toy(num_layers=1)
    stack = stack_adapters([init(key, params, 4, (".*",), noise=0.3) for key in range(3)])
    tokens = np.random.default_rng(0).integers(0, 64, (6, 5))
    apply = lambda **which: model.apply({"params": params, "lora": stack}, tokens, **which)
    turns = apply(adapter=np.arange(6) % 3)
    np.testing.assert_allclose(apply(), turns, atol=1e-4)
    for other in (np.arange(6) // 2, np.zeros(6, int)):
        differing = np.abs(apply(adapter=other) - turns).max(axis=(1, 2)) > 1e-2
        assert differing.sum() == 4
