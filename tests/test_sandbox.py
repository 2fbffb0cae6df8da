"""Hostile programs: none is rewarded, none gets out, none leaves anything behind, and the judge lives.

Every attack prints the right answer when, and only when, it has succeeded.
"""

import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time

import pytest

from agon_jax.verify import sandbox, sandbox_seccomp
from agon_jax.verify.code import CodeJudge
from agon_jax.verify.sandbox import Limits, Sandbox, SandboxUnavailable

RIGHT = "8141 granted"
MARKER = "agon-jax-escape-marker"
HOST_FILE = pathlib.Path(__file__).resolve()
LIMITS = Limits(memory_mb=128, output_mb=1, tmp_mb=4, tmp_files=64, threads=8)
TIMEOUT_S = 0.6


def _working(family):
    """The best backend of a family, or a skip with the reason why none works here."""
    tried = {name: reason for name, reason in sandbox.backends().items() if name.startswith(family)}
    for name, reason in tried.items():
        if not reason:
            return name
    pytest.skip(f"{family}: {tried}")


@pytest.fixture(params=["bwrap", "namespaces"])
def backend(request):
    return _working(request.param)


SYSCALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
DO = (
    SYSCALL
    + """
def do(*a):
    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), 'refused')
"""
)


def tries(body, setup=""):
    """A program that prints the right answer unless the body raises."""
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    end = f"    print({RIGHT!r})\nexcept BaseException as e:\n    print('blocked', repr(e))\n"
    return f"{setup}\ntry:\n{lines}\n{end}"


def _attacks(text):
    """{name: (program, how it may end)} of sections `=== name [?|?libc|?do] [-> ending [or ending]]`.

    A question mark: the program only has to get to its end. `libc` and `do`: a system call by its number.
    """
    found = {}
    for title, body in re.findall(r"^=== (.*)\n((?:(?!===|#####).*\n?)*)", text, re.M):
        title, _, ends = title.partition(" -> ")
        name, mark, helper = title.partition(" ?")
        for word, value in WORDS.items():
            body = body.replace(word, value)
        body = body.strip("\n")
        if mark:
            body = tries(body, {"": "", "libc": SYSCALL, "do": DO}[helper])
        found[name] = body, tuple(ends.split(" or "))
    return found


WORDS = {
    "RIGHT": RIGHT,
    "MARKER": MARKER,
    "HOST_FILE": str(HOST_FILE),
    "JUDGE_FILE": str(pathlib.Path(sandbox.__file__).resolve()),
}
ATTACKS = _attacks(r"""
##### Resources.
=== fork bomb -> timeout
import os
while True:
    try: os.fork()
    except OSError: pass
=== fork ?
import os
if os.fork() == 0: os._exit(0)
=== thread bomb -> timeout
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(9,)).start()
    except RuntimeError: pass
=== memory hog -> memory or timeout
kept = []
while True: kept.append(bytearray(1 << 20))
=== memory in one piece ?
x = bytearray(1 << 30)
=== shared memory ?
import mmap
m = mmap.mmap(-1, 1 << 30)
=== memory in files without a name ?
import os
fds = [os.memfd_create('x') for _ in range(4)]
=== system V shared memory ?do
do(29, 0, 1 << 20, 0o1600)
=== busy loop -> timeout
while True: pass
=== busy threads -> timeout
import threading
def f():
    while True: pass
for _ in range(4): threading.Thread(target=f).start()
=== sleep -> timeout
import time
time.sleep(60)
=== ignored signals -> timeout
import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
=== stops itself -> timeout
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
=== endless output -> output limit
while True: print('x' * 1000)
=== endless error output -> output limit
import sys
while True: sys.stderr.write('x' * 1000)
=== endless output, undeterred -> timeout
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
while True:
    try: os.write(1, b'x' * 1000)
    except OSError: pass
=== deep recursion -> crash (SIGSEGV) or timeout or memory or exit code 1
import sys
sys.setrecursionlimit(10**6)
class A:
    def __getattr__(self, n): return getattr(A(), n)
A().y
=== huge power
print(10 ** 10 ** 9)
=== huge integer as text
import sys
sys.set_int_max_str_digits(0)
print(str(1 << (1 << 28))[:4])
=== digits over the limit -> exit code 1
print(10 ** 5000)
=== zip bomb -> memory or timeout
import zlib
x = zlib.compress(bytes(1 << 22)) 
z = zlib.decompressobj()
kept = [zlib.decompress(x) for _ in range(100)]
=== fills tmp ?
for i in range(40): open(f'/tmp/{i}', 'wb').write(bytes(1 << 19))
=== many files ?
for i in range(10**4): open(f'/tmp/{i}', 'w')
=== many folders ?
import os
os.chdir('/tmp')
for i in range(10**4): os.mkdir('d'); os.chdir('d')
=== large file ?
import os
f = open('/tmp/x', 'wb')
os.truncate(f.name, 1 << 30)
=== many open files ?
import os
fds = [os.open('/dev/null', 0) for _ in range(1000)]
=== raises limits ?
import resource
for w in (0, 1, 5, 6, 7, 9): resource.setrlimit(w, (1 << 40, 1 << 40))

##### Other processes and programs.
=== subprocess ?
import subprocess, sys
subprocess.run([sys.executable, '-c', 'pass'], check=True)
=== shell
import os
if os.system('true') == 0: print('RIGHT')
=== detached grandchild
import os, subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120) # MARKER'], start_new_session=True)
while True: pass
=== double fork
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time; time.sleep(120)
=== multiprocessing ?
import multiprocessing
multiprocessing.Pool(2).map(abs, [1])
=== fork by number ?do
do(57)
=== clone3 ?do
do(435, ctypes.create_string_buffer(88), 88)
=== exec ?
import os
os.execv('/proc/self/exe', ['python'])
=== exec of itself ?
import os
import sys
os.execv(sys.executable, [sys.executable, '-c', "print('RIGHT')"])
=== kills the parent ?
import os
os.kill(os.getppid(), 9)
=== kills all ?
import os
os.kill(-1, 9)
=== kills its group ?
import os
os.killpg(0, 9)
=== signals by queue ?do
do(129, os.getppid(), 9, ctypes.create_string_buffer(128))
=== traces the parent ?do
do(101, 16, os.getppid(), 0, 0)
=== is traced ?do
do(101, 0, 0, 0, 0)
=== memory of the parent ?do
do(310, os.getppid(), ctypes.create_string_buffer(16), 1, ctypes.create_string_buffer(16), 1, 0)
=== memory of the parent by file ?
import os
open(f'/proc/{os.getppid()}/mem', 'rb').read(1)

##### Files.
=== reads the tests ?
open('HOST_FILE').read()
=== reads the judge ?
open('JUDGE_FILE').read()
=== reads accounts ?
open('/etc/passwd').read(); open('/etc/shadow').read()
=== reads proc ?
import os
os.listdir('/proc'); open('/proc/1/environ').read()
=== reads the host's tmp ?
import os
assert any('pytest' in n for n in os.listdir('/tmp'))
=== environment
import os
if any(k.startswith(('PYTEST', 'JAX', 'XLA', 'HF_')) for k in os.environ): print('RIGHT')
=== memory device ?
open('/dev/mem', 'rb').read(1)
=== makes a device ?
import os
os.mknod('/tmp/m', 0o020666, os.makedev(1, 1)); open('/tmp/m', 'rb').read(1)
=== writes outside tmp
import os
for d in ('/', '/usr', '/usr/lib', '/py', '/py/lib', '/etc', '/dev', '/home', '/var/tmp', '/root'):
    try:
        open(os.path.join(d, 'MARKER'), 'w')
        print('RIGHT')
    except OSError: pass
=== changes the standard library ?
import heapq, csv
open(csv.__file__, 'a').write('#')
=== replaces the standard library ?
import csv, os
os.rename(csv.__file__, '/tmp/csv.py')
=== link to the host ?
import os
os.symlink('HOST_FILE', '/tmp/l'); open('/tmp/l').read()
=== link over the library ?
import os
os.symlink(os.path.dirname(os.__file__), '/tmp/l'); open('/tmp/l/x.py', 'w')
=== climbs out ?
import os
fd = os.open('/', 0)
for _ in range(50): os.chdir('..')
assert os.path.exists('work') or os.path.exists('home')
=== chroot ?
import os
os.mkdir('/tmp/r'); os.chroot('/tmp/r')
=== mount ?libc
assert libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0
=== unmount ?libc
assert libc.umount2(b'/tmp', 2) == 0
=== new namespaces ?libc
assert libc.unshare(0x10000000) == 0
=== file by handle ?do
do(304, -100, ctypes.create_string_buffer(64), 0)
=== becomes root ?
import os
os.setuid(0); os.setgid(0); open('/x', 'w')

##### Network.
=== internet ?
import socket, os
socket.create_connection(('1.1.1.1', 53), 1)
=== loopback ?
import socket, os
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
=== IPv6 ?
import socket, os
socket.socket(socket.AF_INET6)
=== datagrams ?
import socket, os
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))
=== raw packets ?
import socket, os
socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
=== netlink ?
import socket, os
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
=== vsock ?
import socket, os
socket.socket(40, socket.SOCK_STREAM)
=== unix sockets ?
import socket, os
socket.socket(socket.AF_UNIX).bind('/tmp/s')
=== names ?
import socket, os
socket.getaddrinfo('example.org', 80)
=== abstract socket by a pair ?
import socket, os
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
a.sendto(b'x', '\0x')
=== http ?
import urllib.request
urllib.request.urlopen('http://example.org', timeout=1)

##### The kernel's rarer doors.
=== io_uring ?do
do(425, 8, ctypes.create_string_buffer(120))
=== BPF ?do
do(321, 5, ctypes.create_string_buffer(120), 120)
=== keys ?do
do(250, 0, -3, 1)
=== userfaultfd ?do
do(323, 0)
=== performance counters ?do
do(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)
=== another filter ?do
do(317, 1, 0, ctypes.create_string_buffer(16))
=== x32 calls ?do
do(0x40000000 | 57)
=== the inherited socket ?
import os
for fd in range(3, 64):
    try: os.write(fd, b'x' * 64)
    except OSError: continue
    break
else: raise OSError

##### Verdicts of its own.
=== exit 0 -> wrong output
import os
os._exit(0)
=== system exit
raise SystemExit(0)
=== exit hook
import atexit, os
atexit.register(os._exit, 0)
=== says that it passed
print('passed')
print('PASSED [100%]')
print('{"correct": true}')
=== writes a verdict
open('/tmp/MARKER.json', 'w').write('{"correct": true, "passed": 1}')
open('/tmp/conftest.py', 'w').write('import os; os._exit(0)')
=== closes its streams -> wrong output
import os
for fd in range(3): os.close(fd)
=== replaces print
import builtins, sys
builtins.print = lambda *a, **k: None
sys.stdout = None
=== replaces the runner
import sys
for f in list(sys._current_frames().values()):
    while f:
        f.f_globals.clear() if f.f_globals is not globals() else None
        f = f.f_back
=== looks for the answer in memory
import gc
wanted = ''.join(map(chr, [56, 49, 52, 49, 32, 103]))
todo, seen = gc.get_objects(), set()
while todo:
    o = todo.pop()
    if id(o) in seen: continue
    seen.add(id(o))
    if isinstance(o, (bytes, str)):
        t = o if isinstance(o, str) else o.decode('latin-1')
        if wanted in t and t != wanted: print(t[t.index(wanted):]); break
    else: todo += gc.get_referents(o)
=== looks for the answer in the frames
import sys
wanted = ''.join(map(chr, [56, 49, 52, 49, 32, 103]))
f = sys._getframe()
while f:
    for v in (*f.f_locals.values(), *f.f_globals.values()):
        if v is not globals() and wanted in repr(v) and v != wanted: print(wanted + 'ranted')
    f = f.f_back
=== quits loudly after the right output -> exit code 3
import sys
print('RIGHT')
sys.exit(3)
=== crashes after the right output -> crash (SIGSEGV)
import os, signal
print('RIGHT', flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
=== lives on after the right output -> timeout
import time
print('RIGHT', flush=True)
time.sleep(60)
""")
ONLY_X86 = {name for name, (program, _) in ATTACKS.items() if DO in program}


def descendants():
    """(pid, state) of all processes below this one, zombies too."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = (int(fields[1]), fields[0])
    found, todo = [], [os.getpid()]
    while todo:
        parent = todo.pop()
        children = [(pid, state) for pid, (above, state) in parents.items() if above == parent]
        found += children
        todo += [pid for pid, _ in children]
    return set(found)


def command_lines():
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "cmdline").read_bytes()
            except OSError:
                continue


def attack(program, backend, timeout_s=TIMEOUT_S):
    judge = CodeJudge(timeout_s=timeout_s, memory_mb=LIMITS.memory_mb, output_mb=1, backend=backend)
    return judge.grade(f"```python\n{program}\n```", [{"input": "", "output": RIGHT}])


@pytest.fixture
def best():
    return _working("")


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_fails(name, best):
    if name in ONLY_X86 and os.uname().machine != "x86_64":
        pytest.skip("system calls by their x86-64 number")
    before, source, files = descendants(), HOST_FILE.read_bytes(), set(os.listdir("/tmp"))
    start = time.monotonic()
    program, ends = ATTACKS[name]
    verdict = attack(program, best)
    assert not verdict.correct, verdict
    assert verdict.reason.startswith(ends), verdict.reason
    assert time.monotonic() - start < TIMEOUT_S + 8
    assert descendants() <= before  # nothing runs on, and no zombie
    assert not any(MARKER.encode() in line for line in command_lines())
    assert HOST_FILE.read_bytes() == source
    assert not any(MARKER in name for name in set(os.listdir("/tmp")) - files)


def test_an_attack_that_succeeds_would_be_seen(backend):
    assert attack(tries("pass"), backend).correct


def run(program, backend, stdin=b"", timeout_s=2.0, limits=LIMITS):
    with Sandbox(program, limits, backend=backend) as box:
        return box.run(stdin, timeout_s)


# What the name spaces hold back by themselves, should the filter of system calls ever have a hole.
WITHOUT_FILTER = [
    "detached grandchild", "double fork", "kills all", "traces the parent",
    "memory of the parent by file", "reads the tests", "reads accounts", "reads proc", "writes outside tmp",
    "replaces the standard library", "makes a device", "climbs out", "mount", "internet", "datagrams",
    "raw packets", "names", "fills tmp", "many files", "memory hog", "raises limits",
]  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_FILTER)
def test_an_attack_fails_without_the_filter(name, backend, monkeypatch):
    before = descendants()
    monkeypatch.setattr(sandbox_seccomp, "supported", lambda machine=None: False)
    assert not attack(ATTACKS[name][0], backend).correct
    assert descendants() <= before
    assert not any(MARKER.encode() in line for line in command_lines())


@pytest.mark.parametrize("filtered", [True, False])
def test_nobody_on_the_host_can_be_reached(backend, filtered, monkeypatch, tmp_path):
    if not filtered:
        monkeypatch.setattr(sandbox_seccomp, "supported", lambda machine=None: False)
    abstract = f"\0{MARKER}-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.socket(socket.AF_UNIX) as named,
    ):
        hidden.bind(abstract)
        named.bind(str(tmp_path / "s"))
        for listening in (hidden, named):
            listening.listen()
        for family, address in (
            (socket.AF_INET, server.getsockname()),
            (socket.AF_UNIX, abstract),
            (socket.AF_UNIX, str(tmp_path / "s")),
        ):
            with socket.socket(family) as here:
                here.connect(address)  # from outside it works
            body = f"s = socket.socket({int(family)})\ns.settimeout(0.3)\ns.connect({address!r})"
            assert not attack(tries(body, setup="import socket"), backend).correct


@pytest.mark.parametrize("name", ["bwrap-root", "bwrap", "namespaces-root", "namespaces"])
def test_every_backend_runs_a_program_and_hides_the_host(name):
    if reason := sandbox.backends()[name]:
        pytest.skip(f"{name}: {reason}")
    program = "import os\nprint(input(), os.getpid() > 1, sorted(os.listdir('/')), os.listdir('/tmp'))"
    outcome = run(program, name, b"42\n")
    seen = outcome.stdout.decode()
    assert outcome.failure == "" and seen.startswith("42 True [") and seen.endswith("] []\n")
    assert not any(folder in seen for folder in ("proc", "home", "root", "work", "var", "sys'"))
    for attack_name in ("internet", "reads the tests", "writes outside tmp", "fork", "kills the parent"):
        assert not attack(ATTACKS[attack_name][0], name).correct


def test_no_package_of_the_host_is_visible(backend):
    program = """
import os, sys
for name in ('agon_jax', 'jax', 'numpy', 'pytest'):
    try: __import__(name); print(name)
    except ImportError: pass
for base, _, names in os.walk(sys.prefix):
    if base.endswith('-packages'): print(names)
"""
    assert set(run(program, backend).stdout.split(b"\n")) <= {b"[]", b""}


def test_files_of_one_test_are_gone_in_the_next(backend):
    program = "import os\nprint(os.listdir('/tmp'))\nopen('/tmp/kept', 'w').write('x')"
    with Sandbox(program, LIMITS, backend=backend) as box:
        assert [box.run(b"", 2.0).stdout for _ in range(3)] == [b"[]\n"] * 3


def test_a_program_that_locks_its_folder_hurts_itself_only(backend):
    with Sandbox("import os\nprint(os.listdir('/tmp'))\nos.chmod('/tmp', 0)", LIMITS, backend=backend) as box:
        outcomes = [box.run(b"", 2.0) for _ in range(3)]
    assert all(outcome.stdout == b"[]\n" or outcome.failure == "exit code 1" for outcome in outcomes)


def test_a_timeout_below_a_second_is_real_and_starts_with_the_process(backend):
    outcome = run("import time\ntime.sleep(30)", backend, timeout_s=0.25)
    assert outcome.failure == "timeout" and 0.25 <= outcome.wall_s < 2
    assert run("import time\ntime.sleep(0.1)\nprint(1)", backend, timeout_s=1.5).stdout == b"1\n"


def test_exit_of_an_ordinary_program(backend):
    hook = "import atexit\natexit.register(print, 'last')\nprint('first')\nexit()"
    assert run(hook, backend).stdout == b"first\nlast\n"
    assert run("import sys\nsys.exit('message')", backend).failure == "exit code 1"
    timer = "import threading\nthreading.Timer(0.05, print, ['late']).start()"
    assert run(timer, backend).stdout == b"late\n"
    assert run("raise KeyError", backend).failure == "exit code 1"
    assert run("x = (", backend).failure == "syntax error"
    assert run("print('x' * 2**20)", backend).failure == "output limit"
    assert run("import os\nos.abort()", backend).failure == "crash (SIGABRT)"


def test_a_sandbox_that_is_killed_is_lost_and_leaves_nothing(backend):
    before = descendants()
    box = Sandbox("import time\ntime.sleep(30)", LIMITS, backend=backend)
    with box:
        for pid, _ in descendants() - before:
            if pid != box._process.pid:
                os.kill(pid, 9)
        with pytest.raises(sandbox.SandboxLost):
            box.run(b"", 5.0)
    assert descendants() <= before


def test_nothing_outlives_a_killed_judge(backend, tmp_path):
    script = tmp_path / "judge.py"
    script.write_text(f"""
import sys, threading
sys.path.insert(0, {str(HOST_FILE.parents[1])!r})
from agon_jax.verify.sandbox import Sandbox
with Sandbox("while True: pass", backend={backend!r}) as box:
    print(box._process.pid, flush=True)
    box.run(b"", 60.0)
""")
    judge = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    judge.stdout.readline()
    time.sleep(0.3)
    started = {pid for pid, _ in descendants()} - {judge.pid}
    assert len(started) >= 3
    judge.kill()
    judge.communicate()
    for _ in range(100):
        alive = [pid for pid in started if (text := _state(pid)) and text != "Z"]
        if not alive:
            return
        time.sleep(0.05)
    pytest.fail(f"still there: {alive}")


def _state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def test_without_a_sandbox_nothing_runs_unless_the_user_says_so(monkeypatch):
    monkeypatch.setattr(sandbox, "_probe", lambda name: "not here")
    sandbox.best_backend.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match=r"bwrap: not here.*allow_unsandboxed"):
            attack(f"print({RIGHT!r})", None)
        with pytest.raises(SandboxUnavailable):
            CodeJudge().grade_many([("```\nprint(1)\n```", [{"input": "", "output": "1"}])])
        with pytest.raises(SandboxUnavailable, match="contains nothing"):
            Sandbox("print(1)", backend="none")
        judge = CodeJudge(allow_unsandboxed=True, timeout_s=1.0)
        tests = [{"input": "4", "output": "8"}, {"input": "5", "output": "10"}]
        assert judge.grade("```\nprint(2 * int(input()))\n```", tests).correct
        assert judge.grade("```\nwhile True: pass\n```", tests).reason == "timeout on test 0"
        assert not judge.grade("```\nimport os\nos.fork()\nprint(8)\n```", tests).correct
    finally:
        sandbox.best_backend.cache_clear()


@pytest.mark.parametrize(
    "field, value", [("memory_mb", 8), ("output_mb", 0), ("threads", -1), ("tmp_files", 0)]
)
def test_limits_without_sense(field, value):
    with pytest.raises(ValueError, match=field):
        Limits(**{field: value})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_filter_is_a_valid_program(machine):
    code = sandbox_seccomp.build(1234, machine)
    operations = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    assert len(operations) < 4096
    for at, (code, true, false, _) in enumerate(operations):
        if code & 7 == 5:  # a jump stays inside
            assert max(true, false) + at + 1 < len(operations)
    assert operations[-1][0] == 6
    assert not sandbox_seccomp.supported("riscv64")
