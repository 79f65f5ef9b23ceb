"""The clinic: each patient is sick on 2 and 4 ranks; its cure passes on 2, 3 and 4.

`make test` tries one patient of each kind of test on 2 ranks; all are in `make lab`.
"""

import ast
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import FULL

pytest.importorskip("nbformat", reason="the cells of cures are in notebooks")

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from ddp_lab.kit.cell.hints import functions
from tools import notebooks
from whichrank import RunFailed

pytestmark = pytest.mark.processes

ALIKE = {2: None, 4: None}


@dataclass(frozen=True)
class Patient:
    """A program in ddp_lab/clinic, what is wrong with it, and what helps."""

    number: int
    """Its name says no more, because a reader must find out what is wrong."""
    illness: str
    hangs: bool
    """Whether nothing more happens; else a rank raises, or dies."""
    line: str
    """The guilty line; it occurs once, like every text below."""
    blame: dict[int, int | None]
    """By world size: the rank that does what no other does; None if all do the same."""
    old: str = ""
    new: str = ""
    """The cure: what to put in the place of `old`; else it is in answers/clinic."""
    odd: str = ""
    """The line at which that rank stands, or raises."""
    symptom: str | None = None
    """What the lab calls it, if the program's own check is not the first to notice."""
    rest: str = ""
    """The line at which the others stand, or all if no rank is to blame."""
    cause: str = ""
    """What the first rank to fail says, if the program does not hang."""
    then: tuple[str, str] | None = None
    """What else to replace: the first cure has only brought the reason to light."""
    reason: str = ""
    """The exception that comes to light."""
    prints: str = ""
    """What rank 0, of two, prints as long as it is well."""

    @property
    def name(self) -> str:
        return f"patient_{self.number}"


PATIENTS = [
    Patient(
        1,
        "skips_a_batch",
        prints="took 11 of 12 steps",
        symptom="different calls",
        hangs=True,
        line="continue  # one broken label",
        old="""\
        if loss.isnan():
            continue  # one broken label must not spoil all weights
""",
        new="""\
        broken = loss.isnan().float()
        dist.all_reduce(broken)  # every rank now holds how many losses are NaN
        if broken:
            continue  # on all ranks, or on none
""",
        blame={2: 1, 4: 1},
        odd="dist.barrier()",
        rest="loss.backward()",
    ),
    Patient(
        2,
        "rank0_collective",
        prints="step 1: the mean loss is 19.48",
        symptom="different calls",
        hangs=True,
        line="dist.reduce(loss, dst=0)",
        blame={2: 0, 4: 0},
        odd="dist.reduce(loss, dst=0)",
        rest="dist.all_reduce(gradient)",
    ),
    Patient(
        3,
        "shapes",
        prints="has 11 labels, the last is 0",
        symptom="different tensors",
        hangs=False,
        line="dist.all_gather(parts, mine)",
        blame={2: 1, 4: 3},
        odd="dist.all_gather(parts, mine)",
        rest="dist.all_gather(parts, mine)",
    ),
    Patient(
        4,
        "finally_barrier",
        prints="the mean is 20.00",
        symptom="absent",
        hangs=True,
        line="dist.barrier()",
        old="""\
        dist.barrier()  # no rank leaves while another one still needs it
""",
        new="",
        blame={2: 1, 4: 1},
        odd="return float(text)",
        rest="dist.all_reduce(buf)",
        then=("float(text)", 'float(text.replace(",", "."))'),
        reason="could not convert string to float: '21,5'",
    ),
    Patient(
        5,
        "uneven_batches",
        prints="has the weights of rank 0",
        symptom="different calls",
        hangs=True,
        line="train(model, x[mine], y[mine])",
        blame={2: 0, 4: 0},
        odd="loss.backward()",
        rest="dist.broadcast(expected, src=0)",
    ),
    Patient(
        6,
        "members_only",
        prints="has weight 1.0",
        symptom="groups",
        hangs=True,
        line="group = dist.new_group(trainers)",
        blame={2: 1, 4: 3},
        odd="dist.barrier(group=dist.new_group(timeout=TIMEOUT))",
        rest="dist.barrier(group=dist.new_group(timeout=TIMEOUT))",
    ),
    Patient(
        7,
        "port",
        prints="the sum of our ranks is 1",
        symptom="rendezvous",
        hangs=True,
        line='os.environ["MASTER_PORT"] = "12355"',
        blame=ALIKE,
        rest="dist.init_process_group(",
    ),
    Patient(
        8,
        "swallowed",
        prints="ends with weight 20.49",
        symptom="different calls",
        hangs=True,
        line="except Exception:",
        blame={2: 1, 4: 1},
        odd="dist.barrier()",
        rest="dist.all_reduce(share)",
    ),
    Patient(
        9,
        "rank0_eval",
        prints="epoch 1: test loss 1.24",
        symptom="different calls",
        hangs=True,
        line="evaluate(model, batches(TESTED, device))",
        blame={2: 0, 4: 0},
        odd="losses = [F.mse_loss(model(inputs), targets)",
        rest="dist.all_reduce(mean)",
    ),
    Patient(
        10,
        "order",
        prints="all ranks counted {'cat': 9, 'dog': 8, 'owl': 7}",
        hangs=False,
        line="for animal in counts:",
        blame=ALIKE,
        rest="raise AssertionError(",
        cause="AssertionError: counted {",
    ),
    Patient(
        11,
        "forgotten_wait",
        prints="the mean of all 100 is 49.50",
        hangs=False,
        line="dist.all_reduce(total, async_op=True)",
        blame=ALIKE,
        rest="raise AssertionError(",
        cause="AssertionError: the mean is",
    ),
    Patient(
        12,
        "send_send",
        prints="ends with [96, 96, 96, 94, 85, 63]",
        symptom="cycle",
        hangs=True,
        line="dist.send(send_buf, dst=neighbor)",
        old="""\
    dist.send(send_buf, dst=neighbor)
    dist.recv(recv_buf, src=neighbor)
""",
        new="""\
    if dist.get_rank() < neighbor:
        dist.send(send_buf, dst=neighbor)
        dist.recv(recv_buf, src=neighbor)
    else:
        dist.recv(recv_buf, src=neighbor)
        dist.send(send_buf, dst=neighbor)
""",
        blame=ALIKE,
        rest="dist.send(send_buf, dst=neighbor)",
    ),
]


HEALED = {path.stem for path in (ROOT / "answers" / "clinic").glob("*.py")}
"""The patients that the reader cures; hints and a cure are in answers/clinic."""

patients = pytest.mark.parametrize(
    "patient", PATIENTS, ids=lambda patient: patient.illness
)


def program(patient: Patient) -> str:
    return f"ddp_lab/clinic/{patient.name}.py"


def line_of(patient: Patient, text: str) -> int:
    """Return the number of the one line of the program that has `text`."""
    lines = (ROOT / program(patient)).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def change(patient: Patient) -> tuple[str, str]:
    """Return what to replace in a patient's program, and by what."""
    if patient.old:
        return patient.old, patient.new
    sick = (ROOT / program(patient)).read_text()
    cured = (ROOT / "answers" / "clinic" / f"{patient.name}.py").read_text()
    _, answer = ast.parse(cured).body  # its hints, and a function
    (ill,) = (n for n in ast.parse(sick).body if getattr(n, "name", "") == answer.name)
    return ast.get_source_segment(sick, ill), ast.get_source_segment(cured, answer)


def cure(patient: Patient, variant) -> str:
    """Write the healthy program; return its path."""
    path = variant(program(patient), *change(patient))
    return variant(path, *patient.then) if patient.then else path


def test_every_patient_has_a_row():
    programs = {path.stem for path in (ROOT / "ddp_lab" / "clinic").glob("*.py")}
    assert programs == {patient.name for patient in PATIENTS}


@patients
def test_the_row_points_at_lines_that_are_there(patient):
    text = (ROOT / program(patient)).read_text()
    then = patient.then[:1] if patient.then else ()
    for part in (patient.line, change(patient)[0], patient.odd, patient.rest):
        assert not part or text.count(part) == 1, part
    assert all(text.count(part) == 1 for part in then)
    assert (None in patient.blame.values()) == (not patient.odd)


def cases(patients: list[Patient], *ranks: int) -> list:
    """Return patients with numbers of ranks; the first is for `make test`."""
    pairs = [(patient, n) for patient in patients for n in ranks]
    return [
        pytest.param(*pair, id=f"{pair[0].illness}-{pair[1]}", marks=FULL if n else ())
        for n, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize("patient, ranks", cases(PATIENTS, 2, 4))
def test_the_patient_is_sick(patient, ranks):
    command = f"--nproc-per-node {ranks} {program(patient)}"
    timeout = 4 if patient.hangs else 20  # who does not may be slow
    run = torchrun(command, timeout=timeout, expect_failure=True)
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


@pytest.mark.parametrize("patient, ranks", cases(PATIENTS, 2, 3, 4))
def test_the_cure_helps(patient, ranks, variant):
    run = torchrun(f"--nproc-per-node {ranks} {cure(patient, variant)}", timeout=20)
    assert len(run.lines) == ranks and all(run.lines)
    assert ranks != 2 or f"[rank 0] {patient.prints}" in run.lines[0]


def test_the_answers_have_the_cures_that_readers_find():
    cells = "\n".join(
        cell.source
        for path in notebooks.lessons()
        for cell in notebooks.read(path).cells
        if 'old, new = "", ""' in cell.source
    )
    found = set(re.findall(r'cure\("ddp_lab/clinic/(\w+)\.py"', cells))
    assert found == HEALED


@pytest.mark.parametrize(
    "patient",
    [p for p in PATIENTS if p.name in HEALED and p.old],
    ids=lambda p: p.illness,
)
def test_what_solution_shows_is_the_cure(patient, variant):
    answer = (ROOT / "answers" / "clinic" / f"{patient.name}.py").read_text()
    cured = Path(cure(patient, variant)).read_text()
    names = re.findall(r"^def (\w+)", answer, re.M)
    sick = (ROOT / program(patient)).read_text()
    # However the lines are broken.
    ours, theirs, old = (
        ast.dump(ast.parse(functions(text, names))) for text in (answer, cured, sick)
    )
    assert names and ours == theirs != old


def changed(number: int, *changes: tuple[str, str]) -> tuple[int, str, str]:
    """Return a patient's number, its program, and what several changes make of it."""
    old = new = (ROOT / "ddp_lab" / "clinic" / f"patient_{number}.py").read_text()
    for text, other in changes:
        assert new.count(text) == 1, text
        new = new.replace(text, other)
    return number, old, new


BATCHES = (
    "    for inputs, targets in zip(x.split(BATCH), y.split(BATCH), strict=True):\n"
)
WAIT = "dist.barrier(group=dist.new_group(timeout=TIMEOUT))"
GATHER = "    dist.all_gather(parts, mine)"
SENT = "    dist.all_reduce(total, async_op=True)"
SHORTCUTS = {
    "no steps": (2, "SAMPLES, STEPS, RATE = 12, 2", "SAMPLES, STEPS, RATE = 12, 0"),
    "rank 0 alone": (
        2,
        "        loss = train_step(weight, x)\n"
        "        if rank == 0:\n"
        "            dist.reduce(loss, dst=0)  "
        "# rank 0 now holds the sum of all ranks\n",
        "        loss = world_size * (weight - samples).square().mean()\n"
        "        train_step(weight, x)\n"
        "        if rank == 0:\n",
    ),
    "every rank logs": (2, "        if rank == 0:", "        if True:"),
    "nothing reduced": (2, "            dist.reduce(loss, dst=0)", "            #"),
    "12 images": (3, "IMAGES = 11", "IMAGES = 12"),
    "nothing gathered": (3, GATHER, "    return label(torch.arange(IMAGES))"),
    "the odd batch dropped": (
        5,
        BATCHES,
        f"{BATCHES}        if len(inputs) < BATCH:\n            continue\n",
    ),
    "the odd batch counts for nothing": (
        5,
        "F.mse_loss(model(inputs.requires_grad_()), targets)",
        "F.mse_loss(model(inputs.requires_grad_()), targets) * (len(inputs) > 1)",
    ),
    "each rank alone": (
        5,
        "    seen = train(model, x[mine], y[mine])",
        "    seen = train(model.module, x[mine], y[mine])\n"
        "    for weight in model.parameters():\n"
        "        dist.broadcast(weight.data, src=0)",
    ),
    "a sample repeated": (
        5,
        "mine = range(rank, SAMPLES, world_size)",
        "mine = [i % SAMPLES for i in range(rank, SAMPLES + 3, world_size)]",
    ),
    "a barrier for the labels": (
        3,
        "    labels = collect(mine, world_size)",
        "    dist.barrier()\n    labels = label(images)",
    ),
    "the group of all is made first": changed(
        6,
        (
            "    if rank in",
            "    everybody = dist.new_group(timeout=TIMEOUT)\n    if rank in",
        ),
        (WAIT, "dist.barrier(group=everybody)"),
    ),
    "no two hours": (6, WAIT, "dist.barrier(group=dist.new_group())"),
    "the barrier deleted": (6, f"    {WAIT}\n", ""),
    "no patience at the barrier": (6, WAIT, "dist.barrier()"),
    "a world for each rank": (7, '"MASTER_PORT"] = "12355"', '"WORLD_SIZE"] = "1"'),
    "nothing damaged": (8, "DAMAGED, RATE = 24, 13,", "DAMAGED, RATE = 24, 99,"),
    "zero for the damaged": (8, "else math.nan", "else 0.0"),
    "no model tested": (9, "evaluate(model, batches(TESTED, device))", "0.0"),
    "no buffers": (9, "nn.BatchNorm1d(8)", "nn.Identity()"),
    "nothing compared": (9, "    dist.all_reduce(mean)", "    mean = mine  #"),
    "nothing added up": (
        10,
        "    totals = {}\n",
        "    return dict(sorted(Counter(PICTURES).items()))\n    totals = {}\n",
    ),
    "nothing overlaps": (11, ", async_op=True)", ")"),
    "added up after the search": (
        11,
        "    dist.all_reduce(total, async_op=True)  # the sum travels meanwhile\n"
        "    largest = search(rank, world_size, numbers)\n",
        "    largest = search(rank, world_size, numbers)\n"
        "    dist.all_reduce(total, async_op=True).wait()\n",
    ),
    "a barrier instead": (
        11,
        "    return total",
        "    dist.barrier()\n    return total",
    ),
    "a nap instead": (11, "    return total", "    time.sleep(2)\n    return total"),
    "asks, and does not wait": changed(
        11,
        (SENT, SENT.replace("dist", "work = dist")),
        (
            "    return total",
            "    time.sleep(2)\n    work.is_completed()\n    return total",
        ),
    ),
}
"""A change after which a program runs, and is not cured."""
SEARCHED = "    largest = search(rank, world_size, numbers)\n"
OTHER_CURES = {
    "gradient and loss in one call": changed(
        2,
        (
            "    dist.all_reduce(gradient)",
            "    both = torch.stack([gradient, loss])\n"
            "    dist.all_reduce(both)\n"
            "    gradient, loss = both",
        ),
        (
            "            dist.reduce(loss, dst=0)  "
            "# rank 0 now holds the sum of all ranks\n",
            "",
        ),
    ),
    "labels that are added to zeros": changed(
        3,
        ("    parts = [torch.empty_like(mine) for _ in range(world_size)]\n", ""),
        (
            "    dist.all_gather(parts, mine)",
            "    room, mine = -(-IMAGES // world_size), mine\n"
            "    parts = mine.new_zeros(IMAGES)\n"
            "    first = dist.get_rank() * room\n"
            "    parts[first : first + room] = mine\n"
            "    dist.all_reduce(parts)",
        ),
        ("    return torch.cat(parts)", "    return parts"),
    ),
    "the whole world waits, by a barrier with a timeout": changed(
        6,
        ("        group = dist.new_group(trainers)\n", ""),
        ("    if rank in", "    group = dist.new_group(trainers)\n    if rank in"),
        (WAIT, "dist.monitored_barrier(timeout=TIMEOUT)"),
    ),
    "a future": changed(
        11,
        (SENT, SENT.replace("dist", "work = dist")),
        (SEARCHED, f"{SEARCHED}    torch.futures.wait_all([work.get_future()])\n"),
    ),
    "a functional collective": changed(
        11,
        (
            SENT,
            "    import torch.distributed._functional_collectives as collectives\n\n"
            '    total = collectives.all_reduce(total, "sum", dist.group.WORLD)',
        ),
        (SEARCHED, f"{SEARCHED}    total = collectives.wait_tensor(total)\n"),
    ),
    "asked until it is done": changed(
        11,
        (SENT, SENT.replace("dist", "work = dist")),
        (
            SEARCHED,
            f"{SEARCHED}    while not work.is_completed():\n        time.sleep(0.01)\n",
        ),
    ),
}
"""Cures in another style than the answer's."""


def cure_cells(name: str) -> tuple[str, str]:
    """Return the function `cure` of a lesson, and the cell that cures a patient by it.

    Both are plain Python.
    """
    text = f'cure("ddp_lab/clinic/{name}.py", old, new)'
    for path in notebooks.lessons():
        sources = [cell.source for cell in notebooks.read(path).cells]
        for source in sources:
            if text in source and source.startswith('old, new = "", ""'):
                everything = "\n".join(sources)
                block = r"^def cure\(.*?^    return run$"
                function = re.search(block, everything, re.M | re.S)[0]
                return re.sub(r"%torchrun (.*)", r'torchrun(f"\1")', function), source
    raise AssertionError(f"no cell cures {name}")


def try_cell(name: str, old: str, new: str, variant, capsys) -> str:
    """Put a change into the cell in which a patient is cured; return what it says."""
    function, source = cure_cells(name)
    source = source.replace('old, new = "", ""', f"old, new = {old!r}, {new!r}")
    written = []

    def noted(path, *change):
        again = written and path.startswith("build/")  # what it has changed already
        written.append(variant(written[-1] if again else path, *change))
        return written[-1]

    def launched(command):
        return torchrun(command.replace("--timeout 20", ""), timeout=8)

    cells = {"variant": noted, "torchrun": launched, "nproc": 2, "prod": math.prod}
    cells["open"] = lambda _: open(written[-1])
    capsys.readouterr()
    exec(function + "\n" + source, cells)
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    "patient, ranks",
    cases([p for p in PATIENTS if p.name in HEALED and not p.then], 2),
)
def test_the_notebook_calls_the_cure_a_cure(patient, ranks, variant, capsys):
    assert try_cell(patient.name, *change(patient), variant, capsys) == "cured"


@pytest.mark.parametrize("style", [pytest.param(s, marks=FULL) for s in OTHER_CURES])
def test_the_notebook_takes_other_cures(style, variant, capsys):
    number, *change = OTHER_CURES[style]
    assert try_cell(f"patient_{number}", *change, variant, capsys) == "cured"


ONE, *MORE = SHORTCUTS


@pytest.mark.parametrize(
    "shortcut", [ONE, *(pytest.param(name, marks=FULL) for name in MORE)]
)
def test_the_notebook_does_not_call_a_shortcut_a_cure(shortcut, variant, capsys):
    number, *change = SHORTCUTS[shortcut]
    try:
        assert try_cell(f"patient_{number}", *change, variant, capsys) != "cured"
    except RunFailed:
        pass


@pytest.mark.parametrize(
    "patient", [p for p in PATIENTS if p.then], ids=lambda p: p.illness
)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=FULL)])
def test_the_first_cure_brings_the_reason_to_light(patient, ranks, variant):
    path = variant(program(patient), patient.old, patient.new)
    run = torchrun(f"--nproc-per-node {ranks} {path}", timeout=20, expect_failure=True)
    assert run.failure.kind == "exception"
    assert run.failure.rank == patient.blame[ranks]
    assert patient.reason in run.failure.cause
