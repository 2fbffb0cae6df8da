"""What a judged program may see of the host's files: one Python, its libraries, and nothing else."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_HOME = "/py"  # where a Python that is not the system's own appears: its host path stays private


@dataclasses.dataclass(frozen=True)
class View:
    """Paths of the sandbox.

    Attributes:
      python: the interpreter, as seen inside.
      binds: (host path, inner path), read-only.
      links: (target, inner path) of symbolic links.
      devices: device files, the same path on both sides.
      hidden: inner directories covered by an empty one (installed packages may hold data sets).
      environment: all of the environment variables.
    """

    python: str
    binds: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    hidden: tuple[str, ...]
    environment: dict[str, str]


@functools.cache
def view() -> View:
    """The view for the Python that runs us, outside of any virtual environment."""
    executable = host_python()
    prefix = os.path.realpath(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # /lib is a link into /usr on most systems; bound twice, what is hidden in one place shows in the other.
    links = [(os.readlink(path), path) for path in _LIBRARIES if os.path.islink(path)]
    binds = [(path, path) for path in _LIBRARIES if os.path.exists(path) and not os.path.islink(path)]
    environment = {
        "HOME": "/tmp", "TMPDIR": "/tmp", "PATH": "/nowhere", "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # a verdict must not depend on the order of a set
        "MALLOC_ARENA_MAX": "1",  # an arena for each thread would use up the address space
    }  # fmt: skip
    if prefix == "/usr":
        python, inner = executable, "/usr"
        binds.append((executable, executable))
    else:
        python, inner = f"{_HOME}/bin/{version}", _HOME
        binds.append((executable, python))
        binds += [
            (f"{prefix}/{lib}", f"{_HOME}/{lib}")
            for lib in dict.fromkeys(("lib", sys.platlibdir))
            if os.path.isdir(f"{prefix}/{lib}")
        ]
        environment |= {"PYTHONHOME": _HOME, "LD_LIBRARY_PATH": f"{_HOME}/lib"}
    hidden = []
    for source, target in ((prefix, inner), ("/usr", "/usr")):
        for lib in dict.fromkeys(("lib", "lib64", sys.platlibdir)):
            for packages in (f"{version}/site-packages", f"{version}/dist-packages", "python3/dist-packages"):
                if os.path.isdir(f"{source}/{lib}/{packages}"):
                    hidden.append(f"{target}/{lib}/{packages}")
    devices = tuple(path for path in _DEVICES if os.path.exists(path))
    return View(python, tuple(binds), tuple(links), devices, tuple(dict.fromkeys(hidden)), environment)


def host_python() -> str:
    """The real interpreter below a virtual environment, as a host path."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
