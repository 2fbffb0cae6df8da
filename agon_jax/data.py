"""Problems: sources, splits that do not move, and a stream that is a function of the step."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator

import numpy as np

from agon_jax.tasks import operators
from agon_jax.types import Problem


@dataclasses.dataclass(frozen=True)
class Splits:
    """Disjoint problems. `counts` says how many each filter removed."""

    train: list[Problem]
    validation: list[Problem]
    heldout: list[Problem]
    counts: dict[str, int]


def load_splits(
    source: str,
    *,
    path: str,
    question_field: str,
    answer_field: str,
    sizes: tuple[int, int, int],
    seed: int,
    fits: Callable[[Problem], bool],
) -> Splits:
    """Problems of a source.

    Args:
      source: "operators", "jsonl" (needs `path`) or "deepmath_hard" (hub, or a local `path`).
      path: local file or folder; "" for the hub.
      question_field, answer_field: of a JSONL row.
      sizes: (train, validation, heldout) at most.
      seed: of the choice within each split.
      fits: False for a problem whose prompt is over the cap: it is dropped and counted, not cut.

    Raises:
      ValueError: the source cannot be read, or a split would be empty.
    """
    names = ("train", "validation", "heldout")
    if source == "operators":
        world = operators.World()
        lists = [
            [p for p in operators.generate(world, name, count, seed) if fits(p)]
            for name, count in zip(names, sizes, strict=True)
        ]
        counts = {"prompt_too_long": sum(sizes) - sum(map(len, lists))}
    else:
        rows = _jsonl(path, question_field, answer_field) if source == "jsonl" else _deepmath_hard(path)
        problems, counts = _clean(rows, fits)
        lists = _split(problems, sizes, seed)
    for name, problems in zip(names, lists, strict=True):
        if not problems:
            raise ValueError(f"data.source={source!r}: the {name} split is empty (filters: {counts})")
    return Splits(*lists, counts)


def batch_at(problems: list[Problem], size: int, step: int, seed: int) -> list[Problem]:
    """The problems of a step: shuffled per epoch, each seen once an epoch, the last batch of one
    epoch running into the next. A function of (seed, step), so a resumed run needs no state."""
    return [
        problems[_order(len(problems), seed, position // len(problems))[position % len(problems)]]
        for position in range(step * size, (step + 1) * size)
    ]


@functools.lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _clean(
    rows: Iterator[tuple[str, str]], fits: Callable[[Problem], bool]
) -> tuple[list[Problem], dict[str, int]]:
    """Problems with a question and a reference that fit the cap, each question once."""
    problems: dict[int, Problem] = {}
    counts = {"empty": 0, "duplicate": 0, "prompt_too_long": 0}
    for question, reference in rows:
        if not question.strip() or not reference.strip():
            counts["empty"] += 1
            continue
        normal = re.sub(r"\W+", " ", question).strip().lower()
        uid = int.from_bytes(hashlib.blake2b(normal.encode(), digest_size=4).digest(), "big") >> 1
        problem = Problem(uid, question.strip(), reference.strip())
        if uid in problems:
            counts["duplicate"] += 1
        elif not fits(problem):
            counts["prompt_too_long"] += 1
        else:
            problems[uid] = problem
    return list(problems.values()), counts


def _split(problems: list[Problem], sizes: tuple[int, int, int], seed: int) -> list[list[Problem]]:
    """By rank of a seeded content hash: held-out first, then validation, then train."""
    rank = lambda p: hashlib.blake2b(f"{seed}/{p.uid}".encode(), digest_size=8).digest()
    ordered = sorted(problems, key=rank)
    train, validation, heldout = sizes
    cut = heldout + validation
    return [ordered[cut : cut + train], ordered[heldout:cut], ordered[:heldout]]


def _jsonl(path: str, question_field: str, answer_field: str) -> Iterator[tuple[str, str]]:
    file = pathlib.Path(path)
    if not path or not file.is_file():
        raise ValueError(f"data.path={path!r}: no such file (data.source='jsonl' needs one)")
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not JSON ({error})") from None
        for field in (question_field, answer_field):
            if field not in row:
                raise ValueError(f"{path}:{number}: no field {field!r}; it has {', '.join(row)}")
        yield str(row[question_field]), str(row[answer_field])


def _deepmath_hard(path: str) -> Iterator[tuple[str, str]]:
    """DeepMath-103K, difficulty >= 8, without answers that have only two possible values."""
    import datasets

    name = path or "zwhe99/DeepMath-103K"
    try:
        rows = datasets.load_dataset(name, split="train")
    except Exception as error:  # the hub client raises a dozen unrelated types
        raise ValueError(
            f"data.source='deepmath_hard': {name!r} could not be read ({type(error).__name__}); check the "
            "connection, or give a local copy by data.path"
        ) from error
    for row in rows:
        answer = str(row["final_answer"])
        if row["difficulty"] >= 8 and answer.strip().lower() not in ("yes", "no", "true", "false"):
            yield row["question"], answer
