"""Runs untrusted Python programs where they can do no harm: no network, no files, no other processes.

A `Sandbox` serves one program. Inside, process 1 forks a confined process for each test; the program's
output comes out, and nothing that it says about itself is believed. See docs/security.md for what is
promised and what is not.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from agon_jax.verify import sandbox_seccomp
from agon_jax.verify.sandbox_backends import (
    AS_ROOT,
    BACKENDS,
    command,
    environment,
    lone_uid,
    modules,
    threads_are_counted_apart,
)

_HEADER = struct.Struct("<cQ")
_START_S = 60.0  # for a sandbox to be ready on a busy machine; no program runs in that time
_STARTS = 3
_GRACE_S = 10.0  # beyond a program's own limit, before the sandbox is taken down from outside
_NOT_PYTHON = 113  # the exit code for it, see sandbox_child


class SandboxUnavailable(RuntimeError):
    """Nothing on this machine contains a program: an error for the user, never a verdict."""


class SandboxLost(RuntimeError):
    """The sandbox itself was killed or stopped answering; costs the program, not the judge."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one test of a program may use.

    Attributes:
      memory_mb: MiB of address space of the process, all threads together.
      output_mb: MiB of standard output, of standard error, and of any file.
      tmp_mb: MiB of all files in /tmp together.
      tmp_files: number of files, directories and links in /tmp.
      threads: threads beside the first one.
    """

    memory_mb: int = 512
    output_mb: int = 16
    tmp_mb: int = 16
    tmp_files: int = 1024
    threads: int = 64

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1, got {getattr(self, field.name)}")
        if self.memory_mb < 64:
            raise ValueError(f"memory_mb must be at least 64 (Python itself), got {self.memory_mb}")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one run ended.

    Attributes:
      failure: why it failed ("timeout", "memory", "output limit", "syntax error", "crash (SIGSEGV)",
        "exit code 1"), or
        "" for an exit with code 0 within all limits.
      stdout: the output; empty after a failure.
      wall_s: seconds from the start of the process to its end.
      memory_mb: MiB, the largest resident size.
    """

    failure: str
    stdout: bytes
    wall_s: float
    memory_mb: float


class Sandbox:
    """One program's sandbox, a context manager; used from one thread, the one that made it.

    Args:
      program: the source text.
      limits: of each run.
      backend: one of `backends()`, None for the best that works.
      allow_unsandboxed: without any backend, run programs with limits and the filter of system calls
        only: they read and write every file that the user can.

    Raises:
      SandboxUnavailable: nothing works and `allow_unsandboxed` is not set, or it did not start.
    """

    def __init__(
        self,
        program: str,
        limits: Limits | None = None,
        *,
        backend: str | None = None,
        allow_unsandboxed: bool = False,
    ):
        self._limits = limits or Limits()
        self._backend = backend or best_backend(allow_unsandboxed)
        if self._backend == "none" and not allow_unsandboxed:
            raise SandboxUnavailable("backend 'none' contains nothing: it needs allow_unsandboxed=True")
        self._program = program.encode("utf-8", "surrogatepass")
        self._process = self._control = self._calls = self._folder = None
        self._used = False

    def __enter__(self) -> Sandbox:
        self._start()
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def run(self, stdin: bytes, timeout_s: float) -> Outcome:
        """Runs the program once on `stdin`, for at most `timeout_s` seconds of wall time.

        Raises:
          SandboxLost: the sandbox ended or hangs.
        """
        if self._used:  # a test starts without the files of the one before
            self.close()
            self._start()
        self._send(b"T", struct.pack("<d", timeout_s) + stdin, timeout_s)
        return self._outcome(timeout_s)

    def first_python(self, texts: list[str]) -> int:
        """Index of the first text that compiles, -1 for none. Runs none of them.

        Raises:
          SandboxLost: the sandbox ended or hangs.
        """
        self._send(b"P", json.dumps(texts).encode(), 10.0)
        return int(self._receive(b"I", 10.0))

    def start_calls(self, timeout_s: float) -> socket.socket:
        """Starts the program and leaves it answering calls (see `code_values.answer`) on the socket.

        Loading and all calls together have `timeout_s` seconds of wall time. Once only for a sandbox.
        """
        self._send(b"A", struct.pack("<d", timeout_s), timeout_s)
        return self._calls

    def end_calls(self, timeout_s: float) -> Outcome:
        """How the program of `start_calls` has ended, after its socket did.

        Raises:
          SandboxLost: the sandbox ended or hangs.
        """
        return self._outcome(timeout_s)

    def close(self) -> None:
        """Ends everything that runs inside and waits for it. May be called twice."""
        for end in (self._control, self._calls):
            if end is not None:
                end.close()  # process 1 sees it and ends; its name space ends with it
        if self._process is not None:
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process = self._control = self._calls = self._folder = None

    def _start(self) -> None:
        for attempt in range(_STARTS):
            try:
                return self._start_once()
            except SandboxUnavailable:  # a passing lack of memory or processes
                if attempt == _STARTS - 1:
                    raise
                time.sleep(0.1 * (attempt + 1))

    def _start_once(self) -> None:
        self._used = False
        control, inner_control = socket.socketpair()
        calls, inner_calls = socket.socketpair()
        self._control, self._calls = control, calls
        if self._backend == "none":
            self._folder = tempfile.mkdtemp(prefix="unsandboxed-")
        with tempfile.TemporaryFile() as errors:
            try:
                inner = (inner_control.fileno(), inner_calls.fileno())
                self._process = subprocess.Popen(
                    command(self._backend, inner[0]),
                    env=environment(self._backend),
                    cwd=self._folder or "/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=inner,
                    start_new_session=True,
                )
                inner_control.close()
                inner_calls.close()
                config = dataclasses.asdict(self._limits) | {
                    "contained": self._backend != "none",
                    "uid": lone_uid(self._process.pid) if self._backend in AS_ROOT else None,
                    "seccomp": sandbox_seccomp.supported(),
                    "calls": inner[1],
                }
                if not threads_are_counted_apart(self._backend):
                    config["threads"] = 0
                bundle = marshal.dumps({"modules": modules(), "config": config})
                control.settimeout(_START_S)
                control.sendall(len(bundle).to_bytes(8, "little") + bundle)
                self._receive(b"R", _START_S)
                self._send(b"C", self._program, _START_S)
            except (OSError, SandboxLost) as error:
                self.close()
                errors.seek(0)
                said = errors.read(4000).decode(errors="replace").strip()
                last = said.splitlines()[-1] if said else error
                raise SandboxUnavailable(f"{self._backend} did not start: {last}") from error
            except BaseException:  # an interrupt: nobody else would close a sandbox that has not begun
                self.close()
                raise

    def _outcome(self, timeout_s: float) -> Outcome:
        report = json.loads(self._receive(b"D", timeout_s + _GRACE_S))
        stdout = self._receive(b"O", _GRACE_S)
        outcome = Outcome(_failure(report), stdout, report["wall_s"], report["memory_mb"])
        self._used = report["left_files"]
        return outcome

    def _send(self, kind: bytes, payload: bytes, timeout_s: float) -> None:
        try:
            self._control.settimeout(timeout_s + _GRACE_S)
            self._control.sendall(_HEADER.pack(kind, len(payload)) + payload)
        except OSError as error:
            raise SandboxLost("the sandbox ended") from error

    def _receive(self, kind: bytes, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        got, length = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if got != kind or length > (self._limits.output_mb + 1) << 20:
            raise SandboxLost("the sandbox answers out of turn")
        return self._exactly(length, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        parts = []
        try:
            while size:
                self._control.settimeout(max(0.001, deadline - time.monotonic()))
                part = self._control.recv(min(size, 1 << 20))
                if not part:
                    raise SandboxLost("the sandbox ended")
                parts.append(part)
                size -= len(part)
        except OSError as error:
            raise SandboxLost("the sandbox does not answer") from error
        return b"".join(parts)


@functools.cache
def backends() -> dict[str, str]:
    """The backends, best first, each with "" where it works here, else with why it does not."""
    return {name: _probe(name) for name in BACKENDS}


@functools.cache
def best_backend(allow_unsandboxed: bool = False) -> str:
    """The first backend that works here; "none" if only `allow_unsandboxed` is left.

    Raises:
      SandboxUnavailable: none works, and `allow_unsandboxed` is not set.
    """
    tried = {}
    for name in BACKENDS:
        tried[name] = _probe(name)
        if not tried[name]:
            return name
    if allow_unsandboxed:
        return "none"
    why = "; ".join(reason if name in reason else f"{name}: {reason}" for name, reason in tried.items())
    raise SandboxUnavailable(
        f"no sandbox works here ({why}). Install bubblewrap or allow namespaces (docs/security.md says how), "
        "or set allow_unsandboxed=True to run the models' programs with your own rights"
    )


@functools.cache
def _probe(name: str) -> str:
    """Why the backend does not work here, "" when it does: a small program has run in it."""
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if not sandbox_seccomp.supported():
        return f"no system-call filter for {os.uname().machine}"
    if name in AS_ROOT and (os.geteuid() != 0 or lone_uid(1) is None):
        return "needs root with a range of user ids"
    if name.startswith("bwrap") and not shutil.which("bwrap"):
        return "bwrap is not installed"
    sandbox = Sandbox("import csv\nprint(input()[::-1])", backend=name)
    try:
        with sandbox:
            outcome = sandbox.run(b"abc\n", 30.0)
    except (SandboxUnavailable, SandboxLost) as error:
        return str(error)
    return "" if outcome.stdout == b"cba\n" else f"a small program failed: {outcome.failure}"


def _failure(report: dict) -> str:
    status = report["status"]
    if report["timed_out"]:
        return "timeout"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXFSZ:
            return "output limit"
        if number == signal.SIGXCPU:
            return "timeout"
        return f"crash ({signal.Signals(number).name if number in set(signal.Signals) else number})"
    if report["cut"]:
        return "output limit"
    code = os.WEXITSTATUS(status)
    if code and report["no_memory"]:
        return "memory"
    if code == _NOT_PYTHON:
        return "syntax error"
    return f"exit code {code}" if code else ""
