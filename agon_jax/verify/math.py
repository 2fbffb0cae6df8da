"""The referee of mathematics with a reference answer.

One false positive is enough for two policies to learn it together, so whatever is not understood is
wrong: an answer is right only if all of it was read and has the value and the form of the reference.

Reasons start with one word: `same` (spelling), `equal`, `different`, `no answer`, `unreadable: ...`,
`undefined` (1/0), `too big`, `reference: ...` (it cannot be graded); from the pool also `timeout`,
`crash`, `memory` and `error: ...`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from agon_jax.verify import math_extract
from agon_jax.verify.grade import Grade
from agon_jax.verify.math_clean import clean
from agon_jax.verify.math_exact import TooBig, Undefined
from agon_jax.verify.math_form import read
from agon_jax.verify.math_forms import Opaque, Scalar
from agon_jax.verify.math_same import same
from agon_jax.verify.math_scalar import with_unit
from agon_jax.verify.math_tokens import Unreadable
from agon_jax.verify.math_value import is_defined
from agon_jax.verify.pool import Pool

MAX_LENGTH = 20_000  # characters of an answer
MAX_COMPLETION = 2_000_000  # characters of a reply that are looked at, from its end
MAX_NESTING = 100


def grade(completion: str, reference: str) -> Grade:
    """Grades a reply (or a bare answer): finds its answer, then `grade_answer`."""
    answer = math_extract.extract(completion[-MAX_COMPLETION:])
    if answer is None:
        return Grade(False, None, "no answer")
    return grade_answer(answer, reference)


def grade_answer(answer: str, reference: str) -> Grade:
    """Grades an answer that was already taken out of its reply. A box inside it is opened."""
    if not isinstance(reference, str):
        return Grade(False, answer, "reference: not a text")
    inner = _unboxed(answer)
    grade = lambda correct, reason: Grade(correct, inner, reason)
    problem, golds, gold_text = _gold(reference)
    if problem:
        return grade(False, f"reference: {problem}")
    if not inner.strip():
        return grade(False, "no answer")
    if problem := _guard(inner):
        return grade(False, f"unreadable: {problem}")
    text = clean(inner)
    if _spelling(text) == _spelling(gold_text):
        return grade(True, "same")
    if _plain_integer(text) and _plain_integer(gold_text):
        equal = int(text) == int(gold_text)
        return grade(equal, "equal" if equal else "different")
    try:
        answers = _readings(text)
        right = any(same(gold, answer) for gold in golds for answer in answers)
    except Unreadable as error:
        return grade(False, f"unreadable: {error}")
    except TooBig:
        return grade(False, "too big")
    except Undefined:
        return grade(False, "undefined")
    except (ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        return grade(False, f"error: {type(error).__name__}")
    return grade(right, "equal" if right else "different")


def gradable(reference: str) -> str | None:
    """Why no answer can be graded against this reference; None when it is fine."""
    return _gold(reference)[0] if isinstance(reference, str) else "not a text"


@functools.lru_cache(maxsize=1024)  # one gold has many answers
def _gold(reference: str) -> tuple[str | None, list, str]:
    """(what is wrong with it, its readings, its cleaned text)."""
    text = _unboxed(reference)
    if not text.strip():
        return "empty", [], ""
    found = math_extract.boxes(reference)
    if found and re.search(r"[A-Za-z0-9]", reference[: found[0][0]] + reference[found[-1][1] :]):
        return "text around a box", [], ""
    if text.casefold() in ("none", "nan", "null", "n/a", "unknown"):
        return "no value", [], ""
    if problem := _guard(text):
        return problem, [], ""
    text = clean(text)
    try:
        forms = _readings(text, gold=True)
        if isinstance(forms[0], Scalar) and not is_defined(forms[0].node):
            return "undefined", [], text
        return None, forms, text
    except Unreadable as error:
        if problem := _not_notation(text):
            return f"{problem} ({error})", [], text
        return None, [Opaque(_spelling(text))], text
    except TooBig:
        return None, [Opaque(_spelling(text))], text
    except (ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        return type(error).__name__, [], text


def _unboxed(text: str) -> str:
    for _ in range(3):  # a box in a box
        inner = math_extract.boxed(text)
        if inner is None:
            break
        text = inner
    return text.strip()


def _readings(text: str, *, gold: bool = False) -> list:
    """How a text can be read: `5 m` is five metres or five times m."""
    if text.endswith(".."):
        raise Unreadable("an ellipsis")
    forms = [read(text)]
    if gold and re.search(r"(?<![a-zA-Z])[a-zA-Z]$", text):
        return forms  # a gold of `4 s` is four times s
    if (measured := with_unit(text)) is not None and measured not in forms:
        forms.append(measured)
    return forms


def _guard(text: str) -> str | None:
    """Cheap limits before any parsing."""
    if len(text) > MAX_LENGTH:
        return "too long"
    depth = deepest = 0
    for match in re.finditer(r"[({\[]|[)}\]]", text):
        depth += 1 if match.group() in "({[" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        return "nested too deeply"
    return None


def _spelling(text: str) -> str:
    """What two spellings of the same answer share: spaces and outer punctuation do not count."""
    text = re.sub(r"[.,;]$", "", text.strip())
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", re.sub(r"\\(?=[a-zA-Z])", " \\\\", text))
    return re.sub(r"(?<![a-zA-Z0-9.]) | (?![a-zA-Z0-9.])", "", " ".join(text.split()))


def _plain_integer(text: str) -> bool:
    return len(text) < 1000 and re.fullmatch(r"-?[0-9]+", text) is not None


_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}")
_NAMES = re.compile(r"\\(?:begin|end|mathbb|mathcal|mathfrak|operatorname)\s*\{\w+\}")
_ARGUMENT = re.compile(
    r"(?<!\\)\b(?:because|so|since|therefore|hence|thus|then|we|is|are|which|that|let)\b|####", re.IGNORECASE
)


def _not_notation(text: str) -> str | None:
    """Why a text that could not be read is no notation either."""
    if not re.search(r"[A-Za-z0-9]", text):
        return "no symbol"
    if re.search(r"[-=+*/^_<>(\[{]$|^[=*/^_<>)\]}]", text):
        return "cut off"
    if len(text) > 300:
        return "too long for an answer"
    if len(_PROSE.findall(_NAMES.sub("", text))) > 3:
        return "a sentence"
    if _ARGUMENT.search(text):
        return "a worked solution"
    depth = 0
    for match in re.finditer(r"(?<!\\)[{}]", text):
        depth += 1 if match.group() == "{" else -1
        if depth < 0:
            break
    if depth:
        return "unbalanced braces"
    return None


class MathPool:
    """Grades in worker processes, so that no answer can hang or take down its caller.

    Args:
      workers: how many processes.
      timeout: seconds for one answer, counted from the moment a worker starts on it.
      memory_bytes: limit of a worker's address space.
    """

    def __init__(self, workers: int = 2, timeout: float = 5.0, memory_bytes: int = 2 << 30):
        self._pool = Pool(_grade_item, workers=workers, timeout=timeout, memory_bytes=memory_bytes)

    def grade_many(
        self,
        pairs: Sequence[tuple[str, str]],
        progress: Callable[[int, int], None] | None = None,
        *,
        extracted: bool = False,
    ) -> list[Grade]:
        """Grades (completion, reference) pairs; with `extracted`, (answer, reference) pairs.

        The order is kept. `progress` gets (done, total) in the calling thread.
        """
        results = self._pool.map([(extracted, *pair) for pair in pairs], progress)
        return [
            result.value if result.error is None else Grade(False, None, result.error) for result in results
        ]

    @property
    def pids(self) -> list[int]:
        """Process ids of the live workers."""
        return self._pool.pids

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()

    def __enter__(self) -> MathPool:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _grade_item(item: tuple[bool, str, str]) -> Grade:
    extracted, text, reference = item
    return (grade_answer if extracted else grade)(text, reference)
