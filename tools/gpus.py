"""Prove the lab on this machine's accelerators, and record it: `make gpus`.

    python -m tools.gpus

It needs torch and psutil alone, no Jupyter and no network. What matters most comes
first; what is done is kept in recorded/NAME_DATE/, and a run that was cut off goes on
from there. Exits with 2 where there is no accelerator, with 1 if anything failed.

NCCL refuses two ranks of one machine on one device. On a machine with one GPU the ranks
therefore say that each is on a machine of its own (NCCL_HOSTID), and meet over the
loopback: NCCL's real calls, hangs and errors, but not its speed.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import torch

from ddp_lab import ROOT
from ddp_lab.data import prepare
from ddp_lab.kit import RunFailed, torchrun
from ddp_lab.kit.cell.display import table

FOLDER = ROOT / "recorded"
COPY = ROOT / "build" / "gpus"  # of the lab, where the ranks are apart
LIMIT, PATIENCE = 60.0, 10.0  # seconds of silence: of a program, of one that fails
MOST = 8  # ranks
# What the shared end asks about a machine's GPUs, and what it does instead where the
# ranks of one GPU say that they are on machines of their own.
ASKS = """\
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
"""
APART = """\
        os.environ["NCCL_HOSTID"] = os.environ["RANK"]
        count = int(os.environ["LOCAL_WORLD_SIZE"])
"""
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}

FAILS = {  # what rank 1 does, and what a launch has to say of it
    "raises": ("exception", "ValueError: a sample is broken"),
    "skips": ("timeout", "has not come"),
    "shapes": ("timeout", "all_reduce of float32 (524288,)"),
    "memory": ("exception", "OutOfMemoryError"),
    "leaves": ("timeout", "has left"),
}
RESTARTS = "--max-restarts 3"
WORDS = {  # what a program needs on its command line
    "elastic/restart.py": (RESTARTS, ""),
    "elastic/survive.py": (RESTARTS, "--die 12"),
    "cifar10/resnet.py": ("", "--epochs 2 --train-images 2560 --test-images 512"),
    "cifar10/settings.py": ("", "--rounds 1"),
}
MEMORY = "--nproc-per-node {} bench/programs/memory.py"
LEFT_OUT = (  # sick on purpose, to be solved first, measured below, started otherwise
    r"clinic/|\w+/(exercise|puzzle)|cifar10/fast|nodes/spawn"
)


def machine() -> dict[str, Any]:
    """Return what this machine has: devices, links, versions."""
    kind = torch.accelerator.current_accelerator().type
    module = torch.get_device_module(kind)
    names = [module.get_device_name(n) for n in range(module.device_count())]
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if kind == "cuda" else None
    return {
        "kind": kind,
        "devices": names,
        "memory": [module.get_device_properties(n).total_memory for n in range(1)],
        "links": said_by("nvidia-smi", "topo", "-m"),
        "driver": said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv"),
        "torch": torch.__version__,
        "nccl": nccl,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def said_by(*words: str) -> str:
    """Return what a command prints, without colors; "" if it is not there."""
    if not shutil.which(words[0]):
        return ""
    said = subprocess.run(words, capture_output=True, text=True, timeout=30).stdout
    return re.sub(r"\x1b\[[\d;]*m", "", said).strip()


class Recorder:
    """The folder of one record: sections that are done, and what is said at the end."""

    def __init__(self, name: str, date: str):
        begun = sorted(FOLDER.glob(f"{name}_*"))
        undone = [path for path in begun if not (path / "page.txt").exists()]
        self.folder = undone[-1] if undone else FOLDER / f"{name}_{date}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.marks: list[list[str]] = []  # a mark, what, and what is wrong

    def section(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what a section has recorded; do its work if it is not done yet."""
        path = self.folder / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text())
        start = time.monotonic()
        try:
            found = work()
        except Exception as error:  # the other sections go on
            self.mark(False, name, str(error)[:2000])
            return None
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        return found

    def mark(self, right: bool, what: str, wrong: str = "") -> None:
        """Keep a line of the page."""
        self.marks.append(["✓" if right else "✗", what, "" if right else wrong])
        if not right:
            print(f"✗ {what}: {wrong}", flush=True)


def apart() -> Path:
    """Return a copy of the lab whose ranks say that each has a machine of its own."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in ("ddp_lab", "bench"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, COPY / name, ignore=skip)
    for path in COPY.rglob("*.py"):
        text = path.read_text()
        if ASKS in text:
            path.write_text(text.replace(ASKS, APART))
    (COPY / "data").symlink_to(ROOT / "data")
    return COPY


def at(folder: Path, **env: str) -> None:
    """Run what follows from this folder, with its packages."""
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": str(folder)} | env


def hello(ranks: int, folder: Path) -> list[dict]:
    """Join, add up, leave; keep what NCCL says of itself."""
    os.environ["NCCL_DEBUG"] = "INFO"
    try:
        run = torchrun(f"--nproc-per-node {ranks} ddp_lab/start/hello.py")
    finally:
        del os.environ["NCCL_DEBUG"]
    said = [line for lines in run.lines for line in lines if "NCCL INFO" in line]
    (folder / "nccl.txt").write_text("\n".join(said) + "\n")
    return run.facts


def fails(ranks: int) -> dict[str, Any]:
    """Let rank 1 fail in five ways; return what is told of it."""
    told = {}
    for how, (kind, words) in FAILS.items():
        line = sick_line(how)
        start = time.monotonic()
        run = torchrun(
            f"--nproc-per-node {ranks} bench/programs/fails.py {how}",
            timeout=PATIENCE,
            expect_failure=True,
        )
        failure = run.failure
        report = failure.report()
        told[how] = {
            "right": failure.rank == 1
            and failure.kind == kind
            and words in report
            and (how == "leaves" or failure.line == line),
            "seconds": time.monotonic() - start,
            "report": report,
            "calls": [[str(call) for call in calls][-4:] for calls in run.calls],
            "stderr": [text[-1500:] for text in getattr(run, "stderr", [])],
        }
    return told


def sick_line(how: str) -> int:
    """Return the number of the line at which rank 1 fails."""
    lines = Path("bench/programs/fails.py").read_text().splitlines()
    branch = next(n for n, line in enumerate(lines) if f'how == "{how}"' in line)
    stands = "dist.all_reduce" if how == "shapes" else ""
    return (
        next(n for n, line in enumerate(lines, 1) if stands in line)
        if stands
        else branch + 2
    )


def programs() -> list[Path]:
    """Return the programs that succeed on two ranks, as the lessons run them."""
    found = sorted(Path("ddp_lab").glob("*/*.py"))
    return [
        path
        for path in found
        if path.parent.name != "kit" and not re.match(LEFT_OUT, name_of(path))
    ]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def run_all(ranks: int, jobs: int, kept: Path) -> dict[str, Any]:
    """Run every program; keep each result at once."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {name: how for name, how in map(json.loads, lines)}

    def run(path: Path) -> None:
        options, words = WORDS.get(name_of(path), ("", ""))
        command = f"{options} --nproc-per-node {ranks} {path} {words}"
        start, said, _backend = time.monotonic(), "", ""
        try:
            torchrun(command, timeout=LIMIT)
        except RunFailed as error:
            said = error.run.failure.report() if error.run else str(error)
        how = {"seconds": round(time.monotonic() - start, 1), "said": said[:2500]}
        done[name_of(path)] = how
        with kept.open("a") as file:
            file.write(json.dumps([name_of(path), how]) + "\n")

    with ThreadPoolExecutor(jobs) as crew:
        list(crew.map(run, [p for p in programs() if name_of(p) not in done]))
    kept.unlink()
    return dict(sorted(done.items()))


def why(ranks: int) -> str:
    """Return what `ddp-lab why` tells of ranks that a plain torchrun has started."""
    words = f"-m torch.distributed.run --standalone --nproc-per-node {ranks}"
    words += " bench/programs/fails.py skips"
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen(
            [sys.executable, *words.split()], stdout=said, stderr=said, text=True
        )
        try:
            deadline = time.monotonic() + LIMIT
            while time.monotonic() < deadline:
                time.sleep(1)
                said.seek(0)
                if said.read().count("all are here") == ranks:
                    break
            time.sleep(2)
            look = [sys.executable, "-m", "ddp_lab.kit.terminal", "why"]
            return subprocess.run(
                look, capture_output=True, text=True, timeout=LIMIT
            ).stdout
        finally:
            for child in psutil.Process(job.pid).children(recursive=True):
                child.kill()
            job.kill()
            job.wait()


def training(ranks: tuple[int, ...]) -> list[dict]:
    """Return images a second of the old page's program and of the lab's own."""
    from bench import FOLDER as BESIDE
    from bench import training

    BESIDE.mkdir(parents=True, exist_ok=True)
    return [result.as_json() for result in training.measure(2, ranks)]


def step(ranks: int, folder: Path) -> list[str]:
    """Leave a trace of a step of DDP beside the record."""
    trace = folder / "step.json.gz"
    run = torchrun(f"--nproc-per-node {ranks} bench/programs/step.py {trace}")
    return run["device"]


def collectives(ranks: int) -> dict[str, Any]:
    """Return the sorted seconds of an all_reduce by size, the slowest rank's."""
    run = torchrun(f"--nproc-per-node {ranks} bench/programs/collectives.py 9")
    seconds = {}
    for size in run["seconds"][0]:
        by_rank = [each[size]["all_reduce"] for each in run["seconds"]]
        seconds[size] = sorted(map(max, zip(*by_rank, strict=True)))
    return {"ranks": ranks, "backend": run["backend"][0], "seconds": seconds}


def main() -> None:
    """Do what is not done yet, the most important first; print the page."""
    if not torch.accelerator.device_count():
        print("There is no accelerator here: the lab runs over gloo, on the CPU.")
        sys.exit(2)
    here = machine()
    count = len(here["devices"])
    ranks = min(count, MOST) if count > 1 else 3
    name = re.sub(r"\W+", "_", f"{count}_{here['devices'][0]}").lower()
    record = Recorder(name, time.strftime("%Y-%m-%d"))
    record.section("machine", lambda: here)
    prepare()
    folder = record.folder
    if count == 1:
        at(apart(), **LOOPBACK)
    else:
        at(ROOT)
    record.section("hello", lambda: hello(ranks, folder))
    told = record.section("fails", lambda: fails(ranks)) or {}
    for how, what in told.items():
        record.mark(what["right"], f"rank 1 {how}", what["report"])
    record.section("why", lambda: why(ranks))
    jobs = max(1, min(6, (os.cpu_count() or 2) // 3))
    pair = ranks if count > 1 else 2
    record.section("memory", lambda: torchrun(MEMORY.format(pair)).facts)
    record.section("step", lambda: step(pair, folder))
    record.section("training", lambda: training((1,) if count == 1 else (1, count)))
    kept = folder / "programs.jsonl"
    side = jobs if count == 1 else 1
    ran = record.section("programs", lambda: run_all(pair, side, kept))
    for program, how in (ran or {}).items():
        record.mark(not how["said"], program, how["said"])
    record.section("collectives", lambda: collectives(pair))
    at(ROOT, CUDA_VISIBLE_DEVICES="0")
    ran = record.section("shared", lambda: run_all(2, jobs, folder / "shared.jsonl"))
    for program, how in (ran or {}).items():
        record.mark(not how["said"], f"{program}, one shared", how["said"])
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    page = table([["", "what", "what is wrong"], *record.marks])
    (folder / "page.txt").write_text(page + "\n")
    wrong = [mark for mark in record.marks if mark[0] == "✗"]
    print(f"{len(record.marks) - len(wrong)} ✓, {len(wrong)} ✗: {folder}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
