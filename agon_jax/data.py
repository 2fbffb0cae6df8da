"""Problems of a run: cleaned, split so that nothing moves, kept apart, and streamed by epochs."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

import grain

from agon_jax.sources import SOURCES, Row, rows_of
from agon_jax.tasks import copy_world, generated, operators
from agon_jax.types import Problem

# Sources that make their problems, each the world of the task of the same name.
GENERATED: dict[str, Callable[[], generated.World]] = {
    "operators": operators.World,
    "copy_world": copy_world.World,
}
NAMES = ("train", "validation", "heldout")
NGRAM = 20  # tokens (words, numbers, symbols) in a row that two different problems do not share
_KEPT_EXAMPLES = 50  # rows of each kind of fault that are stored with their place


@dataclasses.dataclass(frozen=True)
class Splits:
    """Disjoint problems.

    Attributes:
      counts: how many rows each filter removed.
      left_out: {"where", "why"} of rows that could not be used, at most 50 of each kind.
    """

    train: list[Problem]
    validation: list[Problem]
    heldout: list[Problem]
    counts: dict[str, int]
    left_out: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def summary(self) -> dict:
        """For data.json of a run."""
        sizes = {name: len(getattr(self, name)) for name in NAMES}
        return {"sizes": sizes, "removed": self.counts, "left_out": self.left_out}


def load_splits(
    source: str,
    *,
    path: str,
    question_field: str,
    answer_field: str,
    task: str,
    sizes: tuple[int, int, int],
    shares: tuple[float, float, float],
    transfer: tuple[str, ...],
    seed: int,
    fits: Callable[[Problem], bool],
    fault: Callable[[str], str | None],
) -> Splits:
    """Problems of a source.

    A problem's split depends on a hash of (seed, its normalised text) alone: adding rows moves no
    other row from one split to another.

    Args:
      source, path, question_field, answer_field, task: see `sources.rows_of`, or a source of GENERATED.
      sizes: (train, validation, heldout) at most.
      shares: of the hash range, in the same order.
      transfer: sources (`name` or `name=path`) that are evaluated on elsewhere: what overlaps with
        them is not trained on.
      seed: of the split and of the choice within it.
      fits: False for a problem whose prompt is over the cap: it is dropped and counted, not cut.
      fault: why a reference can never be graded, or None.

    Raises:
      ValueError: the source cannot be read, or a split would be empty.
    """
    if source in GENERATED:
        if task != source:
            raise ValueError(f"data.source={source!r} needs --config.task={source}, not {task!r}")
        splits = _generated(GENERATED[source](), sizes, seed, fits)
    else:
        fields = dict(question_field=question_field, answer_field=answer_field, task=task)
        problems, counts, left_out = _clean(rows_of(source, path, **fields), fits, fault)
        lists = _assign(problems, sizes, shares, seed)
        if source != "reasoning_gym":  # its texts are made from templates: all of them overlap
            others = [row.question for name in transfer for row in _transfer_rows(name, fields)]
            lists, counts["overlap"] = _keep_apart(lists, others)
        splits = Splits(*lists, counts, left_out)
    for name in NAMES:
        if not getattr(splits, name):
            raise ValueError(f"data.source={source!r}: the {name} split is empty (removed: {splits.counts})")
    return splits


def stream(
    problems: list[Problem], size: int, seed: int, *, host: int = 0, hosts: int = 1
) -> grain.DatasetIterator:
    """Batches of `size` problems without end: shuffled anew every epoch, each problem once an epoch,
    the last batch of one epoch running into the next. `get_state` and `set_state` resume it.

    Of `hosts` processes each takes its own rows of every batch; together they see the batch that one
    process would.
    """
    dataset = grain.MapDataset.source(problems).seed(seed).shuffle().repeat()
    dataset = dataset.batch(size, batch_fn=lambda batch: list(batch)[host::hosts])
    return iter(dataset.to_iter_dataset())


def normalised(text: str) -> list[str]:
    """Tokens of a text without what does not change a problem: case, spacing, LaTeX spelling."""
    text = unicodedata.normalize("NFKC", text).lower()
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text)
    return re.findall(r"\\[a-z]+|[a-z]+|\d+(?:\.\d+)?|[^\s\w]", text)


_SPELLINGS = (
    (r"\\[dtc]frac\b", r"\\frac"),
    (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|limits|qquad|quad|middle)(?![a-z])", " "),
    (r"\\[,;:! ]|~|\$|\\[()\[\]]", " "),
    (r"\\(?:text|textbf|textit|mathrm|mathbf|operatorname)\*?\s*(?=\{)", " "),
    (r"\\leq\b", r"\\le"), (r"\\geq\b", r"\\ge"), (r"\\neq\b", r"\\ne"), (r"\\to\b", r"\\rightarrow"),
    (r"[{}]", " "),
    (r"(?<=\d),(?=\d{3}\b)", ""),
)  # fmt: skip


def _generated(
    world: generated.World, sizes: tuple[int, int, int], seed: int, fits: Callable[[Problem], bool]
) -> Splits:
    lists = [
        [p for p in generated.generate(world, name, count, seed) if fits(p)]
        for name, count in zip(NAMES, sizes, strict=True)
    ]
    return Splits(*lists, {"prompt_too_long": sum(sizes) - sum(map(len, lists))})


def _clean(
    rows: Iterable[Row], fits: Callable[[Problem], bool], fault: Callable[[str], str | None]
) -> tuple[list[Problem], dict[str, int], list[dict[str, str]]]:
    """Problems that can be asked and graded, each once; the first of two equal ones stays."""
    problems: dict[bytes, Problem] = {}
    counts: dict[str, int] = {}
    left_out: list[dict[str, str]] = []

    def drop(why: str, row: Row | None = None) -> None:
        counts[why] = counts.get(why, 0) + 1
        if row is not None and counts[why] <= _KEPT_EXAMPLES:
            left_out.append({"where": row.where, "why": why, "reference": row.reference[:200]})

    for row in rows:
        if row.filtered or row.fault:
            drop(row.filtered or row.fault, row if row.fault else None)
            continue
        key = hashlib.blake2b(" ".join(normalised(row.question)).encode(), digest_size=16).digest()
        uid = int.from_bytes(key[:4], "big") >> 1
        problem = Problem(uid, row.question.strip(), row.reference.strip())
        if key in problems:
            drop("duplicate")
        elif why := fault(problem.reference):
            drop(why, row)
        elif not fits(problem):
            drop("prompt too long", row)
        else:
            problems[key] = problem
    return list(problems.values()), counts, left_out


def _assign(
    problems: list[Problem], sizes: tuple[int, int, int], shares: tuple[float, float, float], seed: int
) -> list[list[Problem]]:
    """Each problem to the split that its hash falls in; of a split the lowest hashes stay."""
    ranked: list[list[tuple[float, Problem]]] = [[], [], []]
    for problem in problems:
        digest = hashlib.blake2b(f"{seed}/{problem.uid}/{problem.text}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64
        split = 2 if place < shares[2] else 1 if place < shares[2] + shares[1] else 0
        ranked[split].append((place, problem))
    first = lambda pair: pair[0]
    return [
        [p for _, p in sorted(group, key=first)[:size]] for group, size in zip(ranked, sizes, strict=True)
    ]


def _keep_apart(lists: list[list[Problem]], others: list[str]) -> tuple[list[list[Problem]], int]:
    """Train without what overlaps validation, held-out or `others`; validation without held-out's."""
    train, validation, heldout = lists
    seen = _Overlap(p.text for p in heldout)
    kept_validation = [p for p in validation if not seen.with_any(p.text)]
    seen.add(p.text for p in kept_validation)
    seen.add(others)
    kept_train = [p for p in train if not seen.with_any(p.text)]
    removed = len(train) + len(validation) - len(kept_train) - len(kept_validation)
    return [kept_train, kept_validation, heldout], removed


class _Overlap:
    """Which texts share NGRAM tokens in a row, or all of a shorter text."""

    def __init__(self, texts: Iterable[str]):
        self._grams: set[int] = set()
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._grams.update(_grams(text))

    def with_any(self, text: str) -> bool:
        return not self._grams.isdisjoint(_grams(text))


def _grams(text: str) -> Iterator[int]:
    tokens = normalised(text)
    for start in range(max(len(tokens) - NGRAM, 0) + 1):
        yield hash(tuple(tokens[start : start + NGRAM]))


def _transfer_rows(name: str, fields: dict) -> Iterator[Row]:
    source, _, path = name.partition("=")
    if source in SOURCES:  # its questions alone are compared, whatever this run's task is
        fields = fields | {"task": SOURCES[source].task}
    try:
        yield from (row for row in rows_of(source, path, **fields) if not row.fault)
    except ValueError as error:
        raise ValueError(
            f"data.transfer: {error} (a local copy: name=path; to train without the check: "
            '--config.data.transfer="()")'
        ) from None
