"""Make namespaces and enter them, as Python does from 3.12 on.

A namespace is what a process sees of a part of the system: of the network, say. It
lives as long as a process in it or an open file that stands for it, so one without a
name cannot be left behind. network.py makes some; whatever is forked elsewhere for a
process in them enters them too (see fork_server.py).
"""

import ctypes
import os
from _collections_abc import Sequence

KINDS = {
    "user": 0x10000000,  # CLONE_NEWUSER; gives the rights to enter the others
    "net": 0x40000000,
    "uts": 0x04000000,  # the host name
    "mnt": 0x00020000,
}
"""Flags of the kinds that a run may be in, in the order in which they are entered."""

BIND, SLAVES, DETACH = 1 << 12, 1 << 14 | 1 << 19, 2  # flags of mount(2), umount2(2)

libc = ctypes.CDLL(None, use_errno=True)


def unshare(*kinds: str) -> None:
    """Move this process into new namespaces."""
    _check(libc.unshare(sum(KINDS[kind] for kind in kinds)))


def become_root() -> None:
    """Move this process into a new user namespace, and be root there."""
    user, group = os.geteuid(), os.getegid()
    unshare("user")
    for file, text in (
        ("setgroups", "deny"),  # which is the price of a map of groups
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as entry:
            entry.write(text)


def mount(what: str, where: str, kind: str, flags: int = 0) -> None:
    """Mount a file system, or a part of one that is mounted already (BIND)."""
    _check(libc.mount(what.encode(), where.encode(), kind.encode(), flags, None))


def unmount(where: str) -> None:
    """Unmount at once, even if a part of it is in use."""
    _check(libc.umount2(where.encode(), DETACH))


def open_files(pid: int, *kinds: str) -> list[int]:
    """Open files that stand for the namespaces of a process, those of `KINDS`."""
    return [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]


def enter(files: Sequence[int]) -> None:
    """Move this process, which has one thread, into the namespaces of `files`."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = "/"  # it has been removed
    for file in files:
        _check(libc.setns(file, 0))
    os.chdir(folder)  # or it would be the root of the mount namespace


def enter_like(pid: int) -> None:
    """Move this process into the namespaces of another, as far as it is elsewhere.

    A process that enters a user namespace loses its PR_SET_PDEATHSIG.

    Raises:
        OSError: if the other process is gone, or another user's.
    """
    if not os.path.exists("/proc/self/ns"):
        return  # no Linux
    kinds = [kind for kind in KINDS if _at(pid, kind) != _at(os.getpid(), kind)]
    if kinds:
        files = open_files(pid, *kinds)
        enter(files)
        for file in files:
            os.close(file)


def _at(pid: int, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def _check(result: int) -> None:
    """Raise what the last call of the C library has set, if its result says so."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
