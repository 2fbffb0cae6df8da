"""A small stand-in for bubblewrap: `python sandbox_namespaces.py CONFIG` runs a command in new namespaces.

CONFIG is JSON: {"user_namespace": bool, "binds": [[host path, inner path, is a device], ...], "links":
[[target, inner path], ...], "hidden": [inner path, ...], "environment": {...}, "command": [...]}. The
command is process 1 of a process namespace of its own, on a read-only tree that holds the binds and an
empty /tmp only, without network, /proc and host name. Standard library only: it runs outside of the
package.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys

_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_LOCKED = 1 | 2 | 4 | 8 | 1024 | 2048 | 1 << 21  # flags a user namespace must not take off again
_DETACH, _PDEATHSIG, _KILL = 2, 1, 9
_ROOT = "/tmp"  # only a mount point, covered in this process's own mount namespace

_libc = ctypes.CDLL(None, use_errno=True)


def enter(config: dict) -> None:
    """Moves this process into new namespaces and the tree of `config`; children get the new process ids.

    Raises:
      OSError: the kernel or a container around us forbids a step; the message names it.
    """
    uid, gid = os.getuid(), os.getgid()
    if config["user_namespace"]:
        _call("new user namespace", _libc.unshare(_NEWUSER))
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _call("new namespaces", _libc.unshare(_NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | _NEWCGROUP))
    _libc.sethostname(b"sandbox", 7)
    _mount(None, "/", None, _REC | _PRIVATE)
    sources = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source, _, _ in config["binds"]]
    _mount("tmpfs", _ROOT, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=256,mode=755")
    for source, (_, inner, device) in zip(sources, config["binds"], strict=True):
        _bind(source, _ROOT + inner, device)
    for target, inner in config["links"]:
        os.symlink(target, _ROOT + inner)
    for inner in config["hidden"]:
        _mount("tmpfs", _ROOT + inner, "tmpfs", _RDONLY | _NOSUID | _NODEV, "size=4k,nr_inodes=2,mode=755")
    os.makedirs(_ROOT + "/tmp", exist_ok=True)
    _mount("tmpfs", _ROOT + "/tmp", "tmpfs", _NOSUID | _NODEV, "size=4k,mode=1777")
    _mount(None, _ROOT, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir(_ROOT)
    # The old root lands over the new one and is then taken away, with all that is mounted below it.
    _call("pivot_root", _libc.syscall(_pivot_root_number(), b".", b"."))
    _call("umount of the old root", _libc.umount2(b".", _DETACH))
    os.chdir("/tmp")


def main() -> None:
    config = json.loads(sys.argv[1])
    enter(config)
    first = os.fork()
    if first == 0:
        _libc.prctl(_PDEATHSIG, _KILL)
        command = config["command"]
        os.execve(command[0], command, config["environment"])
    for fd in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else range(64):
        with contextlib.suppress(OSError):  # the command's pipes must end when the command does
            os.close(int(fd))
    os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)


def _bind(source: int, target: str, device: bool) -> None:
    path = f"/proc/self/fd/{source}"  # /proc is still the host's here
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, None, _BIND | _REC)
    os.close(source)
    if device:
        return
    with open("/proc/self/mounts") as file:
        mounted = [line.split()[1] for line in file]
    for place in [target, *(place for place in mounted if place.startswith(target + "/"))]:
        kept = os.statvfs(place).f_flag & _LOCKED
        _mount(None, place, None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | kept)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    raw = [None if text is None else text.encode() for text in (source, target, kind)]
    _call(f"mount {target}", _libc.mount(*raw, ctypes.c_ulong(flags), data.encode() or None))


def _call(what: str, result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _pivot_root_number() -> int:
    return {"x86_64": 155, "aarch64": 41}[os.uname().machine]


if __name__ == "__main__":
    main()
