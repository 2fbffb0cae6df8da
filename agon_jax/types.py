"""The nouns of the method, shared by every module.

Shape letters used across the project:
  P policies (adapters)   N rows of one policy   B rows of a sampling call
  T prompt tokens         C completion tokens    S = T + C tokens of a training row
  K group size            V vocabulary
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

PyTree = Any
Progress = Callable[[int, int], None]  # called with (done, total)


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem with its reference answer.

    `uid` is a content hash (31 bits): it seeds the row's sampling keys and decides the split, so
    adding problems to a source moves nothing.
    """

    uid: int
    text: str
    reference: str


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Left-padded prompts of one sampling call, on the host."""

    tokens: np.ndarray  # [B, T] int32
    mask: np.ndarray  # [B, T] bool, True on real tokens


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rollouts:
    """What was really sampled. Never derived again from text or from the pad id.

    The mask runs up to and including the first stop id. `logps` are under the distribution the
    ids were drawn from (temperature and nucleus included); they are 0 where the mask is False.
    """

    tokens: Any  # [B, C] int32
    mask: Any  # [B, C] bool
    logps: Any  # [B, C] float32
    finished: Any  # [B] bool: a stop id was sampled; False means cut at the cap


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Training rows of the stacked pair, prompt and completion in one left-padded row."""

    tokens: Any  # [P, N, S] int32
    mask: Any  # [P, N, S] bool, True on real tokens (prompt and completion)
    completion_mask: Any  # [P, N, C] bool, the last C positions: True on sampled tokens
    logps: Any  # [P, N, C] float32, the sampler's log-probs of those tokens
    advantages: Any  # [P, N] float32; 0 for rows of a dropped (zero-variance) group
    active: Any  # [P, N] bool: the row has a part in loss and normaliser. Not to be read off the
    # advantages: a row that earned exactly its group's mean has advantage 0 and counts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that training changes. The frozen base is not here: it is never updated or saved."""

    adapters: PyTree  # LoRA pytree, every leaf with a leading policy axis P
    opt_state: PyTree  # optax state, vmapped: every leaf with a leading policy axis P
    step: Any  # [] int32, rounds done; each takes grpo.inner_epochs optimizer steps
