"""Programs that must pass all tests; the referee is `verify.code`, in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agon_jax.tasks.hiding import HIDDEN
from agon_jax.text.prompts import CODE
from agon_jax.types import Problem, Progress
from agon_jax.verify.code import CodeJudge
from agon_jax.verify.grade import Grade
from agon_jax.verify.sandbox import SandboxUnavailable, best_backend

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


class CodeTask:
    """Referee of programs. A problem's reference is JSON: a list of {"input", "output"}, or a string
    of assertions.

    Raises:
      ValueError: programs cannot be contained here, and `allow_unsandboxed` is not set.
    """

    prompts = CODE

    def __init__(self, workers: int = 2, allow_unsandboxed: bool = False):
        try:
            best_backend(allow_unsandboxed)  # said now, not when the first program is judged
        except SandboxUnavailable as error:
            raise ValueError(f"config.task='code': {error}") from error
        self._judge = CodeJudge(allow_unsandboxed=allow_unsandboxed)
        self._workers = workers

    def grade(
        self, problems: Sequence[Problem], answers: Sequence[str | None], progress: Progress | None = None
    ) -> list[Grade]:
        """Verdicts: right only if the last complete code block passes all tests."""
        items = [
            (answer or "", json.loads(problem.reference))
            for problem, answer in zip(problems, answers, strict=True)
        ]
        return self._judge.grade_many(items, workers=self._workers, progress=progress)

    def fault(self, reference: str) -> str | None:
        try:
            tests = json.loads(reference)
        except ValueError:
            return "tests that are not JSON"
        return self._judge.fault(tests) if isinstance(tests, (list, str)) else "tests of no known form"

    def hide(self, problem: Problem, summary: str, answer: str) -> str:
        """The summary without code blocks: any of them may be the program."""
        return _FENCED.sub(HIDDEN, summary)

    def close(self) -> None:
        """Nothing outlives a verdict."""
