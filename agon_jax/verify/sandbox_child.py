"""Process 1 of the sandbox: forks one confined process for each test of one program and reports on it.

It takes requests over a socket that the judged program never has, and it never sees an expected output:
whatever a program does to this interpreter, the judge outside compares. Standard library only; it is
sent into the sandbox together with `sandbox_seccomp` and `code_values`.
"""

from __future__ import annotations

import atexit

# Here once instead of in every test: what most programs import.
import bisect  # noqa: F401
import ctypes
import gc
import json
import math
import os
import resource
import select
import signal
import site
import struct
import sys
import time
import types

import code_values
import sandbox_seccomp

HEADER = struct.Struct("<cQ")  # kind and length of a message
MIB = 1 << 20
NOT_PYTHON = 113  # exit code; a program that ends with it itself gets another reason, no other verdict
_PARSE_S = 2.0
_STACK = 96 << 20  # bytes, of the first thread; recursion through C (a cached function) needs a lot
_STDIO = 3  # the first descriptor a program does not get


def main(control: int, config: dict):
    """Confines this process and serves requests. Returns, in a forked process only, what that runs."""
    # Low numbers: a program's own process closes all up to a small one.
    inherited = control, config["calls"]
    control, calls = map(os.dup, inherited)
    for fd in inherited:  # a copy kept here would hide the end of the program from the judge
        os.close(fd)
    os.closerange(max(control, calls) + 1, 1 << 16)
    _confine(config)
    gc.freeze()
    _send(control, b"R", b"")
    program = None
    while True:
        kind, payload = _receive(control)
        if kind == b"C":
            program = payload
        elif kind == b"T":
            timeout_s = struct.unpack_from("<d", payload)[0]
            job = _test(control, config, program, payload[8:], timeout_s)
            if job:
                return job
        elif kind == b"A":
            job = _test(control, config, program, b"", struct.unpack("<d", payload)[0], calls)
            if job:
                return job
        elif kind == b"P":
            _parse(control, config, json.loads(payload))


def _confine(config: dict) -> None:
    """Takes away for good what only the setting up needed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if config["contained"]:
        flags = 32 | 2 | 4  # remount, no set-user-id, no devices
        data = f"size={config['tmp_mb']}m,nr_inodes={config['tmp_files']}".encode()
        if libc.mount(None, b"/tmp", None, ctypes.c_ulong(flags), data):
            raise OSError(ctypes.get_errno(), "remount of /tmp: " + os.strerror(ctypes.get_errno()))
        os.chmod("/tmp", 0o1777)
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(config["uid"], config["uid"], config["uid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    if config["contained"]:
        header = struct.pack("<Ii", 0x20080522, 0)  # capset, version 3: none at all
        number = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
        if libc.syscall(number, header, bytes(24)):
            raise OSError(ctypes.get_errno(), "capset: " + os.strerror(ctypes.get_errno()))
        libc.prctl(1, signal.SIGKILL)  # changing the user has cleared it
    libc.prctl(4, 0)  # not dumpable: no process of the same user may read or trace this one
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges


def _test(control, config, program, stdin, timeout_s, calls=None):
    """Runs the program on one input and reports; in the forked process, returns what it has to do."""
    limit = config["output_mb"] * MIB
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    _write(files[0], stdin)
    os.lseek(files[0], 0, os.SEEK_SET)
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _restrict(config, timeout_s, files, calls)
        return lambda: _run(program, _STDIO if calls is not None else None)
    if calls is not None:
        os.close(calls)  # so that the judge sees the end of the program as the end of its answers
    timed_out = not _ended(pid, control, started + timeout_s)
    if timed_out:
        os.kill(pid, signal.SIGKILL)
    status, usage = os.wait4(pid, 0)[1:]
    sizes = [os.fstat(fd).st_size for fd in files[1:]]
    errors = os.pread(files[2], 4096, max(0, sizes[1] - 4096))
    report = {
        "status": status,
        "timed_out": timed_out,
        "wall_s": time.monotonic() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss / 1024,
        "cut": max(sizes) >= limit,
        "no_memory": any(line.startswith(b"MemoryError") for line in errors.splitlines()[-3:]),
        "left_files": config["contained"] and not _is_empty("/tmp"),
    }
    _send(control, b"D", json.dumps(report).encode())
    # A program that failed has no output to judge.
    good = status == 0 and not timed_out and not report["cut"] and calls is None
    _send(control, b"O", os.pread(files[1], limit, 0) if good else b"")
    for fd in files:
        os.close(fd)
    return None


def _is_empty(folder: str) -> bool:
    try:
        return not os.listdir(folder)
    except OSError:  # the program has locked it
        return False


def _parse(control, config, texts) -> None:
    """Reports the index of the first text that is Python, -1 if none is.

    Here and not in the judge: some texts take the parser minutes, or its stack.
    """
    read, write = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _restrict(config, _PARSE_S, [write], None)
        for i, text in enumerate(texts):
            try:
                compile(text, "<program>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError):
                continue
            os.write(0, b"%d" % i)
            break
        os._exit(0)
    os.close(write)
    if not _ended(pid, control, started + _PARSE_S):
        os.kill(pid, signal.SIGKILL)
    os.wait4(pid, 0)
    answer = os.read(read, 16)
    os.close(read)
    _send(control, b"I", answer or b"-1")


def _ended(pid: int, control: int, deadline: float) -> bool:
    """Waits for the process, True when it ended in time. Ends all when the judge is gone."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    try:
        watched = os.pidfd_open(pid)
    except OSError:  # an old kernel
        watched = None
    if watched is not None:
        poll.register(watched, select.POLLIN)
    try:
        while True:
            left = deadline - time.monotonic()
            step = max(0.0, left) if watched is not None else min(max(0.0, left), 0.002)
            ready = [fd for fd, _ in poll.poll(math.ceil(step * 1000))]
            if control in ready:
                os.kill(pid, signal.SIGKILL)
                os.wait4(pid, 0)
                os._exit(0)
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            if os.waitid(os.P_PID, pid, flags) is not None:
                return True
            if left <= 0:
                return False
    finally:
        if watched is not None:
            os.close(watched)


def _restrict(config: dict, timeout_s: float, files: list[int], calls: int | None) -> None:
    """In the forked process: its files, its limits, its system calls."""
    for target, fd in enumerate(files):
        os.dup2(fd, target)
    if calls is not None:
        os.dup2(calls, _STDIO)
    os.closerange(_STDIO + (calls is not None), 4096)
    seconds = math.ceil(timeout_s) + 1
    memory, output = config["memory_mb"] * MIB, config["output_mb"] * MIB
    limits = {
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_FSIZE: (output, output),
        resource.RLIMIT_NOFILE: (64, 64),
        # Programs ask for a larger one, and the address space bounds it anyway.
        resource.RLIMIT_STACK: (_STACK, resource.RLIM_INFINITY),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_SIGPENDING: (256, 256),
    }
    if config["threads"]:
        # This process and process 1 count, too.
        limits[resource.RLIMIT_NPROC] = (config["threads"] + 2, config["threads"] + 2)
    for which, wanted in limits.items():
        most = resource.getrlimit(which)[1]
        soft, hard = (_lower(value, most) for value in wanted)
        resource.setrlimit(which, (soft, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; here it ends a program
    if config["seccomp"]:
        sandbox_seccomp.install(sandbox_seccomp.build(os.getpid()))


def _lower(value: int, most: int) -> int:
    """The smaller of two limits; no limit is a negative number."""
    return max(value, most) if min(value, most) < 0 else min(value, most)


def _run(source: bytes, calls: int | None) -> None:
    """Runs the program and ends the process as Python would: threads, exit hooks, streams, exit code.

    Only the program's own names are taken apart (a file among them is written out), not all modules,
    which would cost more than most programs do.
    """
    module = types.ModuleType("__main__" if calls is None else "solution")
    sys.modules[module.__name__] = module
    sys.argv = ["program.py"]
    site.setquit()  # exit() and quit()
    code = 0
    try:
        _execute(source, module.__dict__, calls)
    except SystemExit as error:
        code = _exit_code(error.code)
    except BaseException:
        code = 1
        sys.excepthook(*sys.exc_info())
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        _flush(sys.stdout, sys.stderr, sys.__stdout__)
        module.__dict__.clear()
        _flush(sys.__stdout__)
    except BaseException:
        code = code or 120  # as Python does when the output cannot be written
    os._exit(code)


def _execute(source: bytes, scope: dict, calls: int | None) -> None:
    try:
        code = compile(source, "program.py", "exec", dont_inherit=True)
    except Exception:
        os._exit(NOT_PYTHON)
    exec(code, scope)
    if calls is not None:
        code_values.answer(calls, scope)


def _flush(*streams) -> None:
    for stream in streams:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def _exit_code(said: object) -> int:
    if said is None:
        return 0
    if isinstance(said, int):
        return said & 0xFF
    print(said, file=sys.stderr)
    return 1


def _receive(fd: int) -> tuple[bytes, bytes]:
    kind, length = HEADER.unpack(_read(fd, HEADER.size))
    return kind, _read(fd, length)


def _read(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, MIB))
        if not part:  # the judge is gone, or done
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(fd: int, kind: bytes, payload: bytes) -> None:
    _write(fd, HEADER.pack(kind, len(payload)) + payload)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
