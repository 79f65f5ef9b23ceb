"""What a process may no longer do, from here on and for all that it starts.

`fence` is for every process of a run, `wall_in` beside it for torchrun and the ranks,
which run the student's code. Nothing of it can be taken back. It is written for Linux
on x86-64 and ARM; elsewhere there is no sandbox.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
# See prctl(2), seccomp(2), landlock(7) and the kernel's bpf_common.h.
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, CLEAR_ALL = 38, 47, 4
FILTER = 2  # of PR_SET_SECCOMP
CAPABILITY_V3, LAST_CAPABILITY = 0x20080522, 63
LOAD, EQUALS, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NEW_NAMESPACES = 0x7E020000  # all flags CLONE_NEW... that clone knows
X32 = 0x40000000  # the other ABI of x86-64 begins here
REFER, MAKE_CHAR = 1 << 13, 1 << 6  # LANDLOCK_ACCESS_FS_...

# Numbers of system calls by machine, those of 424 and more are the same on all.
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
NOBODYS = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "shmget": (29, 194),  # such memory outlives its processes, and nobody counts it
    "memfd_secret": (447, 447),  # nor this, which no list of files names
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
}
"""Calls that no program of the course has a use for: on x86-64, on ARM."""
OF_OTHERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}
"""Calls that look into another process; py-spy, which the launcher asks, needs them."""


def fence() -> None:
    """Give up every capability, and the calls that nobody needs."""
    for capability in range(LAST_CAPABILITY + 1):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break  # the kernel knows no more of them
    libc.prctl(PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_V3, 0)
    _check(libc.capset(header, bytes(24)))
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _refuse(NOBODYS.values())


def wall_in() -> None:
    """Keep this process from all others but its own children; let it die first."""
    _refuse(OF_OTHERS.values())
    _own_domain()
    set_dumpable(True)  # py-spy may look
    # Whoever is to be killed for want of memory, it is this one.
    Path("/proc/self/oom_score_adj").write_text("1000")


def set_dumpable(may: bool) -> None:
    """Say whether others of this user may open this process's files and memory."""
    _check(libc.prctl(PR_SET_DUMPABLE, int(may), 0, 0, 0))


def known() -> bool:
    """Tell whether the numbers above are those of this machine."""
    return platform.machine() in AUDIT_ARCH


def _refuse(calls: Iterable[tuple[int, int]]) -> None:
    """Let these system calls fail, and those of another ABI kill."""
    machine = platform.machine()
    column = list(AUDIT_ARCH).index(machine)
    eperm, enosys = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS
    program = [
        _step(LOAD, ARCH),
        _step(EQUALS, AUDIT_ARCH[machine], 1, 0),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER),
    ]
    if machine == "x86_64":
        program += [_step(AT_LEAST, X32, 0, 1), _step(RETURN, enosys)]
    for call in calls:
        program += [_step(EQUALS, call[column], 0, 1), _step(RETURN, eperm)]
    # The flags of clone3 lie in memory, which a filter cannot read. Told that there is
    # no such call, the C library takes clone.
    program += [_step(EQUALS, CLONE3, 0, 1), _step(RETURN, enosys)]
    program += [_step(EQUALS, CLONE[machine], 0, 3), _step(LOAD, FIRST_ARGUMENT)]
    program += [_step(ANY_BIT, NEW_NAMESPACES, 0, 1), _step(RETURN, eperm)]
    program += [_step(RETURN, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(program))
    whole = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _check(libc.prctl(PR_SET_SECCOMP, FILTER, whole, 0, 0))


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """Return an instruction; `if_so` and `if_not` say how many to skip."""
    return struct.pack("HBBI", code, if_so, if_not, value)


def _own_domain() -> None:
    """Begin a Landlock domain: /proc/PID/mem of those outside is out of reach.

    The domain itself allows all that was allowed, but for making devices. Kernels
    before 5.19 have none that does not forbid to move files between folders.
    """
    create, add_rule, restrict = 444, 445, 446
    if libc.syscall(create, None, ctypes.c_size_t(0), 1) < 2:  # the version
        return
    rights = struct.pack("Q", REFER | MAKE_CHAR)
    rules = libc.syscall(create, rights, ctypes.c_size_t(len(rights)), 0)
    root = os.open("/", os.O_PATH)
    _check(libc.syscall(add_rule, rules, 1, struct.pack("=Qi", REFER, root), 0))
    _check(libc.syscall(restrict, rules, 0))
    os.close(rules)
    os.close(root)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
