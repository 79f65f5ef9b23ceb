"""Control groups: the kernel's own bounds on what a submission takes.

Version 2 in a scope that systemd lends, or as root in a container; version 1 as root.
"""

import functools
import os
import re
import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = "memory", "pids", "cpuacct", "cpu"  # of version 1; the last for fairness
PREFIX = "classroom-"
HOLDER = "holder"  # where the processes are that are in no group of ours
MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
WITHIN = 60.0  # seconds: until systemd has moved us, or the last process is gone


@dataclass(frozen=True)
class Group:
    """The control group of one submission: a folder in each hierarchy."""

    folders: list[Path]

    def entries(self) -> list[int]:
        """Open a file for each folder, into which a process signs in by writing 0."""
        return [os.open(f / "cgroup.procs", os.O_WRONLY) for f in self.folders]

    def over(self) -> str:
        """Return which bound has been met: "memory", "pids" or ""."""
        for folder in self.folders:
            for file, event in (
                ("memory.oom_control", "oom_kill"),  # version 1
                ("memory.events", "oom_kill"),
                ("pids.events", "max"),
            ):
                with suppress(FileNotFoundError):
                    text = (folder / file).read_text()
                    if re.search(rf"^{event} [1-9]", text, re.M):
                        return file.partition(".")[0]
        return ""

    def seconds(self) -> float:
        """Return for how many seconds its processes have had a core, all together."""
        for folder in self.folders:
            with suppress(FileNotFoundError):  # version 1
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            with suppress(FileNotFoundError):
                told = (folder / "cpu.stat").read_text()
                if found := re.search(r"^usage_usec (\d+)", told, re.M):
                    return int(found[1]) / 1e6
        return 0.0

    def close(self) -> None:
        """Remove it, once its last process has ended."""
        end = time.monotonic() + WITHIN
        for folder in self.folders:
            while folder.exists() and time.monotonic() < end:
                with suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.01)


def make(memory: int, tasks: int) -> Group:
    """Make a group with so many bytes, and so many processes and threads.

    Raises:
        OSError: if we may not.
    """
    group = Group(
        [home / f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex}" for home in homes()]
    )
    for folder in group.folders:
        folder.mkdir()
        for file, most in (
            ("memory.limit_in_bytes", memory),  # version 1
            ("memory.memsw.limit_in_bytes", memory),
            ("memory.max", memory),
            ("memory.swap.max", 0),
            ("pids.max", tasks),
        ):
            if (folder / file).exists():
                (folder / file).write_text(str(most))
    return group


@functools.cache
def homes() -> list[Path]:
    """Return the folders in which groups can be made, one for each hierarchy.

    What a judge that was killed has left there is removed.
    """
    own = _own()
    if {*CONTROLLERS[:3]} <= own.keys():
        found = [*dict.fromkeys(own[name] for name in CONTROLLERS if name in own)]
    else:
        found = _version_2()
    if not all(os.access(folder, os.W_OK) for folder in found):
        return []
    for left in (path for home in found for path in home.glob(f"{PREFIX}*-*")):
        if not os.path.exists(f"/proc/{left.name.split('-')[1]}"):
            Group([left]).close()
    return found


def _version_2() -> list[Path]:
    """Return our own group, once it has room and controllers for others below it.

    That of a session is systemd's. In a container ours is the topmost that is seen. A
    group has groups or processes.
    """
    own = _own().get("")
    if own and _is_lent():
        own = _own()[""]
    elif not own or not os.path.ismount(own):
        return []
    with suppress(OSError):
        (own / HOLDER).mkdir(exist_ok=True)
        for pid in (own / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (own / HOLDER / "cgroup.procs").write_text(pid)
        (own / "cgroup.subtree_control").write_text("+memory +pids")
        with suppress(OSError):
            (own / "cgroup.subtree_control").write_text("+cpu")
        return [own]
    return []


def _is_lent() -> bool:
    """Move into a scope that systemd lends us until we end, if it does.

    Who is outside of it can send no process in, which is why we go ourselves. A job of
    SLURM's is never left: it would escape its bounds, and its end.
    """
    if not shutil.which("busctl") or "slurm" in str(_own()[""]):
        return False
    name = f"{PREFIX}{uuid.uuid4().hex}.scope"
    words = ["busctl", "--user" if os.geteuid() else "--system", "call", *MANAGER]
    words += ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "2"]
    words += ["PIDs", "au", "1", str(os.getpid()), "Delegate", "b", "true", "0"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return False
    end = time.monotonic() + WITHIN
    while _own()[""].name != name:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def _own() -> dict[str, Path]:
    """Return by controller the folder of our own group; "" is version 2's."""
    mounts: dict[str, Path] = {}
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split()
        if kind.startswith("cgroup"):
            names = options.split(",") if kind == "cgroup" else [""]
            mounts |= dict.fromkeys(names, Path(left.split()[4]))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in mounts.keys() & controllers.split(","):
            inside = mounts[name] / path.lstrip("/")
            # In a container the mount may begin at our own group.
            found[name] = inside if inside.is_dir() else mounts[name]
    return found
