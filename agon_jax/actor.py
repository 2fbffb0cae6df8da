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
class Stage:
    """B answered prompts, all on the host; row i belongs to problems[i]."""

    problems: list[Problem]
    policy: int | None  # which adapter acted; None is the base
    prompts: Prompts
    rollouts: Rollouts
    texts: list[str]
    completions: list[Completion]
    judged: Future[list[Grade]]  # [B]; the referee works while the device goes on

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
        )

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
        adapters: PyTree | None,
        policy: int | None,
        problems: Sequence[Problem],
        messages: Sequence[list[Message]],
        sampling: Sampling,
        *,
        seed: int,
        step: int,
        stage: int,
        rollouts: np.ndarray,
    ) -> Stage:
        """Answer one prompt a row.

        Args:
          adapters: stacked adapters [P, ...]; None with policy None.
          policy: the acting adapter; None is the base without any.
          problems: [B] the row's problem.
          messages: [B] the row's prompt.
          sampling: temperature, nucleus, cap.
          seed, step, stage: with the problem and `rollouts`, all that the samples depend on.
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
        keys = row_keys(seed, step, stage, np.array([p.uid for p in problems]), rollouts)
        sampled = self._sample(adapters, policy, prompts, keys, sampling)
        texts = self.tokenizer.decode(sampled.tokens, sampled.mask)
        completions = [
            parse(text, bool(finished), prefill)
            for text, finished, (_, prefill) in zip(texts, sampled.finished, rows, strict=True)
        ]
        answers = [c.answer for c in completions]
        judged = _REFEREE.submit(self.task.grade, list(problems), answers, self.progress)
        return Stage(list(problems), policy, prompts, sampled, texts, completions, judged)

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

    def _sample(self, adapters, policy, prompts: Prompts, keys, sampling: Sampling) -> Rollouts:
        """Rollouts as numpy arrays, sampled in calls of equal row counts."""
        total = len(prompts.tokens)
        shards = self.mesh.shape["data"] * self.mesh.shape["fsdp"]
        size = min(self.rows_per_call, -(-total // shards) * shards)
        variables = {"params": self.base} | ({} if policy is None else {"lora": adapters})
        rows_of = sharding.sharding_of(self.mesh)
        parts = []
        for begin in range(0, total, size):
            index = np.minimum(np.arange(begin, begin + size), total - 1)
            place = lambda x: jax.device_put(x, rows_of(("rows",) + (None,) * (x.ndim - 1)))
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
                adapter=None if policy is None else place(np.full(size, policy, np.int32)),
            )
            parts.append(jax.device_get(part))
        return jax.tree.map(lambda *xs: np.concatenate(xs)[:total], *parts)
