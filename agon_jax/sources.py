"""Where problems come from: one function a source, from its own schema to question and reference.

A row that cannot be used carries its fault instead of a reference: it is reported with its place and
left out, never paid. Files and hub datasets are read by `datasets`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a source.

    Attributes:
      where: its place, for people.
      question: the problem's text.
      reference: what the referee compares with: an answer, or JSON of tests or of a scorer's entry.
      fault: why the row cannot be used; None when it can.
      filtered: the row is fine, but the source's definition leaves it out (too easy, two-choice).
    """

    where: str
    question: str
    reference: str = ""
    fault: str | None = None
    filtered: str | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset with the reader of its rows.

    Attributes:
      hub, config, split: of the hub dataset; a local `data.path` takes its place.
      read: (fields of a row) -> Row without its place.
      task: name of the referee that its references are made for.
    """

    hub: str
    split: str
    read: Callable[[Fields], Row]
    task: str = "math"
    config: str | None = None


def rows_of(name: str, path: str, *, question_field: str, answer_field: str, task: str) -> Iterator[Row]:
    """All rows of a source, in file order.

    Args:
      name: a key of SOURCES, "jsonl" or "reasoning_gym".
      path: local file or folder in place of the hub; the file of "jsonl"; for "reasoning_gym" the
        names of its datasets, the number of problems of each and its parameters,
        `leg_counting,basic_arithmetic:500` or `family_relationships:500?max_family_size=6`.
      question_field, answer_field: of "jsonl".
      task: of the config; a source's references only suit its own task.

    Raises:
      ValueError: the source cannot be read, or does not suit the task.
    """
    suits = {"reasoning_gym": "reasoning_gym"}.get(name) or (SOURCES[name].task if name in SOURCES else task)
    if suits != task:
        raise ValueError(f"data.source={name!r} needs --config.task={suits}, not {task!r}")
    if name == "reasoning_gym":
        yield from _reasoning_gym(path)
    elif name == "jsonl":
        file = pathlib.Path(path)
        if not path or not file.is_file():
            raise ValueError(f"data.path={path!r}: no such file (data.source='jsonl' needs one)")
        read = lambda fields: _fields(fields, question_field, answer_field)
        yield from _read(_jsonl(file), read, file.name)
    else:
        source = SOURCES[name]
        place = path or source.hub
        yield from _read(_dataset(name, path, source), source.read, place)


def _read(rows: Iterable[Fields], read: Callable[[Fields], Row], place: str) -> Iterator[Row]:
    for number, fields in enumerate(rows, start=1):
        where = f"{place}:{number}"
        missing = None
        try:
            row = read(fields)
        except KeyError as error:
            missing = error.args[0]
        except (TypeError, ValueError) as error:
            row = Row("", "", fault=f"not of this source's schema ({error})")
        if missing is not None:
            if number == 1:  # the whole file is of another schema
                raise ValueError(f"{where}: no field {missing!r}; it has {', '.join(map(str, fields))}")
            row = Row("", "", fault=f"no field {missing!r}")
        if not row.fault and not row.filtered:
            if not row.question.strip():
                row = dataclasses.replace(row, fault="empty question")
            elif not row.reference.strip():
                row = dataclasses.replace(row, fault="empty answer")
        yield dataclasses.replace(row, where=where)


def _jsonl(file: pathlib.Path) -> Iterator[Fields]:
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}:{number}: not JSON ({error})") from None
        if not isinstance(fields, dict):
            raise ValueError(f"{file}:{number}: not a JSON object")
        yield fields


def _dataset(name: str, path: str, source: Source) -> Iterable[Fields]:
    """Rows of the hub dataset, or of a local file or folder of the same schema."""
    local = pathlib.Path(path).expanduser()
    if path.startswith((".", "/", "~")) and not local.exists():
        raise ValueError(
            f"data.source={name!r}: {path!r} could not be read (no such file or folder); give a local copy "
            "or a hub id by --config.data.path="
        )
    if path and local.is_file() and local.suffix in (".jsonl", ".json"):
        return _jsonl(local)
    import datasets

    try:
        if path and local.is_file():
            return datasets.load_dataset(local.suffix[1:], data_files=str(local), split="train")
        if path and (local / "dataset_info.json").is_file():
            return datasets.load_from_disk(str(local))
        if path:
            return datasets.load_dataset(str(local), split=source.split)
        return datasets.load_dataset(source.hub, source.config, split=source.split)
    except Exception as error:  # the hub client raises a dozen unrelated types
        raise ValueError(
            f"data.source={name!r}: {path or source.hub!r} could not be read ({type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else ''}); check the connection, or "
            "give a local copy by --config.data.path="
        ) from error


def boxed(text: str) -> str | None:
    r"""Content of the last \boxed{...} with balanced braces."""
    for match in reversed(list(re.finditer(r"\\f?boxed\s*\{", text))):
        depth = 1
        for i in range(match.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                return text[match.end() : i]
    return None


def _fields(fields: Fields, question_field: str, answer_field: str) -> Row:
    question = str(fields[question_field])
    if answer_field in fields:
        value = fields[answer_field]
        return Row("", question, "" if value is None else str(value))
    # Without an answer column, the answer of a worked solution is what it boxes, not its whole text.
    if "solution" not in fields:
        raise KeyError(answer_field)
    answer = boxed(str(fields["solution"]))
    return Row("", question, answer or "", fault=None if answer else "a solution without a boxed answer")


def _deepmath_hard(fields: Fields) -> Row:
    """Difficulty 8 and up, and no answer that a coin would guess."""
    question, answer = str(fields["question"]), str(fields["final_answer"])
    difficulty = fields["difficulty"]
    if difficulty is None or float(difficulty) < 8:
        return Row("", question, filtered="no difficulty" if difficulty is None else "difficulty below 8")
    if re.sub(r"[\W_]+|text", "", answer).lower() in ("yes", "no", "true", "false"):
        return Row("", question, filtered="two-choice answer")
    return Row("", question, answer)


def _gsm8k(fields: Fields) -> Row:
    """The gold follows `####`."""
    question = str(fields["question"])
    _, mark, gold = str(fields["answer"]).rpartition("####")
    return Row("", question, gold.strip()) if mark else Row("", question, fault="no #### in the answer")


def _problem_answer(fields: Fields) -> Row:
    return _fields(fields, "problem", "answer")


def _amc(fields: Fields) -> Row:
    """Integer answers are stored as floats."""
    row = _fields(fields, "problem" if "problem" in fields else "question", "answer")
    return dataclasses.replace(row, reference=row.reference.removesuffix(".0"))


# Of the original schema's enumeration: EASY, and Codeforces' problems A and B.
_EASY = (1, 7, 8)


def _codecontests(fields: Fields) -> Row:
    """The original schema keeps public, private and generated tests apart, the merged one in `tests`."""
    question = str(fields["description"])
    if fields.get("difficulty") not in _EASY:
        return Row("", question, filtered="not of the easy subset")
    if "tests" in fields:
        groups = [fields["tests"]]
    else:
        groups = [fields["public_tests"], fields.get("private_tests"), fields.get("generated_tests")]
    tests = []
    for group in filter(None, groups):
        pairs = [(t["input"], t["output"]) for t in group] if isinstance(group, list) else list(
            zip(group["input"], group["output"], strict=True)
        )  # fmt: skip
        tests += [{"input": given, "output": wanted} for given, wanted in pairs]
    if not tests:
        return Row("", question, fault="no tests")
    return Row("", question, json.dumps(tests))


def _reasoning_gym(path: str) -> Iterator[Row]:
    """Procedural problems with their own scorers; the reference is the entry that the scorer wants."""
    try:
        import reasoning_gym
    except ImportError:
        raise ValueError(
            "data.source='reasoning_gym' needs the package reasoning-gym (pip install reasoning-gym)"
        ) from None
    known, entries_of = reasoning_gym.factory.DATASETS, reasoning_gym.create_dataset
    for name, size, options in _gym_datasets(path):
        if name not in known:
            raise ValueError(f"data.path={path!r}: reasoning_gym has no dataset {name!r}")
        fields = {field.name for field in dataclasses.fields(known[name][1])} - {"seed", "size"}
        if unknown := sorted(options.keys() - fields):
            raise ValueError(
                f"data.path={path!r}: {name} has no parameter {unknown[0]!r}; it has "
                f"{', '.join(sorted(fields))}"
            )
        try:
            entries = entries_of(name, size=size, seed=0, **options)
        except (AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"data.path={path!r}: {name} does not take these values ({error})") from None
        for number, entry in enumerate(entries, start=1):
            entry = json.loads(json.dumps(entry, default=str))
            yield Row(f"{name}:{number}", entry["question"], json.dumps({"dataset": name, "entry": entry}))


_GYM_DATASET = re.compile(r"(\w+)(?::(\d+))?(?:\?(\w+=[^&=]+(?:&\w+=[^&=]+)*))?")


def _gym_datasets(path: str) -> list[tuple[str, int, dict[str, Any]]]:
    """(name, size, parameters) of each dataset that a path names. One without a size has that of the next
    with one, 1000 if there is none."""
    found, size = [], 1000
    for text in reversed(path.split(",")):
        match = _GYM_DATASET.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"data.path={path!r}: {text.strip()!r} is no dataset of reasoning_gym; name them as in "
                "'leg_counting,basic_arithmetic:500' or 'family_relationships:500?max_family_size=6'"
            )
        name, own, options = match.groups()
        size = int(own or size)
        pairs = [pair.split("=") for pair in (options or "").split("&") if pair]
        found.append((name, size, {key: _value(value) for key, value in pairs}))
    return found[::-1]


def _value(text: str) -> Any:
    """`6`, `0.5`, `true`; anything else is a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


SOURCES: dict[str, Source] = {
    "deepmath_hard": Source("zwhe99/DeepMath-103K", "train", _deepmath_hard),
    "gsm8k": Source("openai/gsm8k", "train", _gsm8k, config="main"),
    "gsm8k_test": Source("openai/gsm8k", "test", _gsm8k, config="main"),
    "math500": Source("HuggingFaceH4/MATH-500", "test", _problem_answer),
    "aime24": Source("HuggingFaceH4/aime_2024", "train", _problem_answer),
    "aime25": Source("math-ai/aime25", "test", _problem_answer),
    "amc23": Source("math-ai/amc23", "test", _amc),
    "codecontests_easy": Source("deepmind/code_contests", "train", _codecontests, task="code"),
}
