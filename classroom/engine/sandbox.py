"""Run a student's programs where they can harm nobody: a rig behind bubblewrap.

Every run has a sandbox of its own, which ends with it: a network of nothing but
loopback, processes and shared memory of its own, three small folders in memory; of all
other files there are those that Python needs, to be read. So nothing lives from one run
to the next, and no submission, solution, expected value or gradebook is in sight.
No process in it has a capability, nor may make a namespace (fence.py).
Who says how a run went is not in there (zygote.py), nor is who keeps what the ranks say
while they work (recorder.py): of that one there is a socket to speak into.
All processes of a submission are in one control group, by which the kernel bounds their
memory and number (groups.py). A submission that meets a bound runs no more.
"""

import atexit
import json
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import whichrank
from classroom.engine import fence, groups, remedy, runner
from classroom.engine.assignment import Assignment
from classroom.engine.rig import Rig, SandboxError
from ddp_lab import ROOT
from whichrank import channels

GB = 1_000_000_000
SCRATCH = "/run"  # as zygote.py knows it
RECORDER = f"{SCRATCH}/recorder"  # inside
WHICHRANK = str(Path(whichrank.__file__).parent)
PYTHON, ZYGOTE = sys.executable, Path(__file__).with_name("zygote.py")
WITHIN = 60.0  # seconds, for what takes no time where a machine is not busy
EACH = 0.2  # seconds from look to look at the limits, while a run goes on
INHERITED = "PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH"
ETC = {  # the whole of /etc, but for what the linker needs
    "hosts": "127.0.0.1 localhost sandbox\n",
    "passwd": "student:x:1000:1000::/tmp:/bin/sh\n",
    "group": "student:x:1000:\n",
    "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
}
REFUSAL = (
    "make grade runs students' programs, and needs bubblewrap and a control group to"
    " keep them from your files and your memory; or you trust everybody, and say"
    " UNSAFE=1."
)
NOT_STARTED = "not started: the submission was ended by force"


@dataclass(frozen=True)
class Limits:
    """What one submission may use."""

    seconds: float = 600
    """Of a core, for all its runs: of right answers Resume's takes most of them, 60."""
    memory: int = 6 * GB
    """Bytes of all its processes together, with their files, which are in memory."""
    tasks: int = 300
    """Processes and threads."""
    disk: int = GB
    """Bytes in each of the three folders that can be written."""
    output: int = 50_000_000
    """Bytes that one run may print."""


def available() -> str | None:
    """Return why there can be no sandbox here, and what to do; None if there can."""
    if not fence.known() and sys.platform == "linux":
        machine = platform.machine()
        return f"{REFUSAL}\nits list of system calls has no column for {machine}"
    if not shutil.which("bwrap"):
        return f"{REFUSAL}\n{remedy.remedy()}"
    words = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        trouble = f"bubblewrap does not work here ({said[0]})"
        return "\n".join(filter(None, [REFUSAL, trouble, remedy.remedy()]))
    return None if groups.homes() else f"{REFUSAL}\n{remedy.NO_GROUP}"


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
        self._control, its_end = socket.socketpair()
        with tempfile.TemporaryFile() as said, its_end:
            self._process = subprocess.Popen(
                [PYTHON, str(ZYGOTE), channels.NO_JOB],
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
        "OMP_NUM_THREADS": "1",
    }


# --- one run ---


class _Run:
    """One sandbox, and its keeper; to be closed.

    Args:
        limits: what it may take.
        recorder: the socket that it shall find at RECORDER.
        group: the control group of its submission.

    Raises:
        SandboxError: if it does not come up.
    """

    def __init__(self, limits: Limits, recorder: str, group: groups.Group):
        self.channel, its_end = socket.socketpair()
        self.lives: list[int] = []  # pidfds: of the sandbox's first process, the keeper
        with ExitStack() as opened:
            opened.enter_context(its_end)
            etc = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            for name, text in ETC.items():
                (etc / name).write_text(text)
            info = opened.enter_context(tempfile.TemporaryFile())
            calls = opened.enter_context(tempfile.TemporaryFile())
            calls.write(fence.program())
            calls.seek(0)
            words = [*_bwrap(limits, recorder, etc), "--info-fd", str(info.fileno())]
            self.process = subprocess.Popen(
                [*words, "--seccomp", str(calls.fileno()), "cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                pass_fds=[info.fileno(), calls.fileno()],
                start_new_session=True,
            )
            try:
                self._wait_for_it()
                info.seek(0)
                self._note(json.load(info)["child-pid"])
                for entry in (entries := group.entries()):
                    opened.callback(os.close, entry)
                WARM.fork(its_end.fileno(), self.lives[0], *entries)
                self._note(runner.read(self.channel.makefile("rb"))[0]["keeper"])
            except (OSError, EOFError, ValueError, SandboxError) as error:
                self.process.kill()
                assert self.process.stderr
                said = self.process.stderr.read(4000).decode(errors="replace").strip()
                self.close()
                raise SandboxError(said or f"no sandbox: {error}") from None

    def _wait_for_it(self) -> None:
        """Wait until it is there: cat is the last that bubblewrap does."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests and answers
        requests.write(b"\n")
        requests.flush()
        if not answers.readline():
            raise EOFError("it has ended")

    def _note(self, pid: int) -> None:
        """Remember a process, which is there for sure until somebody else ends it."""
        self.lives.append(os.pidfd_open(pid))
        if self.process.poll() is not None:  # or the number could be another's by now
            raise EOFError("it has ended")

    def ask(
        self, header: dict, files: dict[str, bytes], over: Callable[[], object]
    ) -> runner.Answer:
        """Return the keeper's answer.

        Raises:
            TimeoutError: if a limit has been met (`over`), or if there is none long
                after the run should have ended.
        """
        patience = 2 * runner.limit(header["timeout"]) + runner.FIRST_SIGN
        self.channel.settimeout(patience)
        end = time.monotonic() + patience
        with self.channel.makefile("wb") as asked, self.channel.makefile("rb") as told:
            runner.write(asked, header, files)
            while not select.select([self.channel], [], [], EACH)[0]:
                if over() or time.monotonic() > end:
                    raise TimeoutError
            return runner.read(told)

    def close(self) -> None:
        """Kill all its processes, and wait for their end."""
        self.process.kill()
        self.process.communicate()
        self.channel.close()
        for process in self.lives:
            # When the first one of its namespace has ended, all others have.
            select.select([process], [], [], WITHIN)
            os.close(process)


def _bwrap(limits: Limits, recorder: str, etc: Path) -> list[str]:
    """Return bubblewrap's own arguments. What is not named here is not there."""
    words = [shutil.which("bwrap") or "bwrap"]  # a run has another PATH than we
    words += ["--unshare-all", "--die-with-parent", "--new-session"]
    words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
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
    for path in [*_python(), str(ROOT / "ddp_lab"), WHICHRANK]:
        words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


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


# --- all runs of a submission ---


SIDE_BY_SIDE = 4  # runs of one submission, which share its bounds
SLOTS = len(os.sched_getaffinity(0))  # runs of all submissions: one for each core


class _Slots:
    """How many runs go on at once, of all submissions of this judge."""

    def __init__(self, count: int):
        self._free, self._in_line = threading.Semaphore(count), threading.Lock()

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        with self._in_line:  # who wants all is not overtaken
            for _ in range(count):
                self._free.acquire()
        try:
            yield
        finally:
            self._free.release(count)


_SLOTS = _Slots(SLOTS)


class Sandbox(Rig):
    """A rig whose runs each have a sandbox; close it in the end.

    Several threads may run at once. When a run has met a limit, what is over later has
    failed, and none is started any more.

    Raises:
        OSError: if there can be no control group.
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
        self.ended = ""  # why, if it was ended by force
        self._group = groups.make(self.limits.memory, self.limits.tasks)

    def _execute(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        with _SLOTS.take(SLOTS if header["quiet"] else 1):
            if self.ended:
                return {"failure": f"{NOT_STARTED}: {self.ended}"}, {}
            try:
                run = _Run(self.limits, header["recorder"], self._group)
            except OSError as error:
                raise SandboxError(f"no sandbox: {error}") from None
            try:
                inside = {"recorder": RECORDER, "output": self.limits.output}
                answer, found = run.ask(header | inside, files, self._over)
            except TimeoutError:
                self.ended = self._over() or "long after its end it had given no answer"
            except Exception as error:  # what it wrote is no answer
                why = f"the sandbox broke off ({type(error).__name__})"
                answer, found = {"failure": f"the run was ended: {why}"}, {}
            finally:
                run.close()
            self.ended = self.ended or self._over()
        if self.ended:
            return {"failure": f"the run was ended: {self.ended}"}, {}
        return answer, found

    def close(self) -> None:
        """Remove the control group. There can be no later run."""
        self._group.close()

    def _over(self) -> str:
        """Return which limit has been met; "" if none."""
        if self._group.seconds() > self.limits.seconds:
            return f"it took more than {self.limits.seconds:.0f} seconds of a core"
        met = self._group.over()
        if met == "memory":
            return f"it used more than {self.limits.memory / GB:.3g} GB of memory"
        if met == "pids":
            return f"it had more than {self.limits.tasks} processes and threads"
        return ""
