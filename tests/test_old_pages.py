"""The lesson on old pages: every row is quoted, tried or read, and put right.

Each row that is tried turns red in a world in which its page is right, or wrong where
it holds today: WORLDS says what such a world is like.
"""

import functools
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support import FULL

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.kit import torchrun  # noqa: E402
from ddp_lab.kit.cell import end  # noqa: E402
from ddp_lab.old_pages.tutorial_2017 import judge  # noqa: E402
from tools import notebooks as kit  # noqa: E402
from whichrank import Run  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "A4_what_old_pages_say.ipynb"
ROWS = set(range(1, 39))
# Those that nothing here can try; a table says what was read of them.
READ = {19, 20, 24, 31}
FATES = {"stops", "warns", "hangs", "holds", "misleads"}
SAID, NOW = "| Row | Year | It says |", "| Row | Today | Lesson |"
BOTH = "| Row | Year | It says | Read | Lesson |"
LINK = re.compile(r"\[A?\d+\]\(([\dA]\d_\w+\.ipynb)\)")
TRIED = re.compile(r"^def row_(\d+)\(", re.M)  # the function that tries it


def sources(kind: str) -> list[str]:
    cells = kit.read(NOTEBOOK).cells
    return [cell.source for cell in cells if cell.cell_type == kind]


def tried(source: str) -> list[int]:
    """Return each row that a cell tries."""
    return [int(row) for row in TRIED.findall(source)]


def table(text: str, head: str) -> list[tuple[int, list[str]]]:
    """Return row and further columns of all tables under this `head`."""
    bodies = re.findall(rf"^{re.escape(head)}\n\|---.*\n((?:\|.*\n?)+)", text, re.M)
    lines = [line for body in bodies for line in body.splitlines()]
    cells_of = [[c.strip() for c in line.strip("| ").split(" | ")] for line in lines]
    return [(int(number), rest) for number, *rest in cells_of]


def tables(head: str) -> dict[int, list[str]]:
    """Return what the lesson's tables under this `head` say; each row stands once."""
    found = table("\n\n".join(sources("markdown")), head)
    rows = dict(found)
    assert len(found) == len(rows), head
    return rows


def test_every_row_is_quoted_once_and_with_its_year():
    said, read = tables(SAID), tables(BOTH)
    assert set(read) == READ and set(said) == ROWS - READ
    for row, (year, line, *_) in (said | read).items():
        assert re.search(r"\b20(1[7-9]|2\d)\b", year) and len(line) > 10, row


def test_every_row_that_can_be_tried_is():
    rows = [row for source in sources("code") for row in tried(source)]
    assert sorted(rows) == sorted(ROWS - READ)


def test_every_fate_comes_out_of_a_run():
    """`fate` is filled by `take` alone, and takes what `judge` has found."""
    text = "\n".join(sources("code"))
    assert not re.search(r"\bfate\[[^]]+\] *=[^=]", text)
    assert re.findall(r"\bfate\.\w+", text) == ["fate.update", "fate.values"]
    program = r"%%program (?:--nproc\S+ \d )?ddp_lab/old_pages/(\w+)\.py"
    programs = re.findall(program, text)
    runs = re.findall(r"^(\w+) = %torchrun .*old_pages/(\w+)\.py$", text, re.M)
    taken = " ".join(re.findall(r"^take\((.*)\)$", text, re.M)).replace(",", " ")
    pages = {page for page in programs if not page.startswith("exercise")}
    assert pages == {p for name, p in runs if re.search(rf"\b{name}\b", taken)}


def test_every_row_says_what_is_written_today_and_where_it_is_taught():
    today = tables(NOW) | {row: rest[2:] for row, rest in tables(BOTH).items()}
    assert set(today) == ROWS
    for row, (right, lessons) in today.items():
        assert len(right) > 10 and LINK.search(lessons), row


def test_a_row_is_quoted_before_it_runs_and_put_right_after():
    order: dict[tuple[str, int], int] = {}
    for number, cell in enumerate(kit.read(NOTEBOOK).cells):
        if cell.cell_type == "code":
            found = [("run", row) for row in tried(cell.source)]
        else:
            found = [("said", row) for row, _ in table(cell.source, SAID)]
            found += [("now", row) for row, _ in table(cell.source, NOW)]
        order |= dict.fromkeys(found, number)
    for row in ROWS - READ:
        assert order["said", row] < order["run", row] < order["now", row], row


@pytest.mark.parametrize(
    ("line", "fate"),
    [
        (lambda: (1, 1), "holds"),
        (lambda: (1, 2), "misleads"),
        (lambda: ([][1], 1), "stops"),
        (lambda: (warnings.warn("deprecated", stacklevel=1), None), "warns"),
        (lambda: (_ for _ in ()).throw(RuntimeError("has timed out")), "hangs"),
        (lambda: sys.exit(2), "stops"),
    ],
)
def test_the_fate_is_what_happens(line, fate):
    assert judge(line)[0] == fate and fate in FATES


def test_a_row_that_is_tried_is_found():
    assert tried("@today('holds')\ndef row_3(rank):\n    pass\n") == [3]
    text = f"{NOW}\n|---|---|---|\n| 7 | `a` or b | [1](01_a.ipynb) |"
    assert table(text, NOW) == [(7, ["`a` or b", "[1](01_a.ipynb)"])]


# --- the rows in another world ---


@dataclass(frozen=True)
class World:
    """Lines at the end of a program that make a page right, or wrong."""

    row: int
    program: str
    lines: str = ""
    fate: str = "holds"  # of the row in this world


WORLDS = [
    World(1, "tutorial_2017", 'PAGE = PAGE.replace("tcp", "gloo")'),
    World(2, "tutorial_2017", "dist.reduce_op = dist.ReduceOp"),
    World(
        3,
        "tutorial_2017",
        """
class RedOpType:
    __members__ = ["SUM", "PRODUCT", "MIN", "MAX"]

dist.ReduceOp.RedOpType = RedOpType
""",
    ),
    World(
        4,
        "tutorial_2017",
        """
all_reduce = dist.all_reduce
dist.all_reduce = lambda tensor, op: all_reduce(tensor)
""",
    ),
    World(5, "tutorial_2017", "del dist.reduce_scatter_tensor", "stops"),
    World(
        7,
        "tutorial_2017",
        """
irecv = dist.irecv
dist.irecv = lambda box, src: [irecv(box, src), box.fill_(1)][0]
""",
        "misleads",
    ),
    World(
        8,
        "tutorial_2017",
        """
sent = []
dist.send = lambda number, dst: sent.append((number, dist.isend(number, dst)))
""",
        "misleads",
    ),
    World(6, "rings", "dist.DistributedRequest = dist.Work"),
    World(38, "rings", "of_2017 = corrected"),
    World(
        9,
        "course_2022",
        """
def scatter(pieces, src):
    pieces.set_(pieces.new_tensor([dist.get_rank()]))

dist.broadcast = scatter
""",
    ),
    World(
        10,
        "course_2022",
        """
def resnet18(pretrained=False, weights=None):
    return network(num_classes=10)

network, torchvision.models.resnet18 = torchvision.models.resnet18, resnet18
""",
    ),
    World(11, "course_2022"),  # row 10's network has ten classes
    World(12, "course_2022", "transforms.Compose = lambda _: lambda image: image"),
    World(
        13,
        "course_2022",
        """
class DistributedSampler(DistributedSampler):
    def __iter__(self):
        self.epoch += 1
        return super().__iter__()
""",
    ),
    World(
        15,
        "course_2022",
        """
last = []
torch.save = lambda state, file: last.append(state)
torch.load = lambda file: last[-1]
""",
    ),
    World(16, "course_2022_files"),  # it runs on one machine here
    World(
        18,
        "course_2022_files",
        """
fetch = download_url

def download_url(url, folder):
    if dist.get_rank() == 0:
        fetch(url, folder)
    dist.barrier()
""",
    ),
    World(
        14,
        "course_2022_alone",
        """
import functools
nn.BatchNorm1d = functools.partial(nn.BatchNorm1d, track_running_stats=False)
""",
    ),
    World(
        36,
        "course_2022_spawn",
        'config_from_args = lambda args: (0, 0, ["--local_rank=${local_rank}"])',
    ),
    World(
        37,
        "course_2022_spawn",
        """
alone = 'sys.argv[1], TORCHELASTIC_USE_AGENT_STORE="")'
JOIN = JOIN.replace("sys.argv[1])", alone)
""",
        "misleads",  # there are too many children all the same
    ),
    World(
        17,
        "note_2021",
        """
class DDP(DDP):
    def __init__(self, module):
        super().__init__(module, init_sync=False)
""",
    ),
    World(
        21,
        "note_2021",
        """
all_reduce = dist.all_reduce
dist.all_reduce = lambda t: t.set_(torch.tensor(sum(told(t.tolist()), [])))
""",
    ),
    World(22, "note_2021", 'CELL = CELL.replace("spawn", "fork")'),
    World(
        23,
        "note_2021",
        """
class DDP(DDP):
    def forward(self, x):
        out = super().forward(x)
        mean = out.detach().mean()
        all_reduce(mean)
        return out - out.detach().mean() + mean / dist.get_world_size()
""",
    ),
    World(
        25,
        "guides",
        """
import functools
torch.load = functools.partial(torch.load, weights_only=False)
""",
    ),
    World(
        26,
        "guides",
        """
SGD = torch.optim.SGD
torch.optim.SGD = lambda weights, lr, momentum: SGD(weights, lr=lr)
""",
    ),
    World(
        27,
        "guides",
        """
GPU = False
torch.accelerator.current_accelerator = lambda: torch.device("cpu")
""",
    ),
    World(
        28,
        "guides",
        """
new_group = dist.new_group
ten = timedelta(seconds=10)
dist.new_group = lambda timeout=None, **how: new_group(timeout=timeout or ten, **how)
""",
    ),
    World(
        29,
        "guides",
        """
def all_reduce(tensor, group):
    raise RuntimeError("no network")

dist.all_reduce = all_reduce
""",
    ),
    World(30, "guides", "torch.accelerator.device_count = lambda: 8"),
    World(
        32,
        "overview_2020",
        'torch.nn.DataParallel.__doc__ = "recommended to use :class:`DataParallel`"',
    ),
    World(
        33,
        "overview_2020",
        "find_spec = lambda name: None",
    ),
    World(
        34,
        "overview_2020",
        """
import enum
rpc.BackendType = enum.Enum("BackendType", ["PROCESS_GROUP"])
""",
    ),
    World(35, "overview_2020", 'launcher.__name__ = "torchelastic"'),
]
PROGRAMS = sorted({world.program for world in WORLDS})


@functools.cache
def in_other_worlds(name: str) -> dict[int, str]:
    """Run a program with what is different in all worlds of its rows; return fates."""
    text = (ROOT / "ddp_lab" / "old_pages" / f"{name}.py").read_text()
    lines = "\n".join(world.lines for world in WORLDS if world.program == name)
    assert text.count(end.RULE) == 1
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.py")
        path.write_text(text.replace(end.RULE, f"{lines}\n\n{end.RULE}"))
        run: Run = torchrun(f"--nproc-per-node 2 {path}", expect_failure=True)
    told = "\n".join(line for lines in run.lines for line in lines)
    return {int(r): f for r, f in re.findall(r"\] row (\d+) (\w+):", told)}


def test_there_is_another_world_for_each_row():
    assert sorted(world.row for world in WORLDS) == sorted(ROWS - READ)


@pytest.mark.processes
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, marks=() if world.program == "rings" else FULL)
        for world in WORLDS
    ],
    ids=lambda world: f"row {world.row}",
)
def test_the_row_turns_red_in_another_world(world):
    assert in_other_worlds(world.program)[world.row] == world.fate
