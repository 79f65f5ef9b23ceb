"""What a submission takes, counted from outside where the kernel bounds nothing."""

import os
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
FOLDERS = "run", "tmp", "dev/shm"  # of a sandbox, in memory


def count(roots: list[int], limit: int) -> tuple[int, int]:
    """Return how many processes and threads are below `roots`, and their bytes.

    The bytes are exact only if they may be more than `limit`.
    """
    family = _family(roots)
    memory = sum(_resident(pid) for pid in family) + _in_files(family)
    if memory > limit:
        memory = sum(map(_proportional, family)) + _in_files(family)
    return sum(_threads(pid) for pid in family), memory


def held(pid: int) -> int:
    """Return the bytes that a process keeps, or has others keep for it.

    Counted is its memory, but for files that it maps, and that of its children, who
    share most of it: no answer that is weighed needs any. In a sandbox also that of
    orphans, and files in memory, whoever has made them.

    Raises:
        OSError: if it has ended, or the system has no such count.
    """
    init = _init_of(pid)
    family = _family([pid, *init])
    kinds = "RssAnon:", "RssShmem:", "VmSwap:"
    bytes_ = _sum(f"/proc/{pid}/status", *kinds)
    for other in {*family} - {pid}:
        with suppress(OSError):  # it has ended
            bytes_ += _sum(f"/proc/{other}/status", *kinds)
    return bytes_ + (_in_files([pid, *family]) if init else 0)


def _init_of(pid: int) -> list[int]:
    """Return the first process of the sandbox that a process is in; [] if in none."""
    inside = _namespace(pid)
    if inside == _namespace("self"):
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [p for p in pids if _namespace(p) == inside and _number(p) == 1]


def _namespace(pid: int | str) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _number(pid: int) -> int:
    """Return by which number a process is known in its own namespace."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0


def _sum(path: str, *names: str) -> int:
    """Return the sum of these lines of a file in kB, in bytes."""
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    return 1024 * sum(int(words[1]) for words in lines if words[0] in names)


def _family(roots: list[int]) -> list[int]:
    """Return every process below `roots`. An orphan goes to the sandbox's own init."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := stat_of(name)):
            children.setdefault(int(stat[1]), []).append(int(name))
    family, todo = [], list(roots)
    while todo:
        found = children.get(todo.pop(), [])
        family += found
        todo += found
    return family


def stat_of(pid: int | str) -> list[str]:
    """Return what the kernel tells of a process, from its state on; [] if it ended."""
    try:
        # The name may hold anything; the last bracket ends it.
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _threads(pid: int) -> int:
    stat = stat_of(pid)
    return int(stat[17]) if stat else 0


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _proportional(pid: int) -> int:
    """Return a process's share: a page that n processes hold counts 1/n for each."""
    with suppress(OSError):  # it has ended, or does not let us
        return _sum(f"/proc/{pid}/smaps_rollup", "Pss:")
    return _resident(pid)


def _in_files(family: list[int]) -> int:
    """Return the bytes of files that are in memory: memfd, and the three folders.

    What is mapped besides counts twice.
    """
    sizes: dict[tuple[int, int], int] = {}
    for pid in family:
        with suppress(OSError):  # it has ended, or does not let us
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                if os.readlink(path).startswith("/memfd:"):
                    found = os.stat(path)
                    sizes[found.st_dev, found.st_ino] = 512 * found.st_blocks
            for folder in FOLDERS:
                place = f"/proc/{pid}/root/{folder}"
                disk = os.statvfs(place)
                used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
                sizes[os.stat(place).st_dev, 0] = used
    return sum(sizes.values())
