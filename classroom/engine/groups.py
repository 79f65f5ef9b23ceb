"""Control groups: the kernel's own bounds on what a submission takes.

Version 1 and 2, as root; as an ordinary user version 2, in a scope that systemd lends.
A group that a killed judge has left is swept by the next one.
"""

import functools
import os
import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from classroom.engine import traces

CONTROLLERS = "memory", "pids", "cpu"  # the last is for fairness, and may be missing
GONE_WITHIN = 60.0  # seconds, once its processes have been killed
HOLDER = "holder"  # where the processes are that are in no group of ours
MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
SESSIONS = "/user.slice/"  # see systemd.special(7)
MOVED_WITHIN = 10.0  # seconds, once systemd has said that it will


@dataclass
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
                if _counts(folder / file).get(event, 0):
                    return file.partition(".")[0]
        return ""

    def kill(self) -> None:
        """Kill every process in it."""
        for folder in self.folders:
            with suppress(OSError):
                if (folder / "cgroup.kill").exists():  # version 2, from Linux 5.14 on
                    (folder / "cgroup.kill").write_text("1")
                    continue
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), 9)

    def close(self) -> None:
        """Kill what is left, and remove it."""
        end = time.monotonic() + GONE_WITHIN
        while self.folders and time.monotonic() < end:
            self.kill()
            for folder in list(self.folders):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:  # the last ones are on their way out
                    continue
                self.folders.remove(folder)
            time.sleep(0.01)


def make(memory: int, tasks: int) -> Group | None:
    """Make a group with so many bytes, processes and threads; None if we may not."""
    name = traces.name() + uuid.uuid4().hex
    group = Group([])
    try:
        for parent in homes():
            folder = parent / name
            folder.mkdir()
            group.folders.append(folder)
            for file, most in (
                ("memory.limit_in_bytes", memory),  # version 1
                ("memory.memsw.limit_in_bytes", memory),
                ("memory.max", memory),
                ("memory.swap.max", 0),
                ("pids.max", tasks),
            ):
                if (folder / file).exists():
                    (folder / file).write_text(str(most))
    except OSError:
        group.close()
        return None
    return group if group.folders else None


@functools.cache
def homes() -> list[Path]:
    """Return the folders in which groups can be made, one for each hierarchy."""
    for find in (_version_1, _version_2, _scope):
        folders = find()
        if folders and all(_may_make(folder) for folder in folders):
            _sweep(folders)
            return folders
    return []


def _sweep(folders: list[Path]) -> None:
    """Remove the groups of judges that were killed, in scopes of theirs, too."""
    scopes = (f.parent.glob(f"{traces.PREFIX}*.scope") for f in folders)
    for place in chain(folders, *scopes):
        for left in traces.of_the_killed(place):
            Group([left]).close()


def _version_1() -> list[Path]:
    mounts, own = _mounts(), _own()
    found = []
    for controller in CONTROLLERS:
        if controller in mounts and controller in own:
            inside = mounts[controller] / own[controller].lstrip("/")
            # In a container the mount may begin at our own group.
            folder = inside if inside.is_dir() else mounts[controller]
            if folder not in found:
                found.append(folder)
    both = {"memory", "pids"} <= mounts.keys() & own.keys()
    return found if both else []


def _version_2() -> list[Path]:
    """Return our own group, or the one above it, with controllers for those below."""
    mounts, own = _mounts(), _own()
    if "" not in mounts or "" not in own or os.geteuid() != 0:
        return []
    folder = mounts[""] / own[""].lstrip("/")
    for home in (folder, folder.parent):
        if home.is_relative_to(mounts[""]) and _shares_out(home):
            return [home]
    # In a container our group is the topmost that is seen, and full of processes.
    if own[""] == "/":
        _makes_room(folder)
        return [folder] if _shares_out(folder) else []
    return []


def _shares_out(home: Path) -> bool:
    """Let the groups in `home` have controllers; tell whether they do."""
    file = home / "cgroup.subtree_control"
    try:
        # Refused where `home` has processes. The others are not, and then no process
        # can be moved into a group below it any more.
        file.write_text("+memory")
        for controller in CONTROLLERS:
            with suppress(OSError):
                file.write_text(f"+{controller}")
        return {"memory", "pids"} <= set(file.read_text().split())
    except OSError:
        return False


def _scope() -> list[Path]:
    """Move into a scope that systemd lends us until we end; return its group.

    Who is outside of it can send no process in, which is why we go ourselves: a process
    changes its group only below a folder that is its user's. A job of SLURM's, say, is
    never left: it would escape its bounds, and its end.
    """
    if "" not in (mounts := _mounts()) or not shutil.which("busctl"):
        return []
    if not _own().get("", "").startswith(SESSIONS):
        return []
    name = f"{traces.PREFIX}{os.getpid()}-{uuid.uuid4().hex}.scope"
    words = ["busctl", "--user" if os.geteuid() else "--system", "call", *MANAGER]
    words += ["StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "2"]
    words += ["PIDs", "au", "1", str(os.getpid()), "Delegate", "b", "true", "0"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return []
    end = time.monotonic() + MOVED_WITHIN
    while not (own := _own()[""]).endswith(name):
        if time.monotonic() > end:
            return []
        time.sleep(0.01)
    home = mounts[""] / own.lstrip("/")
    _makes_room(home)
    return [home] if _shares_out(home) else []


def _makes_room(home: Path) -> None:
    """Move the processes of `home` one level down: it has groups or processes."""
    holder = home / HOLDER
    with suppress(OSError):
        holder.mkdir(exist_ok=True)
        for pid in (home / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (holder / "cgroup.procs").write_text(pid)


def _mounts() -> dict[str, Path]:
    """Return by controller where its hierarchy is mounted; "" is version 2's."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split()
        if kind == "cgroup2":
            found[""] = Path(left.split()[4])
        elif kind == "cgroup":
            found |= dict.fromkeys(options.split(","), Path(left.split()[4]))
    return found


def _own() -> dict[str, str]:
    """Return by controller the path of the group that we are in."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _may_make(folder: Path) -> bool:
    trial = folder / f"{traces.name()}trial"
    with suppress(OSError):
        trial.mkdir()
        trial.rmdir()
        return True
    return False


def _counts(file: Path) -> dict[str, int]:
    """Return the numbers in a file with a name and a number a line."""
    with suppress(OSError, ValueError):
        lines = [line.split() for line in file.read_text().splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}
    return {}
