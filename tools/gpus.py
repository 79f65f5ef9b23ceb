"""Prove the lab on this machine's accelerators, and record it: `make gpus`.

    python -m tools.gpus

It needs torch, torchvision and psutil, no Jupyter and no network. What matters most
comes first; each section is kept in recorded/NAME_DATE/ as soon as it is done, and a
run that was cut off goes on from there. The page at the end has ✓ and ✗. Exits with 1
if there is a ✗, and with 2 where there is no accelerator.

NCCL refuses two ranks of one machine on one GPU. Where there is only one, the ranks
therefore say that each has a machine of its own (NCCL_HOSTID), and meet on the
loopback: NCCL's real calls, hangs and errors, but not its speed.
"""

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from ddp_lab import ROOT, from_here
from ddp_lab.data import prepare
from ddp_lab.kit import torchrun
from ddp_lab.kit.draw.svg import Svg
from whichrank import Run, RunFailed, channels

FOLDER = ROOT / "recorded"
COPY = ROOT / "build" / "gpus"  # of the programs, where ranks of one GPU are apart
LIMIT, PATIENCE = 60.0, 10.0  # seconds of silence: of a program, of one that fails
MOST, APART = 8, 3  # ranks: at most, and on one GPU
COLD = channels.COLD_ONLY  # a warm process knows the lab's own folder, not the copy
# How the shared end counts GPUs, and how where the ranks of one are apart.
COUNTS = """\
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
"""
COUNTS_APART = """\
        os.environ["NCCL_HOSTID"] = os.environ["RANK"]
        count = int(os.environ["LOCAL_WORLD_SIZE"])
"""
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}
SHOWS_ONE = {  # of its devices, by their kind
    "cuda": {"CUDA_VISIBLE_DEVICES": "0"},
    "xpu": {"ZE_AFFINITY_MASK": "0"},
}

FAILS = {  # what rank 1 does, and what a launch has to say of it
    "raises": "ValueError: a sample is broken",
    "skips": "has not come, and rank",
    "shapes": "float32 (524288,)",  # NCCL checks none: the run may end well
    "memory": "OutOfMemoryError",
    "leaves": "has left, and rank",
}
SICK = "bench/programs/fails.py"
OPTIONS = {name: "--max-restarts 3" for name in ("elastic/restart", "elastic/survive")}
ARGUMENTS = {
    "elastic/survive": "--die 12",
    "cifar10/resnet": "--epochs 2 --train-images 2560 --test-images 512",
}
# Sick on purpose, not solved yet, measured below, started in another way.
LEFT_OUT = re.compile(r"clinic/|\w+/(exercise|puzzle)|nodes/spawn")


def machine() -> dict[str, Any]:
    """Return what this machine has: devices, links, versions."""
    kind = torch.accelerator.current_accelerator().type
    module = torch.get_device_module(kind)
    return {
        "kind": kind,
        "devices": [module.get_device_name(n) for n in range(module.device_count())],
        "links": said_by("nvidia-smi", "topo", "-m"),
        "driver": said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv"),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) * (kind == "cuda"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": said_by("git", "rev-parse", "--short", "HEAD"),
    }


def said_by(*words: str) -> str:
    """Return what a command prints, without colors; "" if it is not there."""
    if not shutil.which(words[0]):
        return ""
    said = subprocess.run(words, capture_output=True, text=True, timeout=30).stdout
    return re.sub(r"\x1b\[[\d;]*m", "", said).strip()


def since(commit: str) -> str:
    """Return the page's first line: how to see what has changed since."""
    changed = f"`git diff --stat {commit} -- ddp_lab notebooks` shows what has changed."
    return f"At commit {commit}; {changed}\n" if commit else ""


class Record:
    """What is kept of one machine: a file for each section that is done, and a page."""

    def __init__(self, name: str):
        begun = [path for path in FOLDER.glob(f"{name}_*") if path.is_dir()]
        undone = sorted(path for path in begun if not (path / "page.txt").exists())
        today = FOLDER / f"{name}_{time.strftime('%Y-%m-%d')}"
        self.folder = undone[-1] if undone else today
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines: list[str] = []
        self.wrong = 0

    def section(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what a section has found, {} if it failed; its work is done once."""
        path = self.folder / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text())
        start = time.monotonic()
        try:
            found = work()
        except Exception as error:  # the other sections go on
            self.say(False, name, str(error))
            return {}
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        return found

    def say(self, right: bool, what: str, wrong: str = "") -> None:
        """Add a line to the page, and below it what is wrong."""
        self.wrong += not right
        self.lines += [f"{'✓' if right else '✗'} {what}"]
        self.lines += [f"    {line}" for line in wrong.splitlines()[:12] if not right]
        if not right:
            print(f"✗ {what}: {wrong.partition(chr(10))[0]}", flush=True)

    def end(self, head: str) -> None:
        """Write the page, and print what is not right."""
        right = sum(line.startswith("✓") for line in self.lines)
        total = f"{right} ✓, {self.wrong} ✗"
        (self.folder / "page.txt").write_text(
            "\n".join([head, total, "", *self.lines, ""])
        )
        print(f"{total}: {from_here(self.folder / 'page.txt')}")


@contextmanager
def programs_in(folder: Path, **env: str) -> Iterator[None]:
    """Run programs from a folder that has them, with these variables."""
    before, where = dict(os.environ), Path.cwd()
    os.chdir(folder)
    found = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ.update({"PYTHONPATH": os.pathsep.join(filter(None, found))} | env)
    try:
        yield
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)


def copied_apart() -> Path:
    """Return a copy of the programs whose ranks say that each has its own machine."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in ("ddp_lab", "bench"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, COPY / name, ignore=skip)
    for path in COPY.rglob("*.py"):
        text = path.read_text()
        if COUNTS in text:
            path.write_text(text.replace(COUNTS, COUNTS_APART))
    for name in ("data", "recorded"):
        (COPY / name).symlink_to(ROOT / name)
    return COPY


def hello(ranks: int, folder: Path) -> list[dict]:
    """Join, add up, leave; what NCCL says of itself goes into nccl.txt."""
    log = folder / "nccl.txt"
    with programs_in(Path.cwd(), NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=f"{log}.%p"):
        run = torchrun(f"--nproc-per-node {ranks} ddp_lab/start/hello.py")
    said = sorted(folder.glob(f"{log.name}.*"))
    log.write_text("".join(path.read_text() for path in said[:1]))  # of one rank
    for path in said:
        path.unlink()
    return run.facts


def fails(ranks: int) -> dict[str, Any]:
    """Let rank 1 fail in five ways; return what is told of each."""
    return {how: fail(how, ranks) for how in FAILS}


def fail(how: str, ranks: int) -> dict[str, Any]:
    """Return what a launch tells of one failure, and whether that is right."""
    start = time.monotonic()
    try:
        run = torchrun(
            f"--nproc-per-node {ranks} {SICK} {how}",
            timeout=PATIENCE,
            expect_failure=True,
        )
    except RunFailed as error:  # it has succeeded
        if error.run is None:
            raise
        run = error.run
    report = run.failure.report() if run.failure else ""
    told = "\n".join([report, *map(str, run.notes)])
    # Of two ranks, one of which has left, none is named; its words name it.
    right = FAILS[how] in told and (how in ("shapes", "leaves") or named(run, 1))
    return {
        "right": right,
        "seconds": round(time.monotonic() - start, 1),
        "ended well": not run.failure,
        "told": told.strip(),
    }


def named(run: Run, rank: int) -> bool:
    """Tell whether a run blames this rank."""
    return bool(run.failure and run.failure.rank == rank)


def why(ranks: int) -> dict[str, Any]:
    """Return what `whichrank why` tells of ranks that a plain torchrun has started."""
    words = f"torch.distributed.run --standalone --nproc-per-node {ranks} {SICK} skips"
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen(
            [sys.executable, "-m", *words.split()], stdout=said, stderr=said
        )
        try:
            deadline, seen = time.monotonic() + LIMIT, ""
            while seen.count("all are here") < ranks and time.monotonic() < deadline:
                time.sleep(1)
                said.seek(0)
                seen = said.read()
            look = [sys.executable, "-m", "whichrank", "why", str(job.pid)]
            told = subprocess.run(look, capture_output=True, text=True, timeout=LIMIT)
        finally:
            for process in psutil.Process(job.pid).children(recursive=True):
                process.kill()
            job.kill()
            job.wait()
    return {"right": "rank 1: has not come" in told.stdout, "told": told.stdout}


def memory(ranks: int) -> dict[str, Any]:
    """Return what a rank's device holds after a step with Adam, in bytes."""
    held = {}
    for way in ("DDP", "fully_shard"):
        run = torchrun(f"--nproc-per-node {ranks} bench/programs/memory.py {way}")
        held[way] = run.facts[0]
    numbers = held["DDP"]["parameters"]
    # Weight, gradient, two of Adam, 4 bytes each; DDP's buckets have a gradient more.
    formula = {"DDP": 20 * numbers, "fully_shard": 16 * numbers // ranks}
    return {"ranks": ranks, "formula": formula, "held": held}


def collectives(ranks: int) -> dict[str, Any]:
    """Return the sorted seconds of an all_reduce by size, the slowest rank's."""
    run = torchrun(f"--nproc-per-node {ranks} bench/programs/collectives.py 9")
    seconds = {}
    for size in run["seconds"][0]:
        by_rank = [each[size]["all_reduce"] for each in run["seconds"]]
        seconds[size] = sorted(map(max, zip(*by_rank, strict=True)))
    small, large = list(seconds)[0], list(seconds)[-1]
    middle = {size: times[len(times) // 2] for size, times in seconds.items()}
    per_byte = (middle[large] - middle[small]) / (int(large) - int(small))
    fit = {"alpha, µs": 1e6 * middle[small], "1 / beta, GB/s": 1e-9 / per_byte}
    return {"ranks": ranks, "backend": run["backend"][0], **fit, "seconds": seconds}


def training(ranks: tuple[int, ...]) -> list[dict]:
    """Return images a second, of the old page's program and of the lab's, in pairs."""
    from bench import training

    return [result.as_json() for result in training.measure(2, ranks)]


def step(ranks: int, folder: Path) -> dict[str, float]:
    """Draw a step of DDP, kernels above and all_reduces below, into step.svg."""
    with tempfile.TemporaryDirectory() as there:
        trace = Path(there) / "step.json.gz"
        torchrun(f"--nproc-per-node {ranks} bench/programs/step.py {trace}")
        with gzip.open(trace, "rt") as file:
            events = [e for e in json.load(file)["traceEvents"] if "dur" in e]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    sends = [e for e in kernels if "nccl" in e["name"].lower()] or [
        e for e in events if re.search("gloo:all_?reduce", e["name"])
    ]
    computes = [e for e in kernels if e not in sends]
    begin = min(e["ts"] for e in kernels + sends)
    end = max(e["ts"] + e["dur"] for e in kernels + sends)
    span, told = end - begin, "kernels above, all_reduces below"
    svg = Svg("A step of DDP", f"On rank 0: {told}, {span / 1e3:.0f} ms", height=100)
    for y, color, row in ((10, "#0072B2", computes), (52, "#D55E00", sends)):
        for e in row:
            x, width = 700 * (e["ts"] - begin) / span, 700 * e["dur"] / span
            svg.box(10 + x, y, max(0.5, width), 36, fill=color, radius=0, stroke="none")
    (folder / "step.svg").write_text(str(svg))
    return {
        "ms": span / 1e3,
        "ms of kernels": sum(e["dur"] for e in computes) / 1e3,
        "ms of all_reduce": sum(e["dur"] for e in sends) / 1e3,
    }


def name_of(path: Path) -> str:
    """Return, say, `start/hello`."""
    return f"{path.parent.name}/{path.stem}"


def run_all(ranks: int, jobs: int, kept: Path) -> dict[str, str]:
    """Return what is wrong with each program, "" if nothing; keep each at once."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    done: dict[str, str] = dict(map(json.loads, lines))

    def run(path: Path) -> None:
        name, wrong = name_of(path), ""
        options, words = OPTIONS.get(name, ""), ARGUMENTS.get(name, "")
        try:
            command = f"{options} --nproc-per-node {ranks} {path} {words}"
            torchrun(command, timeout=LIMIT)
        except RunFailed as error:
            wrong = str(error)[:2000]
        done[name] = wrong
        with kept.open("a") as file:
            file.write(json.dumps([name, wrong]) + "\n")

    with ThreadPoolExecutor(jobs) as crew:
        left = [path for path in programs() if name_of(path) not in done]
        list(crew.map(run, left))
    kept.unlink()
    return dict(sorted(done.items()))


def programs() -> list[Path]:
    """Return the programs that succeed by themselves, below this folder."""
    found = sorted(Path("ddp_lab").glob("*/*.py"))
    ours = [path for path in found if path.parent.name != "kit"]
    return [path for path in ours if not LEFT_OUT.match(name_of(path))]


def prove(record: Record, kind: str, count: int) -> None:
    """Do all sections that are not done yet, the most important first.

    Args:
        record: where they are kept.
        kind: of the devices, as in torch.device(kind).
        count: their number.
    """
    folder, alone = record.folder, count == 1
    ranks = APART if alone else min(count, MOST)
    jobs = max(1, (os.cpu_count() or 2) // 3)
    where, env = (copied_apart(), LOOPBACK) if alone else (ROOT, {})
    with programs_in(where, **env, **{COLD: "1"}):
        for facts in record.section("hello", lambda: hello(ranks, folder)):
            joined = (
                f"rank {facts['rank']} joins: {facts['device']}, {facts['backend']}"
            )
            record.say(facts["device"] != "cpu", joined)
        for how, found in record.section("fails", lambda: fails(ranks)).items():
            well = ", and the run ends well" * found["ended well"]
            record.say(found["right"], f"rank 1 {how}{well}", found["told"])
        if found := record.section("why", lambda: why(ranks)):
            record.say(found["right"], "whichrank why", found["told"])
        if found := record.section("memory", lambda: memory(ranks)):
            for way, foreseen in found["formula"].items():
                held = found["held"][way]["with Adam"]
                told = (
                    f"{way} holds {held / 1e6:,.0f} MB, {foreseen / 1e6:,.0f} foreseen"
                )
                record.say(0.9 < held / foreseen < 1.1, told)
        record.section("step", lambda: step(ranks, folder))
        numbers = (1,) if alone else (1, ranks)
        record.section("training", lambda: training(numbers))
        record.section("collectives", lambda: collectives(ranks))
    with programs_in(where, **env):
        kept, side = folder / "own.jsonl", jobs if alone else 1
        pair = 2 if alone else ranks
        ran = record.section("own", lambda: run_all(pair, side, kept))
    for name, wrong in ran.items():
        record.say(not wrong, f"{name}, a device for each rank", wrong)
    if kind not in SHOWS_ONE:
        return
    with programs_in(ROOT, **SHOWS_ONE[kind]):
        kept = folder / "shared.jsonl"
        ran = record.section("shared", lambda: run_all(2, jobs, kept))
    for name, wrong in ran.items():
        record.say(not wrong, f"{name}, one device for all", wrong)


def main() -> None:
    """Prove and record what there is; exit with 1 for a ✗, with 2 for no device."""
    if not torch.accelerator.device_count():
        print("There is no accelerator here: the lab runs over gloo, on the CPU.")
        sys.exit(2)
    here = machine()
    count = len(here["devices"])
    name = re.sub(r"\W+", "_", f"{count} {here['devices'][0]}").strip("_").lower()
    record = Record(name)
    record.section("machine", lambda: here)
    prepare()
    prove(record, here["kind"], count)
    versions = f"torch {here['torch']}, NCCL {here['nccl']}, Python {here['python']}"
    record.end(f"{since(here['commit'])}{count} × {here['devices'][0]}, {versions}")
    sys.exit(bool(record.wrong))


if __name__ == "__main__":
    main()
