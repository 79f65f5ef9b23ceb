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
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp_lab.kit.run.limits import Limits
    from ddp_lab.kit.run.result import Run

LARGEST_ANSWER = 100_000_000  # bytes of all its files
LARGEST_HEADER = 1_000_000  # bytes of its first line
# The first sign of life may be late, because a machine that grades is busy.
FIRST_SIGN = 120.0  # seconds
STARVED = 0.2  # of the time, that threads have waited for a core
ITS_OWN = 0.75  # of the cores that the ranks can use: then they wait for each other
RESERVE = 60.0  # seconds that a run may take beyond three times its timeout

Answer = tuple[dict, dict[str, bytes]]  # how a run went, and its files
Look = tuple[float, float, float]  # when, and what `cores` tells


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
    folder = Path(tempfile.mkdtemp(prefix="classroom-"))
    try:
        fill(folder, header, files)
        answer = launch(header, folder, limits)
        return answer, collect(folder / "out", answer)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def graded(output: int) -> "Limits":
    """Return what a run may take when it is graded, and may print so many bytes."""
    from ddp_lab.kit.run.limits import Limits

    return Limits(first_sign=FIRST_SIGN, output=output, keep=False)


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
        more: what else `torchrun` of the lab's launcher takes.
    """
    from ddp_lab.kit.launch import torchrun
    from ddp_lab.kit.run.limits import Limits
    from ddp_lab.kit.run.result import RunFailed, RunInterrupted

    # Beside the silence that the launcher waits for, a run has an end in any case: a
    # program that prints for ever is never silent.
    limit = 3 * header["timeout"] + RESERVE
    end = time.monotonic() + limit
    late, alone = False, limits is not None  # in a sandbox all processes are the run's
    looks = deque[Look]([(time.monotonic(), 0.0, 0.0)])
    seen: dict[str, list[int]] = {}

    def watch(run: "Run") -> None:
        nonlocal late
        # Once it is stopped, it takes its time to be asked where it stands.
        if run.code is None and time.monotonic() > looks[-1][0] + 1:
            ours = ["[0-9]*"] if alone else below()
            looks.append((time.monotonic(), *cores(seen, ours)))
        while looks[-1][0] - looks[0][0] > header["timeout"]:
            looks.popleft()
        if time.monotonic() > end and not late and run.code is None:
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
    if failure := run.failure:
        if late:
            answer["late"] = limit
        if late or failure.kind == "timeout":
            here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
            useful = min(header["ranks"], here)
            answer["starved"] = starved(useful, looks[0], looks[-1])
    return answer


def told(run: "Run", folder: Path) -> dict:
    """Return how a run in `folder` went."""
    text = run.failure and _tidy(run.failure.report(traceback=False), folder)[:4000]
    return {"failure": text, "exit_codes": run.exit_codes}


def below() -> list[int]:
    """Return the processes that this one has started, and that these have."""
    import psutil

    return [process.pid for process in psutil.Process().children(recursive=True)]


def cores(seen: dict[str, list[int]], pids: Iterable) -> tuple[float, float]:
    """Return the seconds that processes have run, and waited for a core.

    Args:
        seen: of each thread what it had when it was last seen; what has ended since
            counts all the same.
        pids: which processes; "[0-9]*" are all that are here.
    """
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
            with suppress(OSError, ValueError):  # it has ended
                seen[path] = [*map(int, Path(path).read_text().split()[:2])]
    ran, waited = map(sum, zip(*seen.values(), strict=True)) if seen else (0, 0)
    return ran / 1e9, waited / 1e9


def starved(useful: int, first: Look, last: Look) -> bool:
    """Tell whether a run that was silent wanted to go on, and was not let.

    Given are how many cores are of use to it, and two looks at `cores`, each after its
    time. Who waits for a message wants no core; and ranks that wait for cores while
    they have nearly all of them have nobody to wait for but each other.
    """
    lasted, got, lost = (
        after - before for before, after in zip(first, last, strict=True)
    )
    return lost > STARVED * lasted and got < ITS_OWN * useful * lasted


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
