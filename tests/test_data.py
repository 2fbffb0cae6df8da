"""Sources, splits and the stream of problems."""

import json

import numpy as np
import pytest

from agon_jax.data import batch_at, load_splits
from agon_jax.types import Problem


def rows(count):
    return [Problem(uid=i, text=str(i), reference="") for i in range(count)]


def ids(batch):
    return [problem.uid for problem in batch]


@pytest.mark.parametrize("count, size", [(10, 2), (10, 3), (7, 8), (5, 5)])
def test_every_problem_is_seen_once_an_epoch(count, size):
    # 3 x count steps of `size` are `size` x 3 epochs: dropping the rest of an epoch would lose rows
    seen = np.concatenate([ids(batch_at(rows(count), size, step, 3)) for step in range(3 * count)])
    np.testing.assert_array_equal(np.bincount(seen), np.full(count, 3 * size))
    for epoch in range(3 * size):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_a_resumed_stream_is_the_uninterrupted_one():
    whole = [ids(batch_at(rows(10), 2, step, 3)) for step in range(10)]
    # stops in the middle of an epoch and at its end; starting again from row 0 would repeat batches
    for stop in (2, 5):
        resumed = [ids(batch_at(rows(10), 2, step, 3)) for step in range(stop, 10)]
        assert whole[stop:] == resumed
    assert whole[:5] != whole[5:]  # each epoch has its own order
    assert whole != [ids(batch_at(rows(10), 2, step, 4)) for step in range(10)]


def load(path, sizes=(60, 20, 20), fits=lambda p: True, source="jsonl", seed=0):
    return load_splits(
        source, path=str(path), question_field="q", answer_field="a", sizes=sizes, seed=seed, fits=fits
    )


def write(path, pairs):
    path.write_text("".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in pairs))
    return path


def test_jsonl_splits_are_disjoint_deterministic_and_counted(tmp_path):
    pairs = [(f"What is {i} + 1?", str(i + 1)) for i in range(100)]
    path = write(tmp_path / "p.jsonl", [*pairs, ("what is  7 + 1 ?", "8"), ("", "1"), ("no answer?", " ")])
    splits = load(path)
    lists = [splits.train, splits.validation, splits.heldout]
    assert list(map(len, lists)) == [60, 20, 20]
    assert len({p.uid for part in lists for p in part}) == 100
    assert splits.counts == {"empty": 2, "duplicate": 1, "prompt_too_long": 0}
    assert load(path) == splits and load(path, seed=1) != splits


def test_problems_over_the_cap_are_dropped_and_counted_never_cut(tmp_path):
    path = write(tmp_path / "p.jsonl", [("x" * n, "1") for n in (10, 32, 33, 500)])
    splits = load(path, sizes=(2, 1, 1), fits=lambda p: len(p.text) <= 33)
    kept = [len(p.text) for part in (splits.train, splits.validation, splits.heldout) for p in part]
    assert sorted(kept) == [10, 32, 33] and splits.counts["prompt_too_long"] == 1


def test_an_empty_split_says_which_filter_took_its_problems(tmp_path):
    path = write(tmp_path / "p.jsonl", [("one?", ""), ("two?", "")])
    with pytest.raises(ValueError, match=r"split is empty.*'empty': 2"):
        load(path)


def test_the_operators_world_gives_disjoint_splits():
    splits = load("", source="operators")
    tuples = [
        {p.text.split("=")[0] for p in part} for part in (splits.train, splits.validation, splits.heldout)
    ]
    assert not tuples[0] & tuples[1] and not tuples[0] & tuples[2] and not tuples[1] & tuples[2]


def test_an_unreachable_hub_is_one_clear_error():
    # a folder that is not a data set fails in the same place as a hub that cannot be reached
    with pytest.raises(ValueError, match=r"deepmath_hard.*could not be read"):
        load("./no/such/dataset", source="deepmath_hard")
