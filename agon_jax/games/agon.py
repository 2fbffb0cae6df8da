"""Agon: one policy drafts, the other reads the write-up and answers (method: section 2).

    drafts      K completions a problem from the plain prompt, paid by (2)
    summaries   what each draft wrote after its private reasoning, the final answer hidden
    challenges  one completion a draft, its prompt holding that draft's summary, paid by (3)
    advantages  inside each stream's own group of K
    rotation    the roles swap at every step

A variant is data: fields of the frozen dataclass `Agon`. All members of a population (the same
pair under several seeds) play at once, each on its own problems. Left out: more than two policies.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agon_jax.actor import Actor, Players, Sampling, Stage, concatenate
from agon_jax.grpo import group_advantages, has_signal
from agon_jax.rewards import REWARDS, Outcome, Weights, cooperative
from agon_jax.types import Batch, Problem

DRAFT, CHALLENGE = 0, 1  # stage numbers: part of a row's key


@dataclasses.dataclass(frozen=True)
class Agon:
    """One member of the family of games.

    Attributes:
      policies: 2, or 1 for the single-policy baselines.
      group_size: K. Without a challenge stream the drafts' group is 2K: equal rollouts.
      challenge: whether there is a second stream (False is plain GRPO).
      exchange: the second stream's prompt holds the draft's summary; False: the plain prompt.
      opponent: whose outcome a challenger's reward is compared with: the draft of its own number
        ("paired"), or the first draft of its group ("shared").
      rotate: swap the roles at every step; otherwise policy 0 always drafts.
      learn_drafts: False: drafts are made and read, and nothing is learnt from them (a control that
        holds the drafts' skill still).
      reward: of the challengers, a key of rewards.REWARDS.
      weights: of the reward's terms.
      advantage_std: what advantages are divided by, a key of grpo.ADVANTAGE_VARIANCES.
      mask_truncated: a completion cut at the cap counts in its group's mean, but is not trained on.
    """

    policies: int = 2
    group_size: int = 8
    challenge: bool = True
    exchange: bool = True
    opponent: str = "paired"
    rotate: bool = True
    learn_drafts: bool = True
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

    @property
    def live(self) -> np.ndarray:
        """[G] False for groups from which nothing is learnt: equal rewards."""
        return self.active.any(axis=1)

    def groups(self, index: np.ndarray) -> Stream:
        """Some of the groups."""
        size = self.rewards.shape[1]
        rows = (index[:, None] * size + np.arange(size)).ravel()
        values = (self.rewards, self.advantages, self.active)
        return Stream(self.stage.take(rows), *(own[index] for own in values))


@dataclasses.dataclass(frozen=True)
class Round:
    """All rollouts of one step of one member of the population.

    `spent` holds rollouts that were made and not used (groups that were refilled).
    """

    drafts: Stream
    challenges: Stream | None
    spent: tuple[Stage, ...] = ()

    @property
    def streams(self) -> list[Stream]:
        return [self.drafts] if self.challenges is None else [self.drafts, self.challenges]

    @property
    def live(self) -> np.ndarray:
        """[G] problems of which any stream carries a signal."""
        return np.any([stream.live for stream in self.streams], axis=0)


def draft(
    actor: Actor,
    players: Players,
    policy: int | None,
    problems: Sequence[Problem],
    group: int,
    sampling: Sampling,
    *,
    step: int,
    stage: int = DRAFT,
) -> Stage:
    """`group` completions a problem from the plain prompt, problem-major; `problems` are those of
    member 0, then as many of member 1, …"""
    rows = [problem for problem in problems for _ in range(group)]
    messages = [actor.task.prompts.draft_messages(problem.text) for problem in rows]
    rollouts = np.tile(np.arange(group), len(problems))
    return actor.act(players, policy, rows, messages, sampling, step=step, stage=stage, rollouts=rollouts)


def challenge(
    actor: Actor,
    players: Players,
    policy: int | None,
    drafts: Stage,
    group: int,
    sampling: Sampling,
    *,
    step: int,
) -> Stage:
    """One completion a draft; its prompt holds the draft's summary, never its private reasoning."""
    messages = [
        actor.task.prompts.challenge_messages(problem.text, actor.shown_attempt(problem, completion))
        for problem, completion in zip(drafts.problems, drafts.completions, strict=True)
    ]
    rollouts = np.tile(np.arange(group), len(messages) // group)
    act = dict(step=step, stage=CHALLENGE, rollouts=rollouts)
    return actor.act(players, policy, drafts.problems, messages, sampling, **act)


def play(
    game: Agon,
    actor: Actor,
    players: Players,
    problems: Sequence[Sequence[Problem]],
    sampling: Sampling,
    *,
    step: int,
) -> list[Round]:
    """One round of every member of the population, on its own problems (equally many each)."""
    drafter, challenger = game.roles(step)
    size = game.draft_group
    flat = [problem for own in problems for problem in own]
    drafts = draft(actor, players, drafter, flat, size, sampling, step=step)
    if not game.challenge:
        return [
            Round(_pay(game, s, cooperative(s.outcome, None, game.weights), size), None)
            for s in drafts.split(len(problems))
        ]
    if game.exchange:
        challenges = challenge(actor, players, challenger, drafts, size, sampling, step=step)
    else:
        challenges = draft(actor, players, challenger, flat, size, sampling, step=step, stage=CHALLENGE)
    rounds = []
    for first, second in zip(drafts.split(len(problems)), challenges.split(len(problems)), strict=True):
        drafts_paid = _pay(game, first, cooperative(first.outcome, None, game.weights), size)
        if not game.learn_drafts:
            drafts_paid = dataclasses.replace(drafts_paid, active=np.zeros_like(drafts_paid.active))
        rival = first.outcome if game.opponent == "paired" else _shared(first.outcome, size)
        rewards = REWARDS[game.reward](second.outcome, rival, game.weights)
        rounds.append(Round(drafts_paid, _pay(game, second, rewards, size)))
    return rounds


def refill(round_: Round, extra: Round) -> Round:
    """Problems without any signal, replaced by those of `extra` that have one (dynamic sampling,
    arXiv 2503.14476). The number of groups stays; what is not used stays in the budget."""
    dead, fresh = np.flatnonzero(~round_.live), np.flatnonzero(extra.live)
    count = min(len(dead), len(fresh))
    kept = np.setdiff1d(np.arange(len(round_.live)), dead[:count])
    unused = np.setdiff1d(np.arange(len(extra.live)), fresh[:count])
    pairs = zip(round_.streams, extra.streams, strict=True)
    streams = [_join(a.groups(kept), b.groups(fresh[:count])) for a, b in pairs]
    left = [(round_, dead[:count]), (extra, unused)]
    spent = [s.groups(index).stage for source, index in left if len(index) for s in source.streams]
    challenges = streams[1] if len(streams) > 1 else None
    return Round(streams[0], challenges, (*round_.spent, *extra.spent, *spent))


def _join(first: Stream, second: Stream) -> Stream:
    both = lambda a, b: np.concatenate([a, b])
    stage = concatenate(first.stage, second.stage) if len(second.rewards) else first.stage
    pairs = [(getattr(first, name), getattr(second, name)) for name in ("rewards", "advantages", "active")]
    return Stream(stage, *(both(*pair) for pair in pairs))


def _shared(outcome: Outcome, group: int) -> Outcome:
    """The outcome of each group's first draft in the place of every draft's."""
    first = lambda values: np.repeat(values.reshape(-1, group)[:, 0], group)
    return Outcome(*(None if values is None else first(values) for values in outcome))


def _pay(game: Agon, stage: Stage, rewards: np.ndarray, group: int) -> Stream:
    rewards = rewards.reshape(-1, group)
    advantages, live = jax.device_get(_advantages(jnp.asarray(rewards), game.advantage_std))
    kept = stage.rollouts.finished.reshape(-1, group) | (not game.mask_truncated)
    return Stream(stage, rewards, advantages, live[:, None] & kept)


@functools.partial(jax.jit, static_argnames="std")
def _advantages(rewards, std):
    """[G, K] -> advantages [G, K], groups with a signal [G]."""
    return jax.vmap(lambda group: (group_advantages(group, std), has_signal(group)))(rewards)


def to_batch(game: Agon, rounds: Sequence[Round], completion_buckets: Sequence[int]) -> Batch:
    """Rows of the update, [S * P, N, ...]: by member, then in policy order whatever the roles were.

    Completions are cut to the smallest bucket that holds all sampled tokens; prompts are padded
    on the left to the widest stream.
    """
    streams = [stream for round_ in rounds for stream in round_.streams]
    width = max(stream.stage.prompts.tokens.shape[1] for stream in streams)
    longest = max(int(stream.stage.rollouts.mask.sum(axis=1).max()) for stream in streams)
    length = next(bucket for bucket in completion_buckets if bucket >= longest)
    policies = []
    for round_ in rounds:
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
