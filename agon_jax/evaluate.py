"""Evaluation: one pass and cascades, by the same draft and challenge functions as training.

Every member of a population is evaluated on the same problems at once. Where a method could answer
in several ways (which policy drafts), the validation split picks one; all are reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from agon_jax.actor import Actor, Players, Sampling, Stage
from agon_jax.games.agon import challenge, draft
from agon_jax.methods import Method, Way
from agon_jax.stats import disagreement, flip_matrix, majority_at_k, pass_at_k
from agon_jax.types import Problem

# Keys of evaluation samples: steps that no training run reaches.
HELDOUT_STEP, VALIDATION_STEP = 2**30, 2**30 + 1


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What is evaluated, and how.

    Attributes:
      heldout, validation: problems; the validation split alone makes choices.
      sampling: temperature, nucleus and cap of every stage.
      samples: n of pass@k and majority@k, for the method's result; 1 leaves them out.
      sampled_problems: the first so many held-out problems are answered n times.
    """

    heldout: Sequence[Problem]
    validation: Sequence[Problem]
    sampling: Sampling
    samples: int = 1
    sampled_problems: int = 128


@dataclasses.dataclass(frozen=True)
class Answers:
    """One way to answer a list of problems, for all members: its stages, the last one final."""

    way: Way
    stages: tuple[Stage, ...]

    def split(self, members: int) -> list[Answers]:
        """One for each member."""
        return [
            Answers(self.way, parts)
            for parts in zip(*(stage.split(members) for stage in self.stages), strict=True)
        ]

    @property
    def correct(self) -> np.ndarray:
        """[B] bool, of the final stage."""
        return self.stages[-1].outcome.correct.astype(bool)


def answer(
    actor: Actor,
    players: Players,
    ways: dict[str, Way],
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    samples: int = 1,
    step: int = HELDOUT_STEP,
) -> dict[str, Answers]:
    """Answers in every way, `samples` a problem; ways that begin alike share their first stage."""
    everyone = [problem for _ in players.seeds for problem in problems]
    first: dict[int | None, Stage] = {}
    answers = {}
    for name, way in ways.items():
        if way[0] not in first:
            first[way[0]] = draft(actor, players, way[0], everyone, samples, sampling, step=step)
        stages = [first[way[0]]]
        for policy in way[1:]:
            stages.append(challenge(actor, players, policy, stages[-1], samples, sampling, step=step))
        answers[name] = Answers(way, tuple(stages))
    return answers


def choose(
    actor: Actor, players: Players, method: Method, evaluation: Evaluation
) -> tuple[list[str], list[dict[str, float]]]:
    """For each member: which way is the method's result, and the validation pass rates of those that
    competed (none without a choice). The held-out split is not looked at."""
    names = list(method.results)
    if len(names) == 1:
        return names * len(players.seeds), [{} for _ in players.seeds]
    rates = validate(actor, players, method, evaluation)
    return [max(names, key=own.__getitem__) for own in rates], rates


def validate(
    actor: Actor, players: Players, method: Method, evaluation: Evaluation
) -> list[dict[str, float]]:
    """For each member: the pass rate of every way that may be the method's result, on validation."""
    members = len(players.seeds)
    answers = answer(
        actor, players, method.results, evaluation.validation, evaluation.sampling, step=VALIDATION_STEP
    )
    rates = {name: [float(a.correct.mean()) for a in ans.split(members)] for name, ans in answers.items()}
    return [{name: own[member] for name, own in rates.items()} for member in range(members)]


def evaluate(
    actor: Actor, players: Players, method: Method, evaluation: Evaluation
) -> tuple[list[dict[str, Any]], list[Answers]]:
    """For each member: its record for eval.json, and the answers that are the method's result."""
    members = len(players.seeds)
    chosen, rates = choose(actor, players, method, evaluation)
    answers = answer(actor, players, method.ways, evaluation.heldout, evaluation.sampling)
    split = {name: everyone.split(members) for name, everyone in answers.items()}
    samples = _samples(actor, players, method, evaluation, set(chosen))
    records = []
    for member, seed in enumerate(players.seeds):
        own = {name: parts[member] for name, parts in split.items()}
        rows = []
        for name, ans in own.items():
            row = {"name": name, "headline": name == chosen[member]} | _row(ans)
            if name in rates[member]:
                row["validation"] = rates[member][name]
            if samples and row["headline"]:
                row["samples"] = samples[name][member]
            rows.append(row)
        record: dict[str, Any] = {"seed": seed, "rows": rows}
        if {"A alone", "B alone"} <= own.keys():
            record["pair"] = disagreement(own["A alone"].correct, own["B alone"].correct)
        records.append(record)
    return records, [split[chosen[member]][member] for member in range(members)]


def _row(answers: Answers) -> dict[str, Any]:
    final = answers.stages[-1]
    row = {
        "outcomes": "".join("01"[int(c)] for c in answers.correct),
        "mean_length": float(final.outcome.length.mean()),
        "stages": [
            {
                "role": role,
                "policy": None if stage.policy is None else "ab"[stage.policy],
                "generated_tokens": stage.generated_tokens,
                "prefilled_tokens": stage.prefilled_tokens,
                "truncated": float(1 - stage.rollouts.finished.mean()),
                "well_formed": float(stage.outcome.well_formed.mean()),
                "correct": int(stage.outcome.correct.sum()),
            }
            for role, stage in zip(("draft", "challenge"), answers.stages, strict=False)
        ],
    }
    if len(answers.stages) == 2:
        row["flips"] = flip_matrix(answers.stages[0].outcome.correct.astype(bool), answers.correct)
    return row


def _samples(
    actor: Actor, players: Players, method: Method, evaluation: Evaluation, chosen: set[str]
) -> dict[str, list[dict]]:
    """pass@k and majority@k of the ways that a member chose, for k = 1, 2, 4, … up to n."""
    n = evaluation.samples
    if n < 2:
        return {}
    problems = evaluation.heldout[: evaluation.sampled_problems]
    ways = {name: way for name, way in method.results.items() if name in chosen}
    answers = answer(actor, players, ways, problems, evaluation.sampling, samples=n)
    ks = [k for k in (2**i for i in range(n.bit_length())) if k <= n]

    def figures(ans: Answers) -> dict:
        correct = ans.correct.reshape(-1, n)
        texts = [c.answer and " ".join(c.answer.split()) for c in ans.stages[-1].completions]
        votes = [texts[i : i + n] for i in range(0, len(texts), n)]
        return {
            "n": n,
            "problems": len(problems),
            "pass_at": {str(k): pass_at_k(correct, k) for k in ks},
            "majority_at": {str(k): majority_at_k(votes, correct, k) for k in ks},
        }

    return {name: [figures(a) for a in ans.split(len(players.seeds))] for name, ans in answers.items()}
