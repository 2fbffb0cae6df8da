"""The referee of programs: a completion is right when its program passes all tests, and not otherwise.

Programs run in a sandbox (`agon_jax.verify.sandbox`); the comparison is made here, on what came out.
An expected output never enters the sandbox.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from agon_jax.verify import code_asserts, code_values
from agon_jax.verify.code_compare import same_output
from agon_jax.verify.code_extract import extract
from agon_jax.verify.grade import Grade
from agon_jax.verify.sandbox import Limits, Sandbox, SandboxLost, best_backend

# [{"input": str, "output": str}, ...] for a program that reads and writes, or Python assertions.
Tests = Sequence[dict] | str

TIMEOUT_S = 5.0
MEMORY_MB = 512


def grade(
    completion: str,
    tests: Tests,
    *,
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
    allow_unsandboxed: bool = False,
) -> Grade:
    """The verdict on one completion; see `CodeJudge`."""
    judge = CodeJudge(timeout_s=timeout_s, memory_mb=memory_mb, allow_unsandboxed=allow_unsandboxed)
    return judge.grade(completion, tests)


@dataclasses.dataclass(frozen=True)
class CodeJudge:
    """Grades completions that hold a program.

    Attributes:
      timeout_s: seconds of wall time of one test, from the start of its process; of all assertions
        together. Waiting for a free worker never counts.
      memory_mb: MiB of address space of one test.
      output_mb: MiB of output of one test.
      allow_unsandboxed: run programs even where nothing contains them: with your rights, on your files.
      backend: one of `sandbox.backends()`, None for the best that works.
    """

    timeout_s: float = TIMEOUT_S
    memory_mb: int = MEMORY_MB
    output_mb: int = 16
    allow_unsandboxed: bool = False
    backend: str | None = None

    def __post_init__(self):
        if not (math.isfinite(self.timeout_s) and 0 < self.timeout_s <= 3600):
            raise ValueError(f"timeout_s must be in (0, 3600], got {self.timeout_s}")
        self._limits()  # raises for the others

    def grade(self, completion: str, tests: Tests) -> Grade:
        """The verdict on the program of the completion; its last complete fenced block counts.

        The reason is "passed", "wrong output on test 3", "wrong answer on assertion 0", "timeout on test
        0", "memory ...", "crash (SIGSEGV) ...", "exit code 1 ...", "output limit ...", "syntax error", "no
        code" or "ungradable: ...". Tests are counted from 0, and the first failure ends the grading.

        Raises:
          SandboxUnavailable: programs cannot be contained here. That is never a verdict.
        """
        try:
            work = self._work(tests)
        except code_asserts.Ungradable as error:
            return Grade(False, None, f"ungradable: {error}")
        program = None
        try:
            program = extract(completion, self._first_python)
            if program is None:
                return Grade(False, None, "no code")
            with self._sandbox(program) as sandbox:
                failure = work(sandbox, self.timeout_s)
        except SandboxLost:
            failure = "sandbox killed"
        return Grade(not failure, program, failure or "passed")

    def grade_many(
        self,
        items: Sequence[tuple[str, Tests]],
        *,
        workers: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Grade]:
        """Verdicts on (completion, tests) pairs, in their order.

        Args:
          workers: programs at once, None for one per core.
          progress: called with (done, total) after each item, from one thread at a time.

        Raises:
          SandboxUnavailable: see `grade`.
        """
        if self.backend is None:
            best_backend(self.allow_unsandboxed)  # tried once, before the threads
        done, lock = 0, threading.Lock()

        def one(item: tuple[str, Tests]) -> Grade:
            nonlocal done
            verdict = self.grade(*item)
            with lock:
                done += 1
                if progress:
                    progress(done, len(items))
            return verdict

        with ThreadPoolExecutor(workers or os.cpu_count() or 1, "code-judge") as pool:
            waiting = [pool.submit(one, item) for item in items]
            try:
                return [verdict.result() for verdict in waiting]
            finally:
                for verdict in waiting:
                    verdict.cancel()

    def fault(self, tests: Tests) -> str | None:
        """Why no program can ever be graded by these tests; None when they are fine."""
        try:
            self._work(tests)
        except code_asserts.Ungradable as error:
            return f"ungradable: {error}"
        return None

    def _work(self, tests: Tests) -> _Work:
        return _assertions(tests) if isinstance(tests, str) else _examples(tests, self.output_mb)

    def _limits(self) -> Limits:
        return Limits(memory_mb=self.memory_mb, output_mb=self.output_mb)

    def _sandbox(self, program: str) -> Sandbox:
        return Sandbox(
            program, self._limits(), backend=self.backend, allow_unsandboxed=self.allow_unsandboxed
        )

    def _first_python(self, texts: list[str]) -> int:
        with self._sandbox("") as sandbox:
            return sandbox.first_python(texts)


# Runs a program's tests in its sandbox: why it failed, "" when all passed.
_Work = Callable[[Sandbox, float], str]


def _examples(tests: Sequence[dict], output_mb: int) -> _Work:
    """The work for tests of standard input and output.

    Raises:
      Ungradable: no tests, or tests that prove nothing.
    """
    pairs = []
    for i, test in enumerate(tests):
        sides = [test.get("input"), test.get("output")] if isinstance(test, dict) else [None]
        if not all(isinstance(side, str) for side in sides):
            raise code_asserts.Ungradable(f"test {i} is not an input and an output string")
        pairs.append([side.encode("utf-8", "surrogatepass") for side in sides])
        if len(pairs[-1][1]) >= output_mb << 20:
            raise code_asserts.Ungradable(f"the output of test {i} is over the output limit")
    if not any(expected.split() for _, expected in pairs):
        raise code_asserts.Ungradable("no test expects any output")

    def work(sandbox: Sandbox, timeout_s: float) -> str:
        for i, (given, expected) in enumerate(pairs):
            outcome = sandbox.run(given, timeout_s)
            if outcome.failure == "syntax error":
                return outcome.failure
            if outcome.failure:
                return f"{outcome.failure} on test {i}"
            if not same_output(outcome.stdout, expected):
                return f"wrong output on test {i}"
        return ""

    return work


class _CallFailed(Exception):
    """The program gave no value for a call; holds why, or nothing if the program has ended."""


def _assertions(tests: str) -> _Work:
    """The work for assertions.

    Raises:
      Ungradable: see `code_asserts.plan`.
    """
    steps = code_asserts.plan(tests)

    def work(sandbox: Sandbox, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s + 1  # the sandbox keeps the exact one
        calls = sandbox.start_calls(timeout_s)
        try:
            code_asserts.check(steps, lambda source, names: _ask(calls, source, names, deadline))
            return ""
        except code_asserts.WrongAnswer as error:
            return str(error)
        except _CallFailed as error:
            if str(error):
                return str(error)
            failure = sandbox.end_calls(timeout_s).failure
            return failure if failure and failure != "exit code 0" else "ended before all assertions"

    return work


def _ask(calls: socket.socket, source: str, names: dict[str, object], deadline: float) -> object:
    """The plain value of a call, evaluated in the sandbox."""
    try:
        request = {"source": source, "names": {k: code_values.encode(v) for k, v in names.items()}}
        text = json.dumps(request).encode()
        calls.settimeout(max(0.001, deadline - time.monotonic()))
        calls.sendall(code_values.LENGTH.pack(len(text)) + text)
        length = code_values.LENGTH.unpack(_exactly(calls, code_values.LENGTH.size, deadline))[0]
        if length > code_values.MAX_BYTES:
            raise _CallFailed("answer too large")
        kind, body = json.loads(_exactly(calls, length, deadline))
        if kind == "value":
            return code_values.decode(body)
        raise _CallFailed("raised an exception" if kind == "raised" else "answer is not plain data")
    except OSError as error:
        raise _CallFailed("") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _CallFailed("answer is not plain data") from error


def _exactly(calls: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        calls.settimeout(max(0.001, deadline - time.monotonic()))
        part = calls.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError
        data += part
    return bytes(data)
