"""Run a harness beside a student's program, and collect what the ranks gave.

A notebook's own checks call `execute` in their process. In a sandbox the same is done
in parts by several processes: see zygote.py. A request and an answer are a line of
JSON, then the bytes of the files that it lists; see `write` and `read`.
"""

import glob
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank import Limits, Run

LARGEST_ANSWER = 100_000_000  # bytes of all its files
LARGEST_HEADER = 1_000_000  # bytes of its first line
# The first sign of life may be late, because a machine that grades is busy.
FIRST_SIGN = 120.0  # seconds
RESERVE = 60.0  # seconds

Answer = tuple[dict, dict[str, bytes]]  # how a run went, and its files


@dataclass(frozen=True)
class Look:
    """A look at a run and at the machine, all in seconds."""

    at: float
    busy: float
    """For how long the cores have worked by then, all together."""
    threads: dict[str, tuple[float, float]]
    """For how long each thread of the run has had a core, and has waited for one."""


def write(stream: IO[bytes], header: dict, files: dict[str, bytes]) -> None:
    """Write a message: `header` and the sizes of `files` as a line, then the files."""
    sizes = [[name, len(data)] for name, data in files.items()]
    stream.write(json.dumps({**header, "files": sizes}).encode() + b"\n")
    for data in files.values():
        stream.write(data)
    stream.flush()


def read(stream: IO[bytes]) -> Answer:
    """Read one message. Its author is not trusted.

    Raises:
        EOFError: if nobody writes any more.
        ValueError: if it is not a message, or too large.
    """
    line = stream.readline(LARGEST_HEADER)
    if not line:
        raise EOFError("the other side is gone")
    header = json.loads(line)
    sizes = header.pop("files")
    if not all(isinstance(name, str) and int(size) >= 0 for name, size in sizes):
        raise ValueError("not a list of files")
    if sum(int(size) for _, size in sizes) > LARGEST_ANSWER:
        raise ValueError(f"more than {LARGEST_ANSWER:,} bytes")
    files = {name: stream.read(int(size)) for name, size in sizes}
    if any(len(files[name]) != int(size) for name, size in sizes):
        raise EOFError("the other side is gone")
    return header, files


def execute(
    header: dict, files: dict[str, bytes], limits: "Limits | None" = None
) -> Answer:
    """Run what `header` asks for, in a new folder; return how it went and its files.

    Args:
        header: ranks, timeout in seconds, and the socket to which the ranks connect.
        files: by path in the folder: `harness.py`, which is run, what it imports,
            `answer/NAME.py`, `inputs_RANK`, `out/NAME`.
        limits: what the run may take beside its timeout; by default as a lesson's.
    """
    from ddp_lab.kit import WARM

    folder = Path(tempfile.mkdtemp(prefix="classroom-"))
    try:
        fill(folder, header, files)
        answer = launch(header, folder, limits, starter=WARM)
        return answer, collect(folder / "out", answer)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def graded(output: int) -> "Limits":
    """Return what a run may take when it is graded, and may print so many bytes."""
    from whichrank import Limits

    return Limits(first_sign=FIRST_SIGN, output=output)


def fill(folder: Path, header: dict, files: dict[str, bytes]) -> None:
    """Put into a run's folder what the ranks shall find there."""
    for name in ("answer", "out"):
        (folder / name).mkdir(parents=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "recorder").symlink_to(header["recorder"])


def launch(header: dict, folder: Path, limits: "Limits | None", **more: Any) -> dict:
    """Run the harness in `folder` as `header` asks; return how it went.

    Args:
        more: what else `whichrank.torchrun` takes.
    """
    from whichrank import Limits, RunFailed, RunInterrupted, torchrun

    late, alone = False, limits is not None  # in a sandbox all processes are the run's
    looks = [look(alone, {})]

    def watch(run: "Run") -> None:
        nonlocal late
        if run.code is not None:  # once it is stopped, it is asked where it stands
            return
        if (now := time.monotonic()) > looks[-1].at + 1:
            looks.append(look(alone, looks[-1].threads))
        if now > looks[0].at + limit(header["timeout"]) and not late:
            late = True
            raise KeyboardInterrupt

    try:
        words = [str(folder / "harness.py"), str(folder)]
        command = ["--nproc-per-node", str(header["ranks"]), *words]
        more |= {"timeout": header["timeout"], "limits": limits or Limits()}
        run = torchrun(command, watch=watch, **more)
    except (RunFailed, RunInterrupted) as failed:
        if failed.run is None or (isinstance(failed, RunInterrupted) and not late):
            raise
        run = failed.run
    answer = told(run, folder)
    if run.failure and (late or run.failure.kind == "timeout"):
        lasted = limit(header["timeout"]) if late else header["timeout"]
        began = looks[-1].at - lasted
        first = next(each for each in looks if each.at >= began)
        worked = looks[-1].at - first.at - hindered(first, looks[-1])
        answer |= {"late": lasted} if late else {}
        answer["starved"] = worked < header["enough"]
    return answer


def limit(timeout: float) -> float:
    """Return the seconds after which a run ends that is never silent for `timeout`."""
    return 3 * timeout + RESERVE


def told(run: "Run", folder: Path) -> dict:
    """Return how a run in `folder` went."""
    text = run.failure and _tidy(run.failure.report(traceback=False), folder)[:4000]
    return {"failure": text, "exit_codes": run.exit_codes}


def look(alone: bool, before: dict[str, tuple[float, float]]) -> Look:
    """Look at the run below this process; where there is no /proc, nothing is seen.

    Args:
        alone: whether all processes that are here are the run's.
        before: the threads of the last look; what has ended since counts all the same.
    """
    import psutil

    pids = [p.pid for p in psutil.Process().children(recursive=True)]
    threads, cores = {**before}, [0]
    with suppress(OSError):
        everybody = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        pids = [p for p in everybody if p != os.getpid()] if alone else pids
        cores = [*map(int, Path("/proc/stat").read_text().split()[1:9])]
        del cores[3:5]  # idle, and idle because of a disk
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with suppress(OSError, ValueError):  # it has ended
                ran, waited, _ = map(int, Path(path).read_text().split())
                threads[path] = ran / 1e9, waited / 1e9
    return Look(time.monotonic(), sum(cores) / os.sysconf("SC_CLK_TCK"), threads)


def hindered(first: Look, last: Look) -> float:
    """Return for how many seconds between two looks others have kept a run waiting.

    The thread that has waited most for a core is what a run waits for; whoever waits
    for a message wants no core. Others are to blame for their part of all that the
    cores have done meanwhile but for that thread; for the rest the run is, itself.
    """
    threads = []
    for name, now in last.threads.items():
        before = first.threads.get(name, (0.0, 0.0))
        threads.append((now[0] - before[0], now[1] - before[1]))
    own = sum(ran for ran, _ in threads)
    others = max(0.0, last.busy - first.busy - own)
    ran, waited = max(threads, key=lambda thread: thread[1], default=(0.0, 0.0))
    return waited * others / max(others + own - ran, 1e-9)


def _tidy(text: str, folder: Path) -> str:
    """Return `text` with the names of files as the student knows them."""
    for prefix in (f"{folder}/answer/", f"{folder}/"):
        text = text.replace(prefix, "")
        relative = os.path.relpath(prefix) + "/"
        text = text.replace(relative, "")
    # A line of ours is none that a student could mend.
    ours = "|".join(re.escape(path.name) for path in folder.glob("*.py"))
    text = re.sub(rf"\n  at ({ours}):[^\n]*", "", text)
    return re.sub(
        rf"(at|in) ({ours}):[^;\n]*", "in the check, outside your program", text
    )


def collect(out: Path, answer: dict) -> dict[str, bytes]:
    """Return the files in `out`; if an answer holds no more, the run has failed."""
    found, left = {}, LARGEST_ANSWER
    for path in sorted(out.rglob("*")):
        with suppress(OSError):
            if path.is_symlink() or not path.is_file() or path.suffix == ".part":
                continue
            data = b"" if (size := path.stat().st_size) > left else path.read_bytes()
            if (size := max(size, len(data))) > left:
                why = f"the files of a run are more than {LARGEST_ANSWER:,} bytes"
                answer["failure"] = answer.get("failure") or f"{path.name}: {why}"
                continue
            left -= size
            found[str(path.relative_to(out))] = data
    return found
