"""Agon: one policy drafts, the other reads the write-up and answers (method: section 2).

    drafts      K completions a problem from the plain prompt, paid by (2)
    summaries   what each draft wrote after its private reasoning, the final answer hidden
    challenges  one completion a draft, its prompt holding that draft's summary, paid by (3)
    advantages  inside each stream's own group of K
    rotation    the roles swap at every step

A variant is data: fields of the frozen dataclass `Agon`. Left out: groups refilled after a
zero-variance draw, more than two policies.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agon_jax.actor import Actor, Sampling, Stage
from agon_jax.grpo import group_advantages, has_signal
from agon_jax.rewards import REWARDS, Weights, cooperative
from agon_jax.types import Batch, Problem, PyTree

DRAFT, CHALLENGE = 0, 1  # stage numbers: part of a row's key


@dataclasses.dataclass(frozen=True)
class Agon:
    """One member of the family of games.

    Attributes:
      policies: 2, or 1 for the single-policy baselines.
      group_size: K. Without a challenge stream the drafts' group is 2K: equal rollouts.
      challenge: whether a second stream reads the drafts (False is plain GRPO).
      rotate: swap the roles at every step; otherwise policy 0 always drafts.
      reward: of the challengers, a key of rewards.REWARDS.
      weights: of the reward's terms.
      advantage_std: what advantages are divided by, a key of grpo.ADVANTAGE_VARIANCES.
      mask_truncated: a completion cut at the cap counts in its group's mean, but is not trained on.
    """

    policies: int = 2
    group_size: int = 8
    challenge: bool = True
    rotate: bool = True
    reward: str = "adv"
    weights: Weights = Weights()
    advantage_std: str = "population"
    mask_truncated: bool = False

    @property
    def rollouts_per_problem(self) -> int:
        """2K for every member of the family."""
        return 2 * self.group_size

    @property
    def draft_group(self) -> int:
        """Size of a group of drafts."""
        return self.group_size if self.challenge else 2 * self.group_size

    def roles(self, step: int) -> tuple[int, int]:
        """(drafter, challenger) at a step."""
        drafter = step % self.policies if self.rotate else 0
        return drafter, (self.policies - 1) - drafter


@dataclasses.dataclass(frozen=True)
class Stream:
    """A stage with what it was paid. Row g * K + k is member k of group g."""

    stage: Stage
    rewards: np.ndarray  # [G, K]
    advantages: np.ndarray  # [G, K]
    active: np.ndarray  # [G, K] bool: has a part in loss and normaliser


@dataclasses.dataclass(frozen=True)
class Round:
    """All rollouts of one step."""

    drafts: Stream
    challenges: Stream | None

    @property
    def streams(self) -> list[Stream]:
        return [self.drafts] if self.challenges is None else [self.drafts, self.challenges]


def draft(
    actor: Actor,
    adapters: PyTree,
    policy: int | None,
    problems: Sequence[Problem],
    group: int,
    sampling: Sampling,
    *,
    seed: int,
    step: int,
) -> Stage:
    """`group` completions a problem from the plain prompt, problem-major."""
    rows = [problem for problem in problems for _ in range(group)]
    messages = [actor.task.prompts.draft_messages(problem.text) for problem in rows]
    return actor.act(
        adapters,
        policy,
        rows,
        messages,
        sampling,
        seed=seed,
        step=step,
        stage=DRAFT,
        rollouts=np.tile(np.arange(group), len(problems)),
    )


def challenge(
    actor: Actor,
    adapters: PyTree,
    policy: int | None,
    drafts: Stage,
    group: int,
    sampling: Sampling,
    *,
    seed: int,
    step: int,
) -> Stage:
    """One completion a draft; its prompt holds the draft's summary, never its private reasoning."""
    messages = [
        actor.task.prompts.challenge_messages(problem.text, actor.shown_attempt(problem, completion))
        for problem, completion in zip(drafts.problems, drafts.completions, strict=True)
    ]
    return actor.act(
        adapters,
        policy,
        drafts.problems,
        messages,
        sampling,
        seed=seed,
        step=step,
        stage=CHALLENGE,
        rollouts=np.tile(np.arange(group), len(messages) // group),
    )


def play(
    game: Agon,
    actor: Actor,
    adapters: PyTree,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    seed: int,
    step: int,
) -> Round:
    """One round on a batch of problems."""
    drafter, challenger = game.roles(step)
    drafts = draft(actor, adapters, drafter, problems, game.draft_group, sampling, seed=seed, step=step)
    drafts_paid = _pay(game, drafts, cooperative(drafts.outcome, None, game.weights), game.draft_group)
    if not game.challenge:
        return Round(drafts_paid, None)
    challenges = challenge(
        actor, adapters, challenger, drafts, game.group_size, sampling, seed=seed, step=step
    )
    rewards = REWARDS[game.reward](challenges.outcome, drafts.outcome, game.weights)
    return Round(drafts_paid, _pay(game, challenges, rewards, game.group_size))


def _pay(game: Agon, stage: Stage, rewards: np.ndarray, group: int) -> Stream:
    rewards = rewards.reshape(-1, group)
    advantages, live = jax.device_get(_advantages(jnp.asarray(rewards), game.advantage_std))
    kept = stage.rollouts.finished.reshape(-1, group) | (not game.mask_truncated)
    return Stream(stage, rewards, advantages, live[:, None] & kept)


@functools.partial(jax.jit, static_argnames="std")
def _advantages(rewards, std):
    """[G, K] -> advantages [G, K], groups with a signal [G]."""
    return jax.vmap(lambda group: (group_advantages(group, std), has_signal(group)))(rewards)


def to_batch(game: Agon, round_: Round, completion_buckets: Sequence[int]) -> Batch:
    """Rows of the update, in policy order whatever the roles were: [P, N, ...].

    Completions are cut to the smallest bucket that holds all sampled tokens; prompts are padded
    on the left to the widest stream.
    """
    width = max(stream.stage.prompts.tokens.shape[1] for stream in round_.streams)
    sampled = max(int(s.stage.rollouts.mask.sum(axis=1).max()) for s in round_.streams)
    length = next(bucket for bucket in completion_buckets if sampled <= bucket)
    policies = []
    for policy in range(game.policies):
        rows = [_rows(s, width, length) for s in round_.streams if s.stage.policy == policy]
        policies.append(jax.tree.map(lambda *xs: np.concatenate(xs), *rows))
    return jax.tree.map(lambda *xs: np.stack(xs), *policies)


def _rows(stream: Stream, width: int, length: int) -> Batch:
    """One stream as rows [N, ...], padded to common widths."""
    prompts, rollouts = stream.stage.prompts, stream.stage.rollouts
    missing = width - prompts.tokens.shape[1]
    left = lambda x: np.pad(x, ((0, 0), (missing, 0)))
    mask = rollouts.mask[:, :length]
    return Batch(
        tokens=np.concatenate([left(prompts.tokens), rollouts.tokens[:, :length]], axis=1),
        mask=np.concatenate([left(prompts.mask), mask], axis=1),
        completion_mask=mask,
        logps=rollouts.logps[:, :length],
        advantages=stream.advantages.reshape(-1),
        active=stream.active.reshape(-1),
    )


def round_metrics(game: Agon, round_: Round, step: int) -> dict[str, float]:
    """Figures of one round, by role."""
    metrics: dict[str, float] = {"drafter": float(game.roles(step)[0])}
    for role, stream in zip(("draft", "challenge"), round_.streams, strict=False):
        outcome = stream.stage.outcome
        metrics |= {
            f"{role}_pass_rate": float(outcome.correct.mean()),
            f"{role}_reward": float(stream.rewards.mean()),
            f"{role}_well_formed": float(outcome.well_formed.mean()),
            f"{role}_length": float(outcome.length.mean()),
            f"{role}_truncated": float(1 - stream.stage.rollouts.finished.mean()),
            f"{role}_zero_variance": float((stream.advantages == 0).all(axis=1).mean()),
        }
    metrics["reward"] = float(np.mean([s.rewards.mean() for s in round_.streams]))
    metrics["generated_tokens"] = sum(s.stage.generated_tokens for s in round_.streams)
    metrics["prefilled_tokens"] = sum(s.stage.prefilled_tokens for s in round_.streams)
    metrics["rollouts"] = sum(len(s.stage.problems) for s in round_.streams)
    if round_.challenges is not None:
        metrics |= _exchange_metrics(round_.drafts.stage, round_.challenges.stage)
    return metrics


def _exchange_metrics(drafts: Stage, challenges: Stage) -> dict[str, float]:
    """What reading the draft did; a rate over an empty set is left out."""
    was_right = drafts.outcome.correct == 1
    right = challenges.outcome.correct == 1
    same = np.array(
        [
            d.answer is not None and d.answer == c.answer
            for d, c in zip(drafts.completions, challenges.completions, strict=True)
        ]
    )
    rates = {
        "copy_rate": same,  # same answer as the draft, right or wrong
        "conversion_rate": right[~was_right],  # draft wrong -> right
        "keep_rate": right[was_right],  # draft right -> right
    }
    return {name: float(values.mean()) for name, values in rates.items() if values.size}
