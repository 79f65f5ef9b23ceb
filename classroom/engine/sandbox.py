"""Run a student's programs where they can harm nobody: a rig behind bubblewrap.

Every run has a sandbox of its own, which ends with it: a network of nothing but
loopback, processes and shared memory of its own, three small folders in memory; of all
other files there are those that Python needs, to be read. So nothing lives from one run
to the next, and no submission, solution, expected value or gradebook is in sight.
No process in it has a capability, may make a namespace, or call what only a system
needs; torchrun and the ranks may not look into each other (fence.py).
Who says how a run went is not in there (zygote.py), nor is who keeps what the ranks say
while they work (recorder.py): of that one there is a socket to speak into.
All processes of a submission are in one control group, by which the kernel bounds their
memory and number (groups.py); where none can be had, we count ten times a second
(watchdog.py). A submission that meets a bound is ended, and runs no more.
"""

import atexit
import functools
import glob
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from classroom.engine import fence, groups, remedy, runner, traces, watchdog
from classroom.engine.assignment import Assignment
from classroom.engine.rig import Busy, Rig, SandboxError
from ddp_lab import ROOT

GB = 1_000_000_000
SCRATCH = "/run"  # as zygote.py knows it
RECORDER = f"{SCRATCH}/recorder"  # inside
PYTHON, ZYGOTE = sys.executable, Path(__file__).with_name("zygote.py")
GONE_WITHIN = 60.0  # seconds, once a sandbox has been killed
INHERITED = ("PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
ETC = {  # the whole of /etc, but for what the linker needs
    "hosts": "127.0.0.1 localhost sandbox\n",
    "passwd": "student:x:1000:1000::/tmp:/bin/sh\n",
    "group": "student:x:1000:\n",
    "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
}
REFUSAL = (
    "make grade runs students' programs, and needs bubblewrap to keep them from your"
    " files; or you trust everybody, and say UNSAFE=1."
)
NOT_STARTED = "not started: the submission was ended by force"
WEAK = (
    "There can be no control group here, so that nothing but a watchdog bounds the"
    " memory and the processes of a submission: grade as root of a machine, or where"
    " systemd lends you a scope, as in a login session."
)


def slots() -> int:
    """Return how many runs may go on at once: one for each core, or for each GPU."""
    return gpus() or len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    seconds: float = 600
    """Of a core, for all its runs: of right answers gpt3d's takes most of them, 30."""
    wall: float = 3600
    """Seconds that they may last together: after that nobody's answer is to blame."""
    memory: int = 6 * GB
    """Bytes of all its processes together; each may have two thirds of it."""
    tasks: int = 300
    """Processes and threads."""
    disk: int = GB
    """Bytes in each of the three folders that can be written; they are in memory."""
    file: int = GB // 2
    """Bytes of one file."""
    output: int = 50_000_000
    """Bytes that one run may print."""

    def of_a_process(self) -> list[int]:
        """Return what zygote.py needs to know."""
        return [self.memory * 2 // 3, self.file, self.output]


def available() -> str | None:
    """Return why there can be no sandbox here; None if there can."""
    if not shutil.which("bwrap"):
        return f"{REFUSAL}\n{remedy.remedy()}"
    if not fence.known():
        machine = platform.machine()
        return f"{REFUSAL}\nits list of system calls has no column for {machine}"
    words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        trouble = f"bubblewrap does not work here ({said[0]})"
        return "\n".join(filter(None, [REFUSAL, trouble, remedy.remedy()]))
    return None


def weak() -> str | None:
    """Return which limit does not hold here as it should; None if all of them do."""
    return None if groups.homes() else WEAK


def gpus() -> int:
    """Return how many GPUs this machine shows."""
    return len(glob.glob("/dev/nvidia[0-9]*"))


# --- the warm process ---


class Zygote:
    """The warm process of this judge: started when first needed (see zygote.py)."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def fork(self, *files: int) -> None:
        """Let it fork a keeper, which gets `files`.

        Raises:
            SandboxError: if it does not come up.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._control
            socket.send_fds(self._control, [b"!"], files)

    def _start(self) -> None:
        self.close()
        traces.sweep()
        self._control, its_end = socket.socketpair()
        with tempfile.TemporaryFile() as said, its_end:
            self._process = subprocess.Popen(
                [PYTHON, str(ZYGOTE), "--no-job"],  # for `ddp-lab why`
                stdin=its_end.fileno(),
                stdout=said,
                stderr=said,
                env=_environment(),
                start_new_session=True,
            )
            its_end.close()
            if not self._control.recv(100):
                self._process.wait()
                said.seek(0)
                words = said.read().decode(errors="replace").strip().splitlines()
                raise SandboxError("\n".join(words[-5:]) or "it did not start")

    def close(self) -> None:
        """Let it end, and with it all that it has forked."""
        if self._process and self._control:
            self._control.close()
            self._process.wait()
        self._process = self._control = None


WARM = Zygote()
atexit.register(WARM.close)


def _environment() -> dict[str, str]:
    """Return the environment of every process of a sandbox."""
    env = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return env | {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


# --- one run ---


class _Run:
    """One sandbox, and its keeper; to be closed.

    Args:
        limits: what it may take.
        recorder: the socket that it shall find at RECORDER.
        group: the control group of its submission, if there is one.

    Raises:
        SandboxError: if it does not come up.
    """

    def __init__(self, limits: Limits, recorder: str, group: groups.Group | None):
        self.etc = traces.folder()
        for name, text in ETC.items():
            (self.etc / name).write_text(text)
        self.begun = time.monotonic()
        self.init = self.keeper = 0
        self._closing = threading.Lock()
        with ExitStack() as opened:
            info, say = os.pipe()
            opened.callback(os.close, info)
            words = _bwrap(limits, recorder, self.etc)
            self.process = subprocess.Popen(
                [*words, "--info-fd", str(say), "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                pass_fds=[say],
                start_new_session=True,
            )
            os.close(say)
            try:
                self._enter(info, group, opened)
            except (OSError, EOFError, ValueError) as error:
                errors = self.process.stderr
                self.process.kill()
                said = errors.read(4000).decode(errors="replace") if errors else ""
                self.close()
                raise SandboxError(said.strip() or f"no sandbox: {error}") from None

    def _enter(self, info: int, group: groups.Group | None, opened: ExitStack) -> None:
        """Have the keeper forked."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests and answers
        with open(info, closefd=False) as said:
            self.init = int(json.load(said)["child-pid"])
        requests.write(b"\n")
        requests.flush()
        if not answers.readline():  # cat is the last that bubblewrap does
            raise EOFError("it has ended")
        inside = os.pidfd_open(self.init)
        opened.callback(os.close, inside)
        if self.process.poll() is not None:  # or the number could be another's by now
            raise EOFError("it has ended")
        self.channel, its_end = socket.socketpair()
        entries = group.entries() if group else []
        for entry in entries:
            opened.callback(os.close, entry)
        with its_end:
            WARM.fork(its_end.fileno(), inside, *entries)
        self.answers = self.channel.makefile("rb")
        self.keeper = int(runner.read(self.answers)[0]["keeper"])

    def ask(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        """Return the keeper's answer."""
        with self.channel.makefile("wb") as requests:
            runner.write(requests, header, files)
        return runner.read(self.answers)

    def kill(self) -> None:
        """Kill all its processes; whoever waits for an answer gets none."""
        self.process.kill()
        with suppress(OSError, AttributeError):
            self.channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End whatever still runs, and remove what it has needed."""
        self.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]
        with suppress(AttributeError):
            self.answers.close()
            self.channel.close()
        shutil.rmtree(self.etc, ignore_errors=True)
        end = time.monotonic() + GONE_WITHIN
        # When the first process of the namespace has ended, all others have.
        while time.monotonic() < end and (_lives(self.init) or _lives(self.keeper)):
            time.sleep(0.005)


def _bwrap(limits: Limits, recorder: str, etc: Path) -> list[str]:
    """Return bubblewrap's own arguments. What is not named here is not there."""
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    if _knows("--disable-userns"):  # from 0.8; without it, fence.py has to do
        words += ["--disable-userns"]
    words += ["--cap-drop", "ALL", "--hostname", "sandbox"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in (SCRATCH, "/tmp", "/dev/shm"):
        words += ["--size", str(limits.disk), "--tmpfs", path]
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
    words += ["--bind", recorder, RECORDER]
    for path in [*_python(), str(ROOT / "ddp_lab")]:
        words += ["--ro-bind", path, path]
    if gpus():
        words += ["--ro-bind", "/sys", "/sys"]
        for device in glob.glob("/dev/nvidia*"):
            words += ["--dev-bind", device, device]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


@functools.cache
def _knows(option: str) -> bool:
    """Tell whether this bubblewrap has an option."""
    done = subprocess.run(["bwrap", "--help"], capture_output=True, text=True)
    return option in done.stdout


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
    stat = watchdog.stat_of(pid)
    return bool(stat) and stat[0] != "Z"


# --- all runs of a submission ---


LOOK_EVERY = 0.1  # seconds between two looks at what a submission takes
SIDE_BY_SIDE = 4  # runs of one submission, which share its bounds
SLOTS = slots()


class _Slots:
    """How many runs go on at once, of all submissions of this judge."""

    def __init__(self, count: int):
        self.free = count
        self._changed, self._in_line = threading.Condition(), threading.Lock()

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        with self._in_line, self._changed:  # who wants all is not overtaken
            self._changed.wait_for(lambda: self.free >= count)
            self.free -= count
        try:
            yield
        finally:
            with self._changed:
                self.free += count
                self._changed.notify_all()


_SLOTS = _Slots(SLOTS)


class Sandbox(Rig):
    """A rig whose runs each have a sandbox; close it in the end.

    Several threads may run at once. When a limit has ended one run, all others of the
    submission are ended too, and none is started any more.
    """

    def __init__(
        self,
        assignment: Assignment,
        programs: Mapping[str, str],
        limits: Limits | None = None,
    ):
        super().__init__(assignment, programs)
        self.limits = limits or Limits()
        self.at_once = min(SLOTS, SIDE_BY_SIDE)
        self._spent = self._lasted = 0.0  # seconds of a core, and by the clock
        self._late = False
        self._group: groups.Group | None = None
        self._runs: list[_Run] = []
        self._watchdog: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def _execute(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        if self.ended or self._closed.is_set():
            return self._not_started()
        self._begin()
        with _SLOTS.take(SLOTS if header.get("quiet") else 1):
            return self._run(header, files)

    def _run(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        run = _Run(self.limits, header["recorder"], self._group)
        self._runs.append(run)
        try:
            if self.ended or self._closed.is_set():  # meanwhile
                return self._not_started()
            asked = {"recorder": RECORDER, "limits": self.limits.of_a_process()}
            answer, found = run.ask(header | asked, files)
            self._spent += float(answer.get("seconds", 0))
            self.ended = self.ended or self._over()  # before the next one begins
            return answer, found
        except Exception as error:  # it was killed, or what it wrote is no answer
            if self._closed.is_set():
                return self._not_started()
            why = self.ended or f"the sandbox broke off ({type(error).__name__})"
            return {"failure": f"the run was ended: {why}"}, {}
        finally:
            self._runs.remove(run)
            self._lasted += time.monotonic() - run.begun
            run.close()

    def _not_started(self) -> runner.Answer:
        """Return the answer of a run that there is none of.

        Raises:
            SandboxError: if the judge has closed the sandbox: nobody is to blame.
            Busy: if the runs have lasted too long: nor is anybody then.
        """
        if self._late:
            raise Busy(f"all runs have lasted {self.limits.wall:.0f} seconds")
        if self._closed.is_set():
            raise SandboxError("it was closed")
        return {"failure": f"{NOT_STARTED}: {self.ended}"}, {}

    def _begin(self) -> None:
        """Make the control group, and watch, unless that is done already."""
        with self._lock:
            if self._watchdog is None:
                self._group = groups.make(self.limits.memory, self.limits.tasks)
                self._watchdog = threading.Thread(target=self._watch, daemon=True)
                self._watchdog.start()

    def close(self) -> None:
        """End whatever still runs. There can be no later run."""
        self._closed.set()
        self._kill()
        with self._lock:
            if self._watchdog:
                self._watchdog.join()
            if self._group:
                self._group.close()

    def _kill(self) -> None:
        for run in list(self._runs):
            run.kill()

    def _watch(self) -> None:
        """End it when it goes over a limit."""
        while not (self.ended or self._closed.wait(LOOK_EVERY)):
            self.ended, now = self.ended or self._over(), time.monotonic()
            lasted = self._lasted + sum(now - run.begun for run in [*self._runs])
            if not self.ended and lasted > self.limits.wall:
                self._late = True
                self._closed.set()
        self._kill()

    def _over(self) -> str:
        """Return which limit has been met; "" if none."""
        if self._spent > self.limits.seconds:
            return f"it took more than {self.limits.seconds:.0f} seconds of a core"
        if self._group:
            met = self._group.over()
        else:
            pids = [pid for r in list(self._runs) for pid in (r.process.pid, r.keeper)]
            tasks, memory = watchdog.count(pids, self.limits.memory)
            met = "memory" if memory > self.limits.memory else ""
            met = "pids" if tasks > self.limits.tasks else met
        if met == "memory":
            return f"it used more than {self.limits.memory / GB:.3g} GB of memory"
        if met == "pids":
            return f"it had more than {self.limits.tasks} processes and threads"
        return ""
