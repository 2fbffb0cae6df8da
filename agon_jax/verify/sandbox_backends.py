"""The ways to contain a process on this machine, and the command that starts each."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil

from agon_jax.verify.sandbox_view import host_python, view

# Best first. As root, programs become a user without rights; else, they stay in a user namespace.
AS_ROOT = ("bwrap-root", "namespaces-root")
BACKENDS = ("bwrap-root", "bwrap", "namespaces-root", "namespaces")
_FIRST_UID = 0x30000000  # plus a process id: users that own nothing and share no process limit

# Reads the code to run from the inherited socket: nothing of the package need be visible inside.
_BOOT = """
import marshal, os, sys, types
def read(size):
    parts = b""
    while len(parts) < size:
        part = os.read(fd, size - len(parts))
        if not part: os._exit(0)
        parts += part
    return parts
fd = int(sys.argv[1])
bundle = marshal.loads(read(int.from_bytes(read(8), "little")))
for name, code in bundle["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(code, module.__dict__)
job = module.main(fd, bundle["config"])
del bundle, code, module, name, read, sys.modules["sandbox_child"]
job()
"""
_FLAGS = ("-P", "-s", "-S", "-B", "-X", "utf8")


def command(backend: str, control: int) -> list[str]:
    """What to start for a sandbox that reads what to run from the inherited descriptor `control`."""
    shown = view()
    python = shown.python if backend != "none" else host_python()
    inner = [python, *_FLAGS, "-c", _BOOT, str(control)]
    if backend == "none":
        return inner
    if backend.startswith("namespaces"):
        config = {
            "user_namespace": backend not in AS_ROOT,
            "binds": [[*pair, False] for pair in shown.binds]
            + [[path, path, True] for path in shown.devices],
            "links": shown.links,
            "hidden": shown.hidden,
            "environment": shown.environment,
            "command": inner,
        }
        launcher = str(pathlib.Path(__file__).with_name("sandbox_namespaces.py"))
        return [host_python(), *_FLAGS, launcher, json.dumps(config)]
    users = ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    capabilities = ["CAP_SYS_ADMIN"]  # for the limits of /tmp; process 1 gives all of them up at once
    if backend in AS_ROOT:
        users, capabilities = [], ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"]
    # Made on the way they would be private to the user that the program stops being.
    paths = [inner for _, inner in (*shown.binds, *shown.links)] + list(shown.devices)
    folders = sorted({str(folder) for path in paths for folder in pathlib.Path(path).parents} - {"/"})
    return [
        shutil.which("bwrap") or "bwrap", *users,
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox",
        *(part for name in capabilities for part in ("--cap-add", name)),
        *(part for folder in folders for part in ("--perms", "0755", "--dir", folder)),
        *(part for pair in shown.binds for part in ("--ro-bind", *pair)),
        *(part for pair in shown.links for part in ("--symlink", *pair)),
        *(part for path in shown.devices for part in ("--dev-bind", path, path)),
        *(part for path in shown.hidden for part in ("--perms", "0755", "--tmpfs", path)),
        *(part for path in shown.hidden for part in ("--remount-ro", path)),
        "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/", *inner,
    ]  # fmt: skip


def environment(backend: str) -> dict[str, str]:
    """All environment variables of that command."""
    if backend.startswith("bwrap"):
        return view().environment
    # For the host's Python, which may need it to start; the program itself gets the view's in namespaces.
    libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return libraries | {"PYTHONHASHSEED": "0"}


@functools.cache
def modules() -> list[tuple[str, object]]:
    """(name, code) of what runs inside, the last one being the main one."""
    here = pathlib.Path(__file__).parent
    names = ("code_values", "sandbox_seccomp", "sandbox_child")
    return [(name, compile((here / f"{name}.py").read_text(), f"{name}.py", "exec")) for name in names]


def lone_uid(pid: int) -> int | None:
    """A user id for the sandbox of process `pid` that no other has; None where too few are mapped."""
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= _FIRST_UID + pid < first + count:
                return _FIRST_UID + pid
            if count >= 60_000:
                return first + 20_000 + pid % 30_000
    return None


@functools.cache
def threads_are_counted_apart(backend: str) -> bool:
    """Whether a limit on processes counts this sandbox alone, not all that the user runs."""
    if backend in AS_ROOT:
        return True
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    new = bool(release) and (int(release[1]), int(release[2])) >= (5, 14)
    return backend != "none" and os.geteuid() != 0 and new
