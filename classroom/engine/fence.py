"""What no process of a sandbox may do: system calls, and capabilities.

Without a capability nothing can be mounted, loaded or switched; what is left to refuse
is a namespace of one's own, in which one had them all, and the calls by which a program
reaches far into the kernel. Nothing of it can be taken back. It is written for Linux on
x86-64 and ARM; elsewhere there is no sandbox.
"""

import ctypes
import errno
import platform
import struct

libc = ctypes.CDLL(None, use_errno=True)
# See prctl(2), seccomp(2) and the kernel's bpf_common.h.
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, CLEAR_ALL = 38, 47, 4
FILTER = 2  # of PR_SET_SECCOMP
CAPABILITY_V3, LAST_CAPABILITY = 0x20080522, 63
LOAD, EQUALS, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NEW_NAMESPACES = 0x7E020000  # all flags CLONE_NEW... that clone knows
X32 = 0x40000000  # the other ABI of x86-64 begins here

# Numbers of system calls by machine, those of 424 and more are the same on all.
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
REFUSED = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""Calls that no program of the course has a use for: on x86-64, on ARM."""


def fence() -> None:
    """Give up every capability, and the calls that nobody needs."""
    for capability in range(LAST_CAPABILITY + 1):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break  # the kernel knows no more of them
    libc.prctl(PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_V3, 0)
    _check(libc.capset(header, bytes(24)))
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    code = ctypes.create_string_buffer(program(), len(program()))
    whole = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code))
    _check(libc.prctl(PR_SET_SECCOMP, FILTER, whole, 0, 0))


def set_dumpable(may: bool) -> None:
    """Say whether others of this user may open this process's files and memory."""
    _check(libc.prctl(PR_SET_DUMPABLE, int(may), 0, 0, 0))


def known() -> bool:
    """Tell whether the numbers above are those of this machine."""
    return platform.machine() in AUDIT_ARCH


def program() -> bytes:
    """Return a filter that lets the calls above fail, and those of another ABI kill."""
    machine = platform.machine()
    column = list(AUDIT_ARCH).index(machine)
    eperm, enosys = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    steps = [
        _step(LOAD, ARCH),
        _step(EQUALS, AUDIT_ARCH[machine], 1, 0),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(AT_LEAST, X32, 0, 1), _step(RETURN, enosys)]
    for call in REFUSED.values():
        steps += [_step(EQUALS, call[column], 0, 1), _step(RETURN, eperm)]
    # The flags of clone3 lie in memory, which a filter cannot read. Told that there is
    # no such call, the C library takes clone.
    steps += [_step(EQUALS, CLONE3, 0, 1), _step(RETURN, enosys)]
    steps += [_step(EQUALS, CLONE[machine], 0, 3), _step(LOAD, FIRST_ARGUMENT)]
    steps += [_step(ANY_BIT, NEW_NAMESPACES, 0, 1), _step(RETURN, eperm)]
    return b"".join([*steps, _step(RETURN, ALLOW)])


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """Return an instruction; `if_so` and `if_not` say how many to skip."""
    return struct.pack("HBBI", code, if_so, if_not, value)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the sandbox cannot be closed")
