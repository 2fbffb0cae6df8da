"""The system calls a judged program may make, as a seccomp filter. Runs inside the sandbox.

A list of what is allowed, not of what is forbidden: a call the kernel learns tomorrow is refused. What
a program that reads, computes and writes never needs is missing: new processes, other programs, sockets
with an address, mounts, tracing, other processes' memory, kernel keys, BPF, io_uring, shared memory.

Standard library only: the file is sent into the sandbox, where the package is not there.
"""

from __future__ import annotations

import ctypes
import os
import struct

# Taken from the kernel's headers: name:number.
_X86_64 = """
    read:0 write:1 readv:19 writev:20 pread64:17 pwrite64:18 preadv:295 pwritev:296 open:2 openat:257
    close:3 lseek:8 dup:32 dup2:33 dup3:292 pipe:22 pipe2:293 poll:7 ppoll:271 select:23 pselect6:270
    stat:4 lstat:6 fstat:5 newfstatat:262 statx:332 statfs:137 fstatfs:138 access:21 faccessat:269
    faccessat2:439 getdents:78 getdents64:217 getcwd:79 chdir:80 fchdir:81 readlink:89 readlinkat:267
    rename:82 renameat:264 renameat2:316 mkdir:83 mkdirat:258 rmdir:84 unlink:87 unlinkat:263 symlink:88
    symlinkat:266 link:86 linkat:265 chmod:90 fchmod:91 fchmodat:268 umask:95 truncate:76 ftruncate:77
    utimensat:280 fsync:74 fdatasync:75 flock:73 sendfile:40 copy_file_range:326 fadvise64:221 mmap:9
    munmap:11 mremap:25 mprotect:10 madvise:28 msync:26 brk:12 rt_sigaction:13 rt_sigprocmask:14
    rt_sigreturn:15 rt_sigtimedwait:128 rt_sigsuspend:130 rt_sigpending:127 sigaltstack:131 pause:34
    alarm:37 setitimer:38 getitimer:36 restart_syscall:219 nanosleep:35 clock_nanosleep:230
    clock_gettime:228 clock_getres:229 gettimeofday:96 time:201 times:100 getrusage:98 getrlimit:97
    sysinfo:99 uname:63 getpid:39 gettid:186 getppid:110 getuid:102 geteuid:107 getgid:104 getegid:108
    getresuid:118 getresgid:120 getgroups:115 getpgid:121 getpgrp:111 getsid:124 getpriority:140
    futex:202 set_robust_list:273 set_tid_address:218 rseq:334 arch_prctl:158 sched_yield:24
    sched_getaffinity:204 sched_getparam:143 sched_getscheduler:145 sched_get_priority_max:146
    sched_get_priority_min:147 getcpu:309 getrandom:318 exit:60 exit_group:231 wait4:61 waitid:247
    epoll_create1:291 epoll_ctl:233 epoll_wait:232 epoll_pwait:281 eventfd2:290 recvfrom:45 shutdown:48
    getsockopt:55 getsockname:51 getpeername:52 clone:56 kill:62 tkill:200 tgkill:234 fcntl:72 ioctl:16
    socketpair:53 sendto:44 prlimit64:302
"""
_AARCH64 = """
    read:63 write:64 readv:65 writev:66 pread64:67 pwrite64:68 preadv:69 pwritev:70 openat:56 close:57
    lseek:62 dup:23 dup3:24 pipe2:59 ppoll:73 pselect6:72 fstat:80 newfstatat:79 statx:291 statfs:43
    fstatfs:44 faccessat:48 faccessat2:439 getdents64:61 getcwd:17 chdir:49 fchdir:50 readlinkat:78
    renameat:38 renameat2:276 mkdirat:34 unlinkat:35 symlinkat:36 linkat:37 fchmod:52 fchmodat:53
    umask:166 truncate:45 ftruncate:46 utimensat:88 fsync:82 fdatasync:83 flock:32 sendfile:71
    copy_file_range:285 fadvise64:223 mmap:222 munmap:215 mremap:216 mprotect:226 madvise:233 msync:227
    brk:214 rt_sigaction:134 rt_sigprocmask:135 rt_sigreturn:139 rt_sigtimedwait:137 rt_sigsuspend:133
    rt_sigpending:136 sigaltstack:132 setitimer:103 getitimer:102 restart_syscall:128 nanosleep:101
    clock_nanosleep:115 clock_gettime:113 clock_getres:114 gettimeofday:169 times:153 getrusage:165
    getrlimit:163 sysinfo:179 uname:160 getpid:172 gettid:178 getppid:173 getuid:174 geteuid:175
    getgid:176 getegid:177 getresuid:148 getresgid:150 getgroups:158 getpgid:155 getsid:156
    getpriority:141 futex:98 set_robust_list:99 set_tid_address:96 rseq:293 sched_yield:124
    sched_getaffinity:123 sched_getparam:121 sched_getscheduler:120 sched_get_priority_max:125
    sched_get_priority_min:126 getcpu:168 getrandom:278 exit:93 exit_group:94 wait4:260 waitid:95
    epoll_create1:20 epoll_ctl:21 epoll_pwait:22 eventfd2:19 recvfrom:207 shutdown:210 getsockopt:209
    getsockname:204 getpeername:205 clone:220 kill:129 tkill:130 tgkill:131 fcntl:25 ioctl:29
    socketpair:199 sendto:206 prlimit64:261
"""
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _ENOTTY = 1, 38, 25
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data
_AF_UNIX = 1
_CLONE_THREAD, _CLONE_NEW_ANY = 0x10000, 0x7E020000
_NEW_NUMBERS = 424  # from here on every machine numbers alike, and libraries expect ENOSYS of old kernels

# Duplicate, get and set flags. Not: locks (kernel memory without a limit), pipe sizes, signals on I/O.
_FCNTL = (0, 1, 2, 3, 4, 1030)
# TCGETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TIOCGWINSZ: what isatty(), asyncio and inheritance flags use.
_IOCTL = (0x5401, 0x541B, 0x5421, 0x5450, 0x5451, 0x5413)


def supported(machine: str | None = None) -> bool:
    """True when the filter knows this machine's system calls."""
    return (machine or os.uname().machine) in _MACHINES


def build(pid: int, machine: str | None = None) -> bytes:
    """The filter for process `pid`, which may signal nobody but itself.

    Raises:
      KeyError: a machine that `supported` denies.
    """
    arch, table = _MACHINES[machine or os.uname().machine]
    numbers = {name: int(number) for name, number in (pair.split(":") for pair in table.split())}
    checks = {
        # A thread, never a process and never a namespace.
        "clone": [*_unless_set(0, _CLONE_THREAD), *_if_set(0, _CLONE_NEW_ANY), _return(_ALLOW)],
        **{name: _one_of(0, (pid,), _EPERM) for name in ("kill", "tkill", "tgkill")},
        "prlimit64": _one_of(0, (0, pid), _EPERM),
        "fcntl": _one_of(1, _FCNTL, _EPERM),
        "ioctl": _one_of(1, _IOCTL, _ENOTTY),
        "socketpair": _one_of(0, (_AF_UNIX,), _EPERM),
        # With a connected pair only: an address could name somebody else's socket.
        "sendto": [*_unless_zero(_argument(4)), *_unless_zero(_argument(4) + 4), _return(_ALLOW)],
    }
    program = [_op(_LOAD, _ARCH), _op(_JUMP_EQ, arch, 1, 0), _return(_KILL), _op(_LOAD, _NUMBER)]
    for name, number in numbers.items():
        body = checks.get(name, [_return(_ALLOW)])
        program += [_op(_JUMP_EQ, number, 0, len(body)), *body]
    program += [_op(_JUMP_GE, _NEW_NUMBERS, 0, 1), _error(_ENOSYS), _error(_EPERM)]
    return b"".join(program)


def install(code: bytes) -> None:
    """Puts this thread and all it starts under the filter, for good.

    Raises:
      OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    program = Program(len(code) // 8, ctypes.addressof(instructions))
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    zero = ctypes.c_ulong(0)
    if libc.prctl(no_new_privileges, ctypes.c_ulong(1), zero, zero, zero) or libc.prctl(
        set_seccomp, ctypes.c_ulong(filter_mode), ctypes.byref(program), zero, zero
    ):
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


def _return(action: int) -> bytes:
    return _op(_RETURN, action)


def _error(errno: int) -> bytes:
    return _return(_ERRNO | errno)


def _argument(index: int) -> int:
    """Offset of an argument's low half (both machines are little-endian)."""
    return 16 + 8 * index


def _one_of(argument: int, values: tuple[int, ...], errno: int) -> list[bytes]:
    """Allow when the low half of the argument (an int) is one of the values."""
    tests = [_op(_JUMP_EQ, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [_op(_LOAD, _argument(argument)), *tests, _error(errno), _return(_ALLOW)]


def _unless_set(argument: int, bits: int) -> list[bytes]:
    return [_op(_LOAD, _argument(argument)), _op(_JUMP_SET, bits, 1, 0), _error(_EPERM)]


def _if_set(argument: int, bits: int) -> list[bytes]:
    return [_op(_LOAD, _argument(argument)), _op(_JUMP_SET, bits, 0, 1), _error(_EPERM)]


def _unless_zero(offset: int) -> list[bytes]:
    return [_op(_LOAD, offset), _op(_JUMP_EQ, 0, 1, 0), _error(_EPERM)]
