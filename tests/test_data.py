"""Sources in their own schemas, splits that do not move, and the stream of problems."""

import itertools
import json

import numpy as np
import pytest

from agon_jax.data import NAMES, load_splits, normalised, stream
from agon_jax.sources import rows_of
from agon_jax.types import Problem


def problems(count):
    return [Problem(uid=i, text=str(i), reference="") for i in range(count)]


def ids(batch):
    return [problem.uid for problem in batch]


def take(count, size, steps, seed=3):
    return [ids(batch) for batch in itertools.islice(stream(problems(count), size, seed), steps)]


@pytest.mark.parametrize("count, size", [(10, 2), (10, 3), (7, 8), (5, 5)])
def test_every_problem_is_seen_once_an_epoch(count, size):
    # 3 x count steps of `size` are `size` x 3 epochs: dropping the rest of an epoch would lose rows
    seen = np.concatenate(take(count, size, 3 * count))
    np.testing.assert_array_equal(np.bincount(seen), np.full(count, 3 * size))
    for epoch in range(3 * size):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_a_resumed_stream_is_the_uninterrupted_one():
    whole = take(10, 2, 10)
    # stops in the middle of an epoch and at its end; starting again from row 0 would repeat batches
    for stop in (2, 5):
        batches = stream(problems(10), 2, 3)
        for _ in range(stop):
            next(batches)
        position = json.loads(json.dumps(batches.get_state()))  # as a checkpoint keeps it
        resumed = stream(problems(10), 2, 3)
        resumed.set_state(position)
        assert whole[stop:] == [ids(next(resumed)) for _ in range(stop, 10)]
    assert whole[:5] != whole[5:]  # each epoch has its own order
    assert whole != take(10, 2, 10, seed=4)


@pytest.mark.parametrize("hosts", [2, 3])
def test_hosts_share_a_batch(hosts):
    """No problem twice, none left out, and the batch does not depend on the number of hosts."""
    whole = take(10, 6, 5)
    parts = [
        [ids(b) for b in itertools.islice(stream(problems(10), 6, 3, host=h, hosts=hosts), 5)]
        for h in range(hosts)
    ]
    for step, batch in enumerate(whole):
        assert sorted(i for part in parts for i in part[step]) == sorted(batch)
        assert all(len(part[step]) == 6 // hosts for part in parts)


def load(path, sizes=(60, 20, 20), source="jsonl", seed=0, **options):
    defaults = dict(
        question_field="q", answer_field="a", task="math", shares=(0.6, 0.2, 0.2), transfer=(),
        fits=lambda p: True, fault=lambda reference: None,
    )  # fmt: skip
    return load_splits(source, path=str(path), sizes=sizes, seed=seed, **defaults | options)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs(count):
    return [{"q": f"What is {i} plus one?", "a": str(i + 1)} for i in range(count)]


def lists_of(splits):
    return [getattr(splits, name) for name in NAMES]


def everything(splits):
    return [p for part in lists_of(splits) for p in part]


def test_splits_are_disjoint_deterministic_and_counted(tmp_path):
    extra = [{"q": "what is  7 plus one ?", "a": "8"}, {"q": "", "a": "1"}, {"q": "no answer?", "a": " "}]
    path = write(tmp_path / "p.jsonl", [*pairs(100), *extra])
    splits = load(path, sizes=(100, 100, 100))
    assert sorted(map(len, lists_of(splits))) != [0, 0, 100]
    assert len({p.text for p in everything(splits)}) == 100
    assert splits.counts == {"duplicate": 1, "empty question": 1, "empty answer": 1, "overlap": 0}
    assert [row["where"] for row in splits.left_out] == ["p.jsonl:102", "p.jsonl:103"]
    assert load(path, sizes=(100, 100, 100)) == splits and load(path, seed=1) != splits


def test_adding_rows_moves_nothing(tmp_path):
    """Ranks, or fractions of the file, would move about a fifth of the rows to another split."""
    where = []
    for count in (100, 137):
        splits = load(write(tmp_path / "p.jsonl", pairs(count)), sizes=(999, 999, 999))
        where.append({p.text: name for name in NAMES for p in getattr(splits, name)})
    before, after = where
    assert len(before) == 100 and len(after) == 137
    assert all(after[text] == name for text, name in before.items())


def test_sizes_are_at_most(tmp_path):
    path = write(tmp_path / "p.jsonl", pairs(200))
    assert list(map(len, lists_of(load(path, sizes=(30, 5, 7))))) == [30, 5, 7]


def test_problems_over_the_cap_are_dropped_and_counted_never_cut(tmp_path):
    rows = [{"q": "x" * n + f" {i}", "a": "1"} for n in (10, 30, 500) for i in range(30)]
    splits = load(write(tmp_path / "p.jsonl", rows), fits=lambda p: len(p.text) <= 33)
    assert {len(p.text.split()[0]) for p in everything(splits)} == {10, 30}
    assert splits.counts["prompt too long"] == 30


def test_a_reference_that_cannot_be_graded_is_reported_and_left_out(tmp_path):
    rows = [*pairs(50), {"q": "And then?", "a": "7. The second tank is full"}]
    fault = lambda reference: "not an answer" if "tank" in reference else None
    splits = load(write(tmp_path / "p.jsonl", rows), fault=fault)
    assert splits.counts["not an answer"] == 1
    assert splits.left_out == [
        {"where": "p.jsonl:51", "why": "not an answer", "reference": "7. The second tank is full"}
    ]


def test_an_empty_split_says_which_filter_took_its_problems(tmp_path):
    path = write(tmp_path / "p.jsonl", [{"q": "one?", "a": ""}, {"q": "two?", "a": ""}])
    with pytest.raises(ValueError, match=r"split is empty.*'empty answer': 2"):
        load(path)


@pytest.mark.parametrize(
    "one, other, same",
    [
        (r"Find $\dfrac{1}{2}+x$.", r"find \( \frac{1}{2} + x \) .", True),
        (r"Let $x \leq 3$ and $\left(y\right)$", r"Let $x \le 3$ and $(y)$", True),
        (r"1,000 apples", "1000 apples", True),
        (r"\text{Solve } x", "Solve x", True),
        ("What is x + 1?", "What is x - 1?", False),  # symbols make the problem
        ("What is 12?", "What is 1 2?", False),
        ("f(x)=2", "f(x)=3", False),
    ],
)
def test_normalised_text(one, other, same):
    assert (normalised(one) == normalised(other)) is same


LONG = "a train leaves the old station at noon and travels north along the river for {} hours before it meets"


def test_overlapping_problems_are_kept_apart(tmp_path):
    """A held-out problem that comes with another ending in train would be trained on. Twenty tokens in
    a row count; the held-out copy stays."""
    rows = [{"q": LONG.format(i) + f" train {i}", "a": "1"} for i in range(60)]
    texts = {p.text for p in everything(load(write(tmp_path / "p.jsonl", rows)))}
    alone = load(
        write(tmp_path / "q.jsonl", [*rows, *[{"q": f"Different {i}", "a": "1"} for i in range(60)]])
    )
    assert len(texts) == 60  # they differ within every twenty tokens
    endings = [{"q": LONG.format(5) + f" the bridge number {i} of the city", "a": "1"} for i in range(40)]
    mixed = load(write(tmp_path / "r.jsonl", [*endings, *pairs(60)]), sizes=(99, 99, 99))
    about_trains = [[p for p in part if "train" in p.text] for part in lists_of(mixed)]
    assert about_trains[2] and not about_trains[0] and not about_trains[1]
    assert mixed.counts["overlap"] == 40 - len(about_trains[2])
    assert alone.counts["overlap"] == 0


def test_transfer_sets_are_not_trained_on(tmp_path):
    transfer = write(
        tmp_path / "t.jsonl", [{"problem": f"What is {i} plus one?", "answer": "1"} for i in range(30)]
    )
    path = write(tmp_path / "p.jsonl", pairs(100))
    splits = load(path, sizes=(99, 99, 99), transfer=(f"math500={transfer}",))
    numbers = {int(p.text.split()[2]) for p in splits.train}
    assert numbers and min(numbers) >= 30 and splits.counts["overlap"] > 0
    # a run of another task can be kept apart from them too
    other = load(path, sizes=(99, 99, 99), transfer=(f"math500={transfer}",), task="code")
    assert other.train == splits.train


def test_a_transfer_set_that_cannot_be_read(tmp_path):
    """Training on without the check would be silent contamination."""
    path = write(tmp_path / "p.jsonl", pairs(100))
    with pytest.raises(ValueError, match=r"data\.transfer: .*gone.*--config\.data\.transfer=\"\(\)\""):
        load(path, transfer=("math500=./gone",))


# ---------------------------------------------------------------- schemas


def read(tmp_path, source, rows, **options):
    path = write(tmp_path / "rows.jsonl", rows)
    try:
        splits = load(path, source=source, sizes=(99, 99, 99), **options)
    except ValueError as error:  # a handful of rows need not fill three splits
        if "split is empty" not in str(error):
            raise
        from agon_jax.sources import rows_of

        fields = dict(question_field="q", answer_field="a", task=options.get("task", "math"))
        return list(rows_of(source, str(path), **fields))
    return everything(splits)


def test_deepmath_hard(tmp_path):
    """Difficulty 8 and up; an answer that a coin would guess is left out however it is written."""
    row = lambda answer, difficulty=8.5: {
        "question": f"q {answer} {difficulty}", "final_answer": answer, "difficulty": difficulty, "topic": "t"
    }  # fmt: skip
    answers = ["7", "Yes", "\\text{No}", "TRUE.", "$\\text{false}$", "0", "Yesterday"]
    rows = read(tmp_path, "deepmath_hard", [*map(row, answers), row("3", 7.5), row("4", None)])
    kept = [r.reference for r in rows if not r.filtered]
    assert kept == ["7", "0", "Yesterday"]
    assert [r.filtered for r in rows if r.filtered].count("two-choice answer") == 4


def test_gsm8k(tmp_path):
    """Gold after the last ####; the worked solution is not the gold."""
    rows = read(tmp_path, "gsm8k", [
        {"question": "How many?", "answer": "2+3=<<2+3=5>>5 eggs\n#### 5"},
        {"question": "How much?", "answer": "a lot\n#### 1,200"},
        {"question": "None?", "answer": "no mark here"},
    ])  # fmt: skip
    assert [r.reference for r in rows] == ["5", "1,200", ""]
    assert rows[2].fault == "no #### in the answer"


@pytest.mark.parametrize("source", ["math500", "aime24", "aime25", "amc23"])
def test_problem_and_answer(tmp_path, source):
    """Without an answer column the gold is what the solution boxes: `2`, not its whole text."""
    rows = read(tmp_path, source, [
        {"problem": "1+1?", "answer": "2", "solution": "..."},
        {"problem": "1+1 ?", "solution": "Adding gives $1+1=2$. So \\boxed{2}."},
        {"problem": "half?", "solution": "\\boxed{3}? No: \\boxed{\\frac{1}{2}}"},
        {"problem": "nothing", "solution": "no box"},
        {"problem": "float", "answer": 27.0},
    ])  # fmt: skip
    assert [r.reference for r in rows][:4] == ["2", "2", "\\frac{1}{2}", ""]
    assert rows[3].fault == "a solution without a boxed answer"
    assert rows[4].reference == ("27" if source == "amc23" else "27.0")


def test_codecontests_in_both_schemas(tmp_path):
    """The original keeps three groups of tests; all of them count. Hard problems are left out."""
    tests = {"input": ["1\n"], "output": ["2\n"]}
    rows = read(tmp_path, "codecontests_easy", [
        {"description": "Add one.", "difficulty": 7, "public_tests": tests,
         "private_tests": {"input": [], "output": []}, "generated_tests": {"input": ["5"], "output": ["6"]}},
        {"description": "Merged.", "difficulty": 1, "tests": {"input": ["3", "4"], "output": ["4", "5"]}},
        {"description": "Hard.", "difficulty": 12, "tests": tests},
        {"description": "Untested.", "difficulty": 8, "public_tests": {"input": [], "output": []}},
    ], task="code")  # fmt: skip
    assert json.loads(rows[0].reference) == [{"input": "1\n", "output": "2\n"}, {"input": "5", "output": "6"}]
    assert len(json.loads(rows[1].reference)) == 2
    assert rows[2].filtered == "not of the easy subset" and rows[3].fault == "no tests"


def test_reasoning_gym_and_its_own_scorers():
    from agon_jax.tasks import make_task

    splits = load("leg_counting:30", source="reasoning_gym", task="reasoning_gym", sizes=(99, 99, 99))
    task = make_task("reasoning_gym")
    some = everything(splits)[:5]
    golds = [json.loads(p.reference)["entry"]["answer"] for p in some]
    assert [g.correct for g in task.grade(some, golds)] == [True] * 5
    wrong = task.grade(some, ["-1", "", None, "many", golds[4] + "1"])
    assert [g.correct for g in wrong] == [False] * 5
    with pytest.raises(ValueError, match="no dataset 'leg_countin'"):
        load("leg_countin", source="reasoning_gym", task="reasoning_gym")


@pytest.mark.parametrize("path, sizes", [
    ("leg_counting", {"leg_counting": 1000}),
    ("leg_counting,chain_sum:30", {"leg_counting": 30, "chain_sum": 30}),
    ("leg_counting:20, chain_sum:30", {"leg_counting": 20, "chain_sum": 30}),
    ("leg_counting:20?max_animals=3&min_animals=3,chain_sum", {"leg_counting": 20, "chain_sum": 1000}),
])  # fmt: skip
def test_datasets_of_reasoning_gym_and_their_sizes(path, sizes):
    """A dataset without a size has that of the next with one."""
    fields = dict(question_field="", answer_field="", task="reasoning_gym")
    rows = list(rows_of("reasoning_gym", path, **fields))
    found = [row.where.partition(":")[0] for row in rows]
    assert {name: found.count(name) for name in found} == sizes


def test_parameters_of_reasoning_gym():
    """Three animals are two commas; without the parameters there are up to ten."""
    fields = dict(question_field="", answer_field="", task="reasoning_gym")
    rows = lambda path: rows_of("reasoning_gym", path, **fields)
    commas = lambda path: {row.question.partition("you have ")[2].count(",") for row in rows(path)}
    assert commas("leg_counting:30?min_animals=3&max_animals=3") == {2} < commas("leg_counting:30")


@pytest.mark.parametrize("path, why", [
    ("leg_counting?animals=3", "leg_counting has no parameter 'animals'; it has max_animals, max_inst"),
    ("leg_counting?seed=3", "no parameter 'seed'"),
    ("leg_counting?max_animals=0", r"leg_counting does not take these values \("),
    ("leg_counting?max_animals=many", r"does not take these values \("),
    ("leg_counting?max_animals", r"'leg_counting\?max_animals' is no dataset of reasoning_gym; name them as"),
    ("leg_counting:x", "'leg_counting:x' is no dataset"),
    ("", "'' is no dataset"),
])  # fmt: skip
def test_wrong_paths_of_reasoning_gym_say_what_is_wrong(path, why):
    with pytest.raises(ValueError, match=why):
        load(path, source="reasoning_gym", task="reasoning_gym")


def test_a_source_of_another_schema_names_the_missing_column(tmp_path):
    path = write(tmp_path / "p.jsonl", [{"prompt": "1+1?", "target": "2"}])
    with pytest.raises(ValueError, match=r"p\.jsonl:1: no field 'q'; it has prompt, target"):
        load(path)
    with pytest.raises(ValueError, match=r"no field 'question'; it has prompt, target"):
        load(path, source="gsm8k")
    write(path, [*pairs(40), {"q": "late?"}])  # one bad row of many is reported, not fatal
    assert load(path).counts["no field 'a'"] == 1


def test_sources_that_do_not_suit_the_task(tmp_path):
    with pytest.raises(ValueError, match=r"'codecontests_easy' needs --config\.task=code, not 'math'"):
        load("", source="codecontests_easy")
    with pytest.raises(ValueError, match=r"'operators' needs --config\.task=operators, not 'math'"):
        load("", source="operators")


def test_broken_lines_are_errors_with_their_place(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"q": "1?", "a": "1"}\n{"q": ')
    with pytest.raises(ValueError, match=r"p\.jsonl:2: not JSON"):
        load(path)


def test_the_operators_world_gives_disjoint_splits():
    splits = load("", source="operators", task="operators")
    tuples = [{p.text.split("=")[0] for p in part} for part in lists_of(splits)]
    assert not tuples[0] & tuples[1] and not tuples[0] & tuples[2] and not tuples[1] & tuples[2]


def test_an_unreachable_hub_is_one_clear_error():
    # a folder that is not a data set fails in the same place as a hub that cannot be reached
    with pytest.raises(ValueError, match=r"deepmath_hard.*could not be read.*data\.path"):
        load("./no/such/dataset", source="deepmath_hard")
