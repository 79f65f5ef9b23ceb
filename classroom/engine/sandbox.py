"""Run a student's programs where they can harm nobody: a rig behind bubblewrap.

One sandbox serves one submission. Inside, runner.py takes requests from a pipe; there
is no network but loopback, nothing of the course to be seen, and nothing to be written
but three small folders in memory. Outside, a watchdog counts processes and memory ten
times a second, and at the end of any limit the whole sandbox is killed: its processes
have a pid namespace of their own, so none of them stays behind.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from classroom.engine import runner
from classroom.engine.assignment import Assignment
from classroom.engine.rig import Rig, SandboxError
from ddp_lab import ROOT

GB = 1_000_000_000
CGROUPS = Path("/sys/fs/cgroup")
GONE_WITHIN = 10.0  # seconds, once a sandbox has been killed
INHERITED = ("PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
ETC = {  # the whole of /etc, but for what the linker needs
    "hosts": "127.0.0.1 localhost sandbox\n",
    "passwd": "student:x:1000:1000::/tmp:/bin/sh\n",
    "group": "student:x:1000:\n",
    "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
}
REFUSAL = (
    "make grade runs students' programs, and needs bubblewrap to keep them from your"
    " files: install it (apt install bubblewrap), or trust everybody and say UNSAFE=1."
)
WEAK = (
    "You are root and can make no control group here, so that only a watchdog bounds"
    " the number of a submission's processes: better grade as a normal user."
)


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    seconds: float = 600
    """Of wall clock, for all its runs together."""
    memory: int = 6 * GB
    """Bytes of all its processes together; each may have two thirds of it."""
    processes: int = 150
    disk: int = GB
    """Bytes in each of the three folders that can be written; they are in memory."""
    file: int = GB // 2
    """Bytes of one file."""
    output: int = 50_000_000
    """Bytes that one run may print."""

    def arguments(self) -> list[str]:
        """Return what runner.py needs to know."""
        return [str(self.memory * 2 // 3), str(self.file), str(self.output)]


def available() -> str | None:
    """Return why there can be no sandbox here; None if there can."""
    if not shutil.which("bwrap"):
        return REFUSAL
    words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        return f"{REFUSAL} (bubblewrap is here, but does not work: {said[0]})"
    return None


def weak() -> str | None:
    """Return which limit does not hold here as it should; None if all of them do."""
    if os.geteuid() != 0:
        return None  # RLIMIT_NPROC binds everybody else
    if cgroup := _cgroup(1):
        _remove(cgroup)
        return None
    return WEAK


def gpus() -> int:
    """Return how many GPUs this machine shows."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


@dataclass
class _Started:
    """One sandbox that has been started."""

    process: subprocess.Popen
    etc: Path
    """What it sees as /etc."""
    cgroup: Path | None
    init: int = 0
    """The first process of its pid namespace; 0 until it has said that it is ready."""

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        return process.stdin, process.stdout, process.stderr

    def kill(self) -> None:
        """Kill all its processes, and remove what it has needed."""
        self.process.kill()  # its pid namespace goes with it
        self.process.wait()
        for pipe in self.pipes:
            try:
                pipe.close()
            except OSError:
                pass
        shutil.rmtree(self.etc, ignore_errors=True)
        end = time.monotonic() + GONE_WITHIN
        # When the first process of the namespace has ended, all others have.
        while self.init and _lives(self.init) and time.monotonic() < end:
            time.sleep(0.01)
        _remove(self.cgroup)

    def wire(self) -> int | None:
        """Return how many bytes have gone over its loopback so far."""
        try:
            for line in Path(f"/proc/{self.init}/net/dev").read_text().splitlines():
                name, _, counts = line.partition(":")
                if name.strip() == "lo":
                    return int(counts.split()[8])  # transmitted
        except (OSError, ValueError, IndexError):
            pass
        return None


class Sandbox(Rig):
    """A rig whose runs happen in a sandbox; close it in the end.

    A sandbox that a limit has ended is built anew for the next run, until the time of
    the submission is over.
    """

    def __init__(
        self,
        assignment: Assignment,
        programs: Mapping[str, str],
        limits: Limits | None = None,
    ):
        super().__init__(assignment, programs)
        self.limits = limits or Limits()
        self.left = self.limits.seconds
        self.started: _Started | None = None
        self.ended = ""  # why the watchdog has killed it

    def _execute(
        self, header: dict, files: dict[str, bytes]
    ) -> tuple[dict, dict[str, bytes]]:
        if self.left <= 0:
            return _killed("the time for this submission is over")
        box = self._start()
        start, before = time.monotonic(), box.wire()
        stop = threading.Event()
        watchdog = threading.Thread(target=self._watch, args=[box, stop, self.left])
        watchdog.start()
        try:
            os.link(header["recorder"], box.etc / "recorder")  # inside it is /judge/…
            header = header | {"recorder": "/judge/recorder"}
            requests, answers, _ = box.pipes
            runner.write(requests, header, files)
            answer, received = runner.read(answers)
            after = box.wire()
            answer["bytes_on_wire"] = None
            if before is not None and after is not None:
                answer["bytes_on_wire"] = after - before
            trouble = ""
        except Exception as error:  # it was killed, or what it wrote is no answer
            trouble = f"the sandbox broke off ({type(error).__name__})"
        finally:
            (box.etc / "recorder").unlink(missing_ok=True)
            stop.set()
            watchdog.join()
            self.left -= time.monotonic() - start
        if self.ended or trouble:
            self.close()
            return _killed(self.ended or trouble)
        return answer, received

    def close(self) -> None:
        """Kill whatever still runs. A later run would start anew."""
        if self.started:
            self.started.kill()
            self.started = None

    # --- start ---

    def _start(self) -> _Started:
        """Return the sandbox; start it, unless it is there.

        Raises:
            SandboxError: if it does not come up.
        """
        if self.started and self.started.process.poll() is None:
            return self.started
        self.close()
        self.ended = ""
        etc = Path(tempfile.mkdtemp(prefix="classroom-etc-"))
        for name, text in ETC.items():
            (etc / name).write_text(text)
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, runner.__file__, *self.limits.arguments()]
        command = [*self._bwrap(etc), *command]
        cgroup = _cgroup(4 * self.limits.processes)  # it counts threads, too
        if cgroup:
            enter = 'echo $$ > "$0" && exec "$@"'
            command = ["sh", "-c", enter, str(cgroup / "cgroup.procs"), *command]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self.started = box = _Started(process, etc, cgroup)
        _, answers, errors = box.pipes
        try:
            runner.read(answers)  # it says that it is ready
        except (EOFError, ValueError):
            said = errors.read(4000).decode(errors="replace").strip()
            self.close()
            raise SandboxError(said or "the sandbox did not start") from None
        box.init = _children(process.pid)[0]
        return box

    def _bwrap(self, etc: Path) -> list[str]:
        """Return bubblewrap's own arguments. What is not named here is not there."""
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
        words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        words += ["--cap-drop", "ALL", "--hostname", "sandbox"]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for path in (runner.SCRATCH, "/tmp", "/dev/shm"):
            words += ["--size", str(self.limits.disk), "--tmpfs", path]
        words += ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "lib", "lib32", "lib64"):
            if os.path.islink(f"/{name}"):
                words += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
            elif os.path.exists(f"/{name}"):
                words += ["--ro-bind", f"/{name}", f"/{name}"]
        for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"):
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name in ETC:
            words += ["--ro-bind", str(etc / name), f"/etc/{name}"]
        words += ["--ro-bind", str(etc), "/judge"]
        ours = [str(ROOT / "ddp_lab"), runner.__file__]
        for path in [*_python(), *ours]:
            words += ["--ro-bind", path, path]
        if gpus():
            words += ["--ro-bind", "/sys", "/sys"]
            for device in glob.glob("/dev/nvidia*"):
                words += ["--dev-bind", device, device]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]

    # --- watch ---

    def _watch(self, box: _Started, stop: threading.Event, seconds: float) -> None:
        """Kill `box` when it goes over a limit, until `stop` is set."""
        end = time.monotonic() + seconds
        while not stop.wait(0.1):
            reason = ""
            if time.monotonic() > end:
                reason = f"it took more than {self.limits.seconds:.0f} seconds in all"
            else:
                family = _family(box.process.pid)
                if len(family) > self.limits.processes:
                    reason = f"it had more than {self.limits.processes} processes"
                elif _memory(family, self.limits.memory) > self.limits.memory:
                    reason = f"it used more than {self.limits.memory / GB:.3g} GB"
                    reason += " of memory"
            if reason:
                self.ended = reason
                box.process.kill()
                return


def _killed(reason: str) -> tuple[dict, dict[str, bytes]]:
    """Return the answer of a run that was ended."""
    return {"failure": f"the run was ended: {reason}"}, {}


def _cgroup(tasks: int) -> Path | None:
    """Make a control group with room for so many processes and threads, if we may.

    RLIMIT_NPROC, which runner.py sets, binds everybody but root. The watchdog alone may
    come late: a machine with thousands of processes hardly ever gets round to it.
    """
    if os.geteuid() != 0:
        return None
    for parent in (CGROUPS / "pids", CGROUPS):  # version 1, version 2
        folder = parent / f"classroom-{uuid.uuid4().hex}"
        try:
            folder.mkdir()
            if (folder / "pids.max").exists():
                (folder / "pids.max").write_text(str(tasks))
                return folder
            folder.rmdir()
        except OSError:
            continue  # not mounted, or not for us
    return None


def _remove(cgroup: Path | None) -> None:
    """Remove a control group; its last processes may still be on their way out."""
    end = time.monotonic() + GONE_WITHIN
    while cgroup and cgroup.exists() and time.monotonic() < end:
        try:
            cgroup.rmdir()
        except OSError:
            time.sleep(0.05)


def _python() -> list[str]:
    """Return the folders that this Python imports from, but for the repository's own.

    An environment inside the repository is named by itself; the root is never.
    """
    folders = [sys.prefix, sys.base_prefix]
    folders += [path for path in sys.path if path.endswith("site-packages")]
    folders += [str(Path(folder).resolve()) for folder in folders]
    found: list[str] = []
    for path in sorted({path for path in folders if os.path.isdir(path)}):
        inside = any(path == old or path.startswith(f"{old}/") for old in found)
        if not (inside or path == "/usr" or path.startswith("/usr/")):
            found.append(path)
    return [path for path in found if not ROOT.is_relative_to(path)]


def _lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    return [child for child, parent in _parents().items() if parent == pid]


def _parents() -> dict[int, int]:
    """Return the parent of every process of this machine."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name may hold anything; the last bracket ends it.
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it has ended
    return parents


def _family(pid: int) -> list[int]:
    """Return every process below `pid`. An orphan goes to the sandbox's own init."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, []).append(child)
    family, todo = [], [pid]
    while todo:
        found = children.get(todo.pop(), [])
        family += found
        todo += found
    return family


def _memory(pids: list[int], limit: int) -> int:
    """Return the bytes that processes hold: exact if they may be over the limit."""
    resident = {pid: _resident(pid) for pid in pids}
    if sum(resident.values()) <= limit:
        return sum(resident.values())
    return sum(_proportional(pid, resident[pid]) for pid in pids)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _proportional(pid: int, resident: int) -> int:
    """Return a process's share: a page that n processes hold counts 1/n for each."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return resident
