"""An actor answers prompts: render, sample, decode, parse, verify.

Training and evaluation act through the same object, so the two cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import numpy as np

from agon_jax import sharding
from agon_jax.models.decoder import Decoder
from agon_jax.rewards import Outcome
from agon_jax.sample import row_keys, sample
from agon_jax.tasks import Task
from agon_jax.text.completion import Completion, parse
from agon_jax.text.prompts import Message
from agon_jax.text.tokenizer import Tokenizer
from agon_jax.types import Problem, Progress, Prompts, PyTree, Rollouts
from agon_jax.verify.grade import Grade

# One thread: it only waits for the referee's own processes, batch after batch.
_REFEREE = ThreadPoolExecutor(1, thread_name_prefix="referee")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to sample: temperature (0 is greedy), nucleus, cap of the completion in tokens."""

    temperature: float
    top_p: float
    max_new_tokens: int


@dataclasses.dataclass(frozen=True)
class Players:
    """The policies that act: S members (seeds) of a population with P policies each.

    Attributes:
      adapters: stacked, [S * P, ...], member 0's policies first; None for the base alone.
      seeds: S seeds; with step, stage, problem and rollout all that a member's samples depend on.
      policies: P.
    """

    adapters: PyTree | None
    seeds: tuple[int, ...]
    policies: int

    def acting(self, policy: int | None) -> PyTree | None:
        """Policy number `policy` of every member: [S, ...], without the axis when S is 1."""
        if policy is None:
            return None
        chosen = _every(self.adapters, policy, self.policies)
        return jax.tree.map(lambda x: x[0], chosen) if len(self.seeds) == 1 else chosen


@functools.partial(jax.jit, static_argnames="policies")
def _every(adapters: PyTree, policy: int, policies: int) -> PyTree:
    # The policy is an argument, not a constant: rotating roles compiles nothing.
    return jax.tree.map(lambda x: x.reshape(-1, policies, *x.shape[1:])[:, policy], adapters)


@dataclasses.dataclass(frozen=True)
class Stage:
    """B answered prompts, all on the host; row i belongs to problems[i]."""

    problems: list[Problem]
    policy: int | None  # which policy acted; None is the base
    prompts: Prompts
    rollouts: Rollouts
    texts: list[str]
    completions: list[Completion]
    judged: Future[list[Grade]]  # [B]; the referee works while the device goes on
    copied: np.ndarray | None = None  # [B] bool, for tasks that can see copying

    @property
    def grades(self) -> list[Grade]:
        """[B] verdicts; waits for the referee."""
        return self.judged.result()

    @functools.cached_property
    def outcome(self) -> Outcome:
        """What rewards are made of, float32 [B] each; waits for the referee."""
        return Outcome(
            correct=np.array([grade.correct for grade in self.grades], np.float32),
            well_formed=np.array([c.well_formed for c in self.completions], np.float32),
            length=self.rollouts.mask.sum(axis=1).astype(np.float32),
            copied=None if self.copied is None else self.copied.astype(np.float32),
        )

    def take(self, rows: np.ndarray) -> Stage:
        """Some of the rows; waits for the referee."""
        judged: Future[list[Grade]] = Future()
        judged.set_result([self.grades[i] for i in rows])
        some = lambda values: [values[i] for i in rows]
        return Stage(
            problems=some(self.problems),
            policy=self.policy,
            prompts=Prompts(self.prompts.tokens[rows], self.prompts.mask[rows]),
            rollouts=jax.tree.map(lambda x: x[rows], self.rollouts),
            texts=some(self.texts),
            completions=some(self.completions),
            judged=judged,
            copied=None if self.copied is None else self.copied[rows],
        )

    def split(self, parts: int) -> list[Stage]:
        """Equal parts, in order: the members of a population."""
        if parts == 1:
            return [self]
        return [self.take(rows) for rows in np.split(np.arange(len(self.problems)), parts)]

    @property
    def generated_tokens(self) -> int:
        """Sampled tokens, stop ids included."""
        return int(self.rollouts.mask.sum())

    @property
    def prefilled_tokens(self) -> int:
        """Real prompt tokens."""
        return int(self.prompts.mask.sum())


@dataclasses.dataclass(frozen=True)
class Actor:
    """What does not change while training: model, frozen base, tokenizer, task, mesh, shapes.

    Attributes:
      thinking: the thinking switch of the chat template.
      prompt_buckets: widths that prompts are padded to, ascending; the last one is the cap.
      max_attempt_tokens: a rival's summary longer than this is cut before it is shown.
      rows_per_call: rows of one sampling call at most (more are done in several calls, a rest is
        filled up, so that only this row count or a smaller training batch is ever compiled).
      progress: of the referee on a batch of answers.
    """

    model: Decoder
    base: PyTree
    tokenizer: Tokenizer
    task: Task
    mesh: jax.sharding.Mesh
    thinking: bool
    prompt_buckets: tuple[int, ...]
    max_attempt_tokens: int
    rows_per_call: int
    progress: Progress | None = None

    def act(
        self,
        players: Players,
        policy: int | None,
        problems: Sequence[Problem],
        messages: Sequence[list[Message]],
        sampling: Sampling,
        *,
        step: int,
        stage: int,
        rollouts: np.ndarray,
    ) -> Stage:
        """Answer one prompt a row.

        Args:
          players: the population; its members own equal parts of the rows, in order.
          policy: which of each member's policies acts; None is the base without any.
          problems: [B] the row's problem.
          messages: [B] the row's prompt.
          sampling: temperature, nucleus, cap.
          step, stage: with the member's seed, the problem and `rollouts`, all that samples depend on.
          rollouts: [B] number of the rollout within its problem.
        """
        rendered: dict[str, tuple[list[int], str]] = {}
        rows = []
        for message in messages:  # a group shares its prompt: render it once
            content = message[-1]["content"]
            if content not in rendered:
                rendered[content] = self.tokenizer.render(message, think=self.thinking)
            rows.append(rendered[content])
        prompts = self.tokenizer.pad([ids for ids, _ in rows], self._bucket(rows))
        seeds = np.repeat(players.seeds, len(rows) // len(players.seeds))
        keys = row_keys(seeds, step, stage, np.array([p.uid for p in problems]), rollouts)
        sampled = self._sample(players, policy, prompts, keys, sampling)
        texts = self.tokenizer.decode(sampled.tokens, sampled.mask)
        completions = [
            parse(text, bool(finished), prefill)
            for text, finished, (_, prefill) in zip(texts, sampled.finished, rows, strict=True)
        ]
        answers = [c.answer for c in completions]
        judged = _REFEREE.submit(self.task.grade, list(problems), answers, self.progress)
        sees = getattr(self.task, "copied", None)
        copied = None if sees is None else np.array([sees(c) for c in completions], bool)
        return Stage(list(problems), policy, prompts, sampled, texts, completions, judged, copied)

    def shown_attempt(self, problem: Problem, completion: Completion) -> str:
        """The rival's summary as a challenger may see it: answer hidden, cut at the cap."""
        shown = self.task.hide(problem, completion.summary, completion.answer or "")
        kept = self.max_attempt_tokens
        while len(ids := self.tokenizer.encode(shown)) > self.max_attempt_tokens:
            # Again with one token fewer if the cut text encodes to more tokens than were kept.
            cut = np.array([ids[:kept]])
            shown = self.tokenizer.decode(cut, np.ones(cut.shape, bool))[0]
            kept -= 1
        return shown

    def _bucket(self, rows: list[tuple[list[int], str]]) -> int:
        longest = max(len(ids) for ids, _ in rows)
        for width in self.prompt_buckets:
            if longest <= width:
                return width
        raise ValueError(
            f"a prompt of {longest} tokens exceeds the largest of data.prompt_buckets={self.prompt_buckets}"
        )

    def _sample(self, players: Players, policy, prompts: Prompts, keys, sampling: Sampling) -> Rollouts:
        """Rollouts as numpy arrays, sampled in calls of equal row counts.

        In a call the members take turns, row by row: that is how a stack of adapters is applied, and
        it leaves every device of the mesh an equal share of every member.
        """
        total, members = len(prompts.tokens), len(players.seeds)
        own = total // members  # rows of a member
        shards = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        up = lambda rows: -(-rows // shards) * shards
        size = min(max(self.rows_per_call // members // shards, 1) * shards, up(own))
        adapters = players.acting(policy)
        variables = {"params": self.base} | ({} if adapters is None else {"lora": adapters})
        rows_of = sharding.sharding_of(self.mesh)
        place = lambda x: jax.device_put(x, rows_of(("rows",) + (None,) * (x.ndim - 1)))
        parts = []
        for begin in range(0, own, size):
            each = np.minimum(np.arange(begin, begin + size), own - 1)
            index = (each[:, None] + own * np.arange(members)).ravel()
            part = sample(
                self.model,
                variables,
                Prompts(place(prompts.tokens[index]), place(prompts.mask[index])),
                place(keys[index]),
                max_new_tokens=sampling.max_new_tokens,
                stop_ids=self.tokenizer.stop_ids,
                pad_id=self.tokenizer.pad_id,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
            )
            parts.append(jax.device_get(part))

        def by_member(*pieces: np.ndarray) -> np.ndarray:
            turns = np.concatenate(pieces)
            turns = turns.reshape(-1, members, *turns.shape[1:])[:own]
            return turns.swapaxes(0, 1).reshape(total, *turns.shape[2:])

        return jax.tree.map(by_member, *parts)


def concatenate(first: Stage, second: Stage) -> Stage:
    """The rows of both, prompts padded on the left to the wider of the two."""
    width = max(stage.prompts.tokens.shape[1] for stage in (first, second))

    def wide(x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (width - x.shape[1], 0)))

    judged: Future[list[Grade]] = Future()
    judged.set_result(first.grades + second.grades)
    both = lambda a, b: np.concatenate([a, b])
    prompts = [Prompts(wide(s.prompts.tokens), wide(s.prompts.mask)) for s in (first, second)]
    return Stage(
        problems=first.problems + second.problems,
        policy=first.policy,
        prompts=Prompts(both(prompts[0].tokens, prompts[1].tokens), both(prompts[0].mask, prompts[1].mask)),
        rollouts=jax.tree.map(both, first.rollouts, second.rollouts),
        texts=first.texts + second.texts,
        completions=first.completions + second.completions,
        judged=judged,
        copied=None if first.copied is None else both(first.copied, second.copied),
    )
