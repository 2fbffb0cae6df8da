"""Worlds whose problems are made, not read: splits by a content hash, streams without end."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator
from typing import Any, Protocol

from agon_jax.types import Problem

SPLITS = {"train": (0, 80), "validation": (80, 90), "heldout": (90, 100)}  # per cent of the hash


class World(Protocol):
    """What a world has to say about its problems."""

    def draw(self, rng: random.Random) -> Any:
        """Contents of a random problem."""

    def key(self, contents: Any) -> str:
        """What of the contents decides the split: two problems with one key never lie in two."""

    def problem(self, contents: Any) -> Problem:
        """The problem with these contents."""


def content_hash(text: str) -> int:
    """31-bit hash of a text: uids and splits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def split_of(key: str) -> str:
    """The split that a key belongs to."""
    percent = content_hash(key) % 100
    return next(name for name, (low, high) in SPLITS.items() if low <= percent < high)


def draw_from(world: World, split: str, rng: random.Random) -> Any:
    """Contents of a random problem of a split."""
    while True:
        contents = world.draw(rng)
        if split_of(world.key(contents)) == split:
            return contents


def generate(world: World, split: str, count: int, seed: int) -> list[Problem]:
    """`count` distinct problems of a split, the same for the same seed.

    Raises:
      ValueError: the world has not so many.
    """
    return list(itertools.islice(_stream(world, split, seed), count))


def _stream(world: World, split: str, seed: int) -> Iterator[Problem]:
    rng = random.Random(f"{split}/{seed}")
    seen: set[str] = set()
    fruitless = 0
    while fruitless < 100_000:
        fruitless += 1
        contents = world.draw(rng)
        if split_of(world.key(contents)) != split:
            continue
        problem = world.problem(contents)
        if problem.text not in seen:
            seen.add(problem.text)
            fruitless = 0
            yield problem
    raise ValueError(f"the world has no more than {len(seen)} problems in its {split} split")
