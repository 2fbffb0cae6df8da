"""LoRA adapters as plain pytrees: {module path: {"a": [in, r], "b": [r, out]}}.

An adapter has the nesting of the base's params, so that `apply({"params": base, "lora": adapter})`
is the policy and leaving `lora` out is the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from agon_jax.types import PyTree


def init_adapter(key: jax.Array, base: PyTree, rank: int, targets: tuple[str, ...], noise: float) -> PyTree:
    """One adapter for every projection whose path matches a target.

    A is uniform in +-1/sqrt(in) (PEFT's default, Kaiming with a = sqrt 5); B is Gaussian with
    standard deviation `noise`, so noise = 0 is the standard init that leaves the base unchanged.

    Args:
      key: PRNG key.
      base: params of the decoder; only shapes are read.
      rank: r.
      targets: regular expressions searched in paths such as `layers_0/self_attn/q_proj`.
      noise: standard deviation of B.

    Raises:
      ValueError: a pattern matches no projection.
    """
    shapes = {path: leaf.shape for path, leaf in projections(base).items()}
    chosen: set[str] = set()
    for pattern in targets:
        try:
            hits = {path for path in shapes if re.search(pattern, path)}
        except re.error as error:
            raise ValueError(f"lora.targets: {pattern!r} is not a regular expression: {error}") from None
        if not hits:
            raise ValueError(
                f"lora.targets: the pattern {pattern!r} matches no linear layer; the model has "
                + ", ".join(sorted({path.rsplit("/", 1)[-1] for path in shapes}))
            )
        chosen |= hits
    adapter: PyTree = {}
    for index, path in enumerate(sorted(chosen)):
        key_a, key_b = jax.random.split(jax.random.fold_in(key, index))
        fan_in, fan_out = shapes[path]
        bound = fan_in**-0.5
        a = jax.random.uniform(key_a, (fan_in, rank), jnp.float32, -bound, bound)
        b = noise * jax.random.normal(key_b, (rank, fan_out), jnp.float32)
        insert(adapter, tuple(path.split("/")), {"a": a, "b": b})
    return adapter


def projections(base: PyTree) -> dict[str, jax.Array]:
    """Path -> kernel of every linear layer of the decoder."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(base):
        names = [entry.key for entry in path]
        if names[-1] == "kernel":
            found["/".join(names[:-1])] = leaf
    return found


def stack_adapters(adapters: list[PyTree]) -> PyTree:
    """Adapters -> one pytree with a leading policy axis P."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *adapters)


def leaves(adapter: PyTree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], PyTree]]:
    """(module path, {"a", "b"}) of every adapted layer, sorted by path."""
    if "a" in adapter:
        yield path, adapter
        return
    for name, child in sorted(adapter.items()):
        yield from leaves(child, (*path, name))


def insert(tree: PyTree, path: tuple[str, ...], value: PyTree) -> None:
    """tree[path[0]][path[1]]... = value, making the dicts on the way."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value
