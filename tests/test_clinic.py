"""The clinic: each patient is sick on 2 and 4 ranks; its cure passes on 2, 3 and 4."""

import ast
import re
from dataclasses import dataclass

import pytest
from conftest import FULL

pytest.importorskip("nbformat", reason="the cells of cures are in notebooks")

from ddp_lab import ROOT
from ddp_lab.kit import RunFailed, torchrun
from tools import notebooks

pytestmark = pytest.mark.processes

ALIKE = {2: None, 4: None}


@dataclass(frozen=True)
class Patient:
    """A program in ddp_lab/clinic/NAME.py, what is wrong with it, and what helps."""

    name: str
    hangs: bool
    """Whether nothing more happens; else a rank raises, or dies."""
    line: str
    """The guilty line; it occurs once, like every text below."""
    old: str
    new: str
    """The cure: what to put in the place of `old`."""
    blame: dict[int, int | None]
    """By world size: the rank that does what no other does; None if all do the same."""
    odd: str = ""
    """The line at which that rank stands, or raises."""
    symptom: str | None = None
    """What the lab calls it, if the program's own check is not the first to notice."""
    rest: str = ""
    """The line at which the others stand; if nobody is to blame, at which all stand."""
    cause: str = ""
    """What the first rank to fail says, if the program does not hang."""
    then: tuple[str, str] | None = None
    """What else to replace: the first cure has only brought the reason to light."""
    reason: str = ""
    """The exception that comes to light."""
    timeout: float = 4
    """Seconds of silence that show a hang."""


PATIENTS = [
    Patient(
        "rank0_collective",
        symptom="different calls",
        hangs=True,
        line="dist.reduce(loss, dst=0)",
        old="""\
            if rank == 0:
                dist.reduce(loss, dst=0)  # rank 0 now holds the sum of all ranks
""",
        new="""\
            dist.reduce(loss, dst=0)  # rank 0 now holds the sum of all ranks
            if rank == 0:
""",
        blame={2: 0, 4: 0},
        odd="dist.reduce(loss, dst=0)",
        rest="dist.all_reduce(gradient)",
    ),
    Patient(
        "rank0_eval",
        symptom="different calls",
        hangs=True,
        line="evaluate(model, *make_data(TESTED, device))",
        old="evaluate(model, *make_data",
        new="evaluate(model.module, *make_data",
        blame={2: 0, 4: 0},
        odd="losses = [F.mse_loss(model(inputs), targets)",
        rest="dist.all_reduce(expected)",
    ),
    Patient(
        "shapes",
        symptom="different tensors",
        hangs=False,
        line="dist.all_gather(parts, mine)",
        old="""\
    parts = [torch.empty_like(mine) for _ in range(world_size)]
    dist.all_gather(parts, mine)  # every rank now holds the labels of all ranks
    return torch.cat(parts)
""",
        new="""\
    longest = -(-IMAGES // world_size)
    padded = torch.zeros(longest, dtype=mine.dtype, device=mine.device)
    padded[: len(mine)] = mine
    parts = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(parts, padded)  # every rank now holds the labels of all ranks
    return torch.cat(parts)[:IMAGES]
""",
        blame={2: 1, 4: 3},
        odd="dist.all_gather(parts, mine)",
        rest="dist.all_gather(parts, mine)",
    ),
    Patient(
        "send_send",
        symptom="cycle",
        hangs=True,
        line="dist.send(send_buf, dst=neighbour)",
        old="""\
    dist.send(send_buf, dst=neighbour)
    dist.recv(recv_buf, src=neighbour)
""",
        new="""\
    if dist.get_rank() < neighbour:
        dist.send(send_buf, dst=neighbour)
        dist.recv(recv_buf, src=neighbour)
    else:
        dist.recv(recv_buf, src=neighbour)
        dist.send(send_buf, dst=neighbour)
""",
        blame=ALIKE,
        rest="dist.send(send_buf, dst=neighbour)",
    ),
    Patient(
        "uneven_batches",
        symptom="different calls",
        hangs=True,
        line="train(model, x[mine], y[mine])",
        old="        train(model, x[mine], y[mine])",
        new="        with dist.algorithms.join.Join([model]):\n"
        "            train(model, x[mine], y[mine])",
        blame={2: 0, 4: 0},
        odd="loss.backward()",
        rest="dist.broadcast(expected, src=0)",
    ),
    Patient(
        "members_only",
        symptom="groups",
        hangs=True,
        line="group = dist.new_group(trainers)",
        old="""\
        if rank in trainers:
            print(f"[rank {rank}] is one of the trainers {trainers}", flush=True)
            group = dist.new_group(trainers)
""",
        new="""\
        group = dist.new_group(trainers)
        if rank in trainers:
            print(f"[rank {rank}] is one of the trainers {trainers}", flush=True)
""",
        blame={2: 1, 4: 3},
        odd="dist.barrier(group=dist.new_group(timeout=TIMEOUT))",
        rest="dist.barrier(group=dist.new_group(timeout=TIMEOUT))",
    ),
    Patient(
        "unused_parameters",
        symptom="unused parameters",
        hangs=False,
        line="train(DDP(curve), x[mine]",
        old="DDP(curve)",
        new="DDP(curve, find_unused_parameters=True)",
        blame=ALIKE,
        rest="F.mse_loss(model(x, corrected), y).backward()",
        cause="Expected to have finished reduction in the prior iteration",
    ),
    Patient(
        "finally_barrier",
        symptom="different calls",
        hangs=True,
        line="dist.barrier()",
        old="""\
            dist.barrier()  # nobody leaves while another one still needs it
""",
        new="",
        blame={2: 1, 4: 1},
        odd="dist.barrier()",
        rest="dist.all_reduce(buf)",
        then=("float(text)", 'float(text.replace(",", "."))'),
        reason="could not convert string to float: '21,5'",
    ),
    Patient(
        "order",
        hangs=False,
        line="for animal in counts:",
        old="for animal in counts:",
        new="for animal in sorted(counts):",
        blame=ALIKE,
        rest="raise AssertionError(",
        cause="AssertionError: counted {",
    ),
    Patient(
        "swallowed",
        symptom="different calls",
        hangs=True,
        line="except Exception:",
        old="""\
            dist.all_reduce(share)  # every rank now holds the sum, and of how many
            weight -= RATE * (share[0] / share[1]).item()
        except Exception:
            continue  # one damaged sample shall not end the training
""",
        new="""\
        except ValueError:
            share = torch.zeros(2, device=device)  # nothing to add, yet it takes part
        dist.all_reduce(share)  # every rank now holds the sum, and of how many
        weight -= RATE * (share[0] / share[1]).item()
""",
        blame={2: 1, 4: 1},
        odd="dist.barrier()",
        rest="dist.all_reduce(share)",
    ),
    Patient(
        "spawn",
        symptom="world in a world",
        hangs=True,
        line="mp.spawn(worker, args=(world_size,), nprocs=world_size)",
        old="""\
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    mp.spawn(worker, args=(world_size,), nprocs=world_size)
""",
        new="""\
    worker(int(os.environ["RANK"]), world_size)
""",
        blame=ALIKE,
        rest="mp.spawn(worker, args=(world_size,), nprocs=world_size)",
    ),
    Patient(
        "port",
        symptom="rendezvous",
        hangs=True,
        line='os.environ["MASTER_PORT"] = "12355"',
        old="""\
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
""",
        new="",
        blame=ALIKE,
        rest="dist.init_process_group(backend",
    ),
    Patient(
        "forgotten_wait",
        hangs=False,
        line="dist.all_reduce(total, async_op=True)",
        old="""\
    dist.all_reduce(total, async_op=True)  # the sum travels meanwhile
    largest = numbers.max()
""",
        new="""\
    work = dist.all_reduce(total, async_op=True)  # the sum travels meanwhile
    largest = numbers.max()
    work.wait()
""",
        blame=ALIKE,
        rest="raise AssertionError(",
        cause="AssertionError: the mean is",
    ),
]


patients = pytest.mark.parametrize(
    "patient", PATIENTS, ids=lambda patient: patient.name
)


def program(patient: Patient) -> str:
    return f"ddp_lab/clinic/{patient.name}.py"


def usage(patient: Patient) -> tuple[int, dict[int, list[str]]]:
    """Return the world size in the docstring, and the lines that each rank is to print.

    The docstring may leave ranks out, but no line of a rank that it shows.
    """
    doc = ast.get_docstring(ast.parse((ROOT / program(patient)).read_text()))
    meant: dict[int, list[str]] = {}
    for line, rank in re.findall(r"^    (\[rank (\d+)\] .*)$", doc, re.MULTILINE):
        meant.setdefault(int(rank), []).append(line)
    return int(re.search(r"--nproc-per-node (\d+) ", doc)[1]), meant


def line_of(patient: Patient, text: str) -> int:
    """Return the number of the one line of the program that has `text`."""
    lines = (ROOT / program(patient)).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def cure(patient: Patient, variant) -> str:
    """Write the healthy program; return its path."""
    path = variant(program(patient), patient.old, patient.new)
    return variant(path, *patient.then) if patient.then else path


def test_every_patient_has_a_row():
    programs = {path.stem for path in (ROOT / "ddp_lab" / "clinic").glob("*.py")}
    assert programs == {patient.name for patient in PATIENTS}


@patients
def test_the_row_points_at_lines_that_are_there(patient):
    text = (ROOT / program(patient)).read_text()
    then = patient.then[:1] if patient.then else ()
    for part in (patient.line, patient.old, *filter(None, (patient.odd, patient.rest))):
        assert text.count(part) == 1, part
    assert all(text.count(part) == 1 for part in then)
    assert (None in patient.blame.values()) == (not patient.odd)


@patients
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
def test_the_patient_is_sick(patient, ranks):
    command = f"--nproc-per-node {ranks} {program(patient)}"
    run = torchrun(command, timeout=patient.timeout, expect_failure=True)
    failure, report = run.failure, run.failure.report()
    assert (failure.kind == "timeout") == patient.hangs, report
    assert failure.symptom == patient.symptom, report
    assert patient.cause in report, report
    assert all(run.lines), "a rank was silent from the start"
    assert patient.rest in report and patient.odd in report
    if patient.hangs:
        # Of two ranks that differ, nothing tells which one does the wrong thing.
        unknown = ranks == 2 and failure.rank is None
        assert unknown or failure.rank == patient.blame[ranks], report
        lines = {line_of(patient, patient.odd or patient.rest)}
        lines |= {line_of(patient, patient.rest)} if unknown else set()
        assert failure.line in lines, report


@patients
@pytest.mark.parametrize(
    "ranks", [2, pytest.param(3, marks=FULL), pytest.param(4, marks=FULL)]
)
def test_the_cure_helps(patient, ranks, variant):
    run = torchrun(f"--nproc-per-node {ranks} {cure(patient, variant)}", timeout=20)
    shown, meant = usage(patient)
    assert meant and len(run.lines) == ranks
    if ranks == shown:
        assert {rank: run.lines[rank] for rank in meant} == meant


SHORTCUTS = {
    "shapes": ("IMAGES = 11", "IMAGES = 12"),
    "uneven_batches": ("SAMPLES, BATCH = 25", "SAMPLES, BATCH = 24"),
    "unused_parameters": ("corrected = step % 2 == 1", "corrected = True"),
    "rank0_eval": ("if rank == 0:", "if rank < 0:"),
    "swallowed": ("DAMAGED, RATE = 24, 13,", "DAMAGED, RATE = 24, 99,"),
    "forgotten_wait": (", async_op=True)", ")"),
    "spawn": ("world_size = int(os.environ", "world_size = 1 or int(os.environ"),
    "port": ('"MASTER_PORT"] = "12355"', '"WORLD_SIZE"] = "1"'),
}
"""Changes after which a program runs, and is not cured."""


def cure_cell(name: str) -> str:
    """Return the cell in which a reader cures a patient, as plain Python."""
    text = f'variant("ddp_lab/clinic/{name}.py", old, new)'
    written = [
        cell.source
        for path in notebooks.lessons()
        for cell in notebooks.read(path).cells
        if text in cell.source and cell.source.startswith('old, new = "", ""')
    ]
    (source,) = written
    run = r"%torchrun --timeout 20 (.*)"
    return re.sub(run, r'torchrun(f"\1", timeout=20)', source)


def try_cell(name: str, old: str, new: str, variant, capsys) -> str:
    """Put a change into the cell in which a patient is cured; return what it says."""
    source = cure_cell(name).replace(
        'old, new = "", ""', f"old, new = {old!r}, {new!r}"
    )
    capsys.readouterr()
    exec(source, {"variant": variant, "torchrun": torchrun, "nproc": 2})
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    "patient",
    [p for p in PATIENTS if p.name in SHORTCUTS or p.name in ("order", "members_only")],
    ids=lambda patient: patient.name,
)
def test_the_notebook_calls_the_cure_a_cure(patient, variant, capsys):
    old, new = patient.old, patient.new
    assert try_cell(patient.name, old, new, variant, capsys) == "cured"


@pytest.mark.parametrize("name", SHORTCUTS)
def test_the_notebook_does_not_call_a_shortcut_a_cure(name, variant, capsys):
    try:
        assert try_cell(name, *SHORTCUTS[name], variant, capsys) != "cured"
    except RunFailed:
        pass


@pytest.mark.parametrize(
    "patient", [p for p in PATIENTS if p.then], ids=lambda p: p.name
)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
def test_the_first_cure_brings_the_reason_to_light(patient, ranks, variant):
    path = variant(program(patient), patient.old, patient.new)
    run = torchrun(f"--nproc-per-node {ranks} {path}", timeout=20, expect_failure=True)
    assert run.failure.kind == "exception"
    assert run.failure.rank == patient.blame[ranks]
    assert patient.reason in run.failure.cause
