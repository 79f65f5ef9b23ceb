"""Control groups: the kernel's own bounds on what a submission takes.

Version 1 and 2, as root; as an ordinary user version 2, in a scope that systemd lends.
A group that a killed judge has left is swept by the next one; a scope goes by itself.
"""

import functools
import os
import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from classroom.engine import traces

CONTROLLERS = "memory", "pids", "cpu"  # the last is for fairness, and may be missing
GONE_WITHIN = 60.0  # seconds, once its processes have been killed
# Run in a scope: make room for groups beside ourselves, say where, and hold it.
HOLD = """
cd "$0$(sed -n 's/^0:://p' /proc/self/cgroup)" && mkdir holder &&
echo $$ > holder/cgroup.procs && echo '+memory +pids' > cgroup.subtree_control &&
{ echo '+cpu' > cgroup.subtree_control; pwd; exec cat; }
"""


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
            for folder in folders:
                for left in traces.of_the_killed(folder):
                    Group([left]).close()
            return folders
    return []


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
    return []


def _shares_out(home: Path) -> bool:
    """Let the groups in `home` have controllers; tell whether they do."""
    file = home / "cgroup.subtree_control"
    for controller in CONTROLLERS:
        with suppress(OSError):  # it has processes of its own, say
            file.write_text(f"+{controller}")
    try:
        return {"memory", "pids"} <= set(file.read_text().split())
    except OSError:
        return False


def _scope() -> list[Path]:
    """Return the group of a scope that systemd lends us until we end."""
    if "" not in (mounts := _mounts()) or not shutil.which("systemd-run"):
        return []
    words = ["systemd-run", *(["--user"] if os.geteuid() else []), "--scope", "--quiet"]
    words += ["-p", "Delegate=yes", "sh", "-c", HOLD, str(mounts[""])]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    # Held until its stdin closes, however we end.
    holder = subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=quiet, start_new_session=True
    )
    assert holder.stdout
    _HOLDERS.append(holder)
    where = holder.stdout.readline().decode().strip()
    return [Path(where)] if where else []


_HOLDERS: list[subprocess.Popen] = []


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
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _counts(file: Path) -> dict[str, int]:
    """Return the numbers in a file with a name and a number a line."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) == 2}
    except (OSError, ValueError):
        return {}
