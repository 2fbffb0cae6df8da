"""A function on many items in worker processes that may hang, crash or be killed.

Each worker is a fresh interpreter (no fork: the parent may hold JAX and its threads) that imports what
the function needs and nothing of the parent's main module. The parent kills a worker whose item ran
out of time; the limit holds wherever the caller's thread is and however the item hangs, as no signal
handler of the worker has to run.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

START_SECONDS = 120.0  # for a worker's imports, on a busy machine
_MAIN = "import sys; sys.path[:] = {path!r}; from agon_jax.verify.pool import _serve; _serve({conn}, {life})"


@dataclasses.dataclass(frozen=True)
class Result:
    """What became of one item: a value, or why there is none.

    Attributes:
      value: what the function returned, None with an error.
      error: `timeout`, `crash` (its worker died twice), `memory`, or `error: ...` (it raised).
    """

    value: Any = None
    error: str | None = None


class Pool:
    """Worker processes that share a queue of items. Its methods can be called from any thread.

    Args:
      function: a function of a module that workers can import; a plain function of one argument.
      workers: how many processes.
      timeout: seconds for one item, from the moment a worker starts on it; waiting never counts.
      memory_bytes: limit of a worker's address space, None for no limit.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        workers: int = 2,
        timeout: float = 5.0,
        memory_bytes: int | None = 2 << 30,
    ):
        if workers < 1 or timeout <= 0:
            raise ValueError(f"need a worker and a positive timeout, got {workers} and {timeout}")
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._setup = pickle.dumps((function, timeout, memory_bytes))
        self._timeout = timeout
        self._closed = False
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> list[int]:
        """Process ids of the live workers."""
        with self._lock:
            return [worker.process.pid for worker in self._workers]

    def map(self, items: Iterable[Any], progress: Callable[[int, int], None] | None = None) -> list[Result]:
        """Results in the order of the items. `progress` gets (done, total) in this thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            items = list(items)
            futures = [concurrent.futures.Future() for _ in items]
            for item, future in zip(items, futures, strict=True):
                self._tasks.put((item, future))
        if progress is not None:
            for done, _ in enumerate(concurrent.futures.as_completed(futures), 1):
                progress(done, len(futures))
        return [future.result() for future in futures]

    def close(self) -> None:
        """Ends the workers at once. Items still waiting end as crashed."""
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # One thread per worker: it hands out items and watches the clock.

    def _run(self) -> None:
        worker = None
        try:
            with contextlib.suppress(_Died, OSError, RuntimeError):  # the first item will tell
                worker = self._start()
            while (task := self._tasks.get()) is not None:
                item, future = task
                result = None
                for _ in range(2):  # an item whose worker died is tried once more
                    if self._closed:
                        break
                    if worker is not None and not worker.alive():  # died idle: costs no try
                        worker = self._end(worker)
                    try:
                        worker = worker or self._start()
                        result = worker.call(item, self._timeout)
                    except _Died:
                        pass
                    except Exception as error:  # an item that cannot be pickled
                        result = Result(error=f"error: {type(error).__name__}: {error}")
                    if result is None or result.error == "timeout":
                        worker = self._end(worker)
                    if result is not None:
                        break
                future.set_result(result or Result(error="crash"))
        finally:
            self._end(worker)

    def _start(self) -> _Worker:
        worker = _Worker()
        with self._lock:
            if self._closed:
                worker.kill()
                worker.reap()
                raise _Died
            self._workers.add(worker)
        try:
            worker.setup(self._setup)
        except _Died:
            self._end(worker)
            raise
        return worker

    def _end(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.kill()
            worker.reap()
            with self._lock:
                self._workers.discard(worker)


class _Died(Exception):
    """The worker's end of the pipe is closed."""


class _Worker:
    """The parent's side of one process."""

    def __init__(self):
        theirs, mine = os.pipe(), os.pipe()
        life_read, self._life = os.pipe()  # never written: it closes when the parent ends, however it ends
        code = _MAIN.format(path=list(sys.path), conn=(theirs[0], mine[1]), life=life_read)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=(theirs[0], mine[1], life_read),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        finally:
            for fd in (theirs[0], mine[1], life_read):
                os.close(fd)
        self._out = Connection(theirs[1], readable=False)
        self._in = Connection(mine[0], writable=False)

    def setup(self, setup: bytes) -> None:
        """Waits for the worker's imports."""
        try:
            self._out.send_bytes(setup)
            if not self._in.poll(START_SECONDS):
                raise _Died
            failure = self._in.recv()
        except (EOFError, OSError) as error:
            raise _Died from error
        if failure:
            raise RuntimeError(f"a worker could not start: {failure}")

    def call(self, item: Any, timeout: float) -> Result:
        """The item's result, or a timeout; the worker is of no use after that."""
        message = pickle.dumps(item)
        # A worker that does not read (stopped, say) must not block this thread in a full pipe.
        timer = threading.Timer(timeout, self.kill) if len(message) > 60_000 else None
        deadline = time.monotonic() + timeout
        try:
            if timer:
                timer.start()
            self._out.send_bytes(message)
            if not self._in.poll(max(0.0, deadline - time.monotonic())):
                return Result(error="timeout")
            return self._in.recv()
        except (EOFError, OSError) as error:
            if time.monotonic() >= deadline:
                return Result(error="timeout")
            raise _Died from error
        finally:
            if timer:
                timer.cancel()

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends the process. Safe to call twice and from any thread."""
        self.process.kill()

    def reap(self) -> None:
        """Frees what a killed process held."""
        self.process.wait()
        self._out.close()
        self._in.close()
        if self._life is not None:
            os.close(self._life)
            self._life = None


# The worker's side.


def _serve(pipes: tuple[int, int], life: int) -> None:
    """Main loop of a worker: a function first, then items until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # When the parent's end of `life` closes, the kernel sends SIGIO, which ends this process even
    # while one long call holds the interpreter.
    if hasattr(os, "O_ASYNC"):
        fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    reader, writer = Connection(pipes[0], writable=False), Connection(pipes[1], readable=False)
    try:
        function, timeout, memory_bytes = pickle.loads(reader.recv_bytes())
    except EOFError:
        return
    except BaseException as error:
        writer.send(f"{type(error).__name__}: {error}")
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is not None:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(EOFError, BrokenPipeError):
        writer.send(None)
        while True:
            item = pickle.loads(reader.recv_bytes())
            _limit_cpu(timeout)
            result = _call(function, item)
            try:
                writer.send(result)
            except (BrokenPipeError, EOFError):
                raise
            except Exception as error:  # a value that cannot be pickled
                writer.send(Result(error=f"error: {type(error).__name__}: {error}"))


def _call(function: Callable[[Any], Any], item: Any) -> Result:
    try:
        return Result(value=function(item))
    except MemoryError:
        return Result(error="memory")
    except Exception as error:
        return Result(error=f"error: {type(error).__name__}: {str(error)[:200]}")


def _limit_cpu(timeout: float) -> None:
    """A second line, in the kernel, for when the parent itself is stopped: it would not kill in time."""
    used = sum(os.times()[:2])
    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + timeout) + 10, hard))
