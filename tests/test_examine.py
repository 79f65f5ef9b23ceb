"""%examine in a cell, and what it says of the programs of the course."""

import pytest
from support import FULL

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from whichrank import Limits, RunFailed, examine

# Programs whose training is not shared, or whose ranks all write, on purpose.
MEANT = {"script/joined", "script/single", "script/wrapped", "script/sampled"}
MEANT |= {"script/judge", "ddp/single", "old_pages/guides"}


@pytest.mark.parametrize(("line", "cold"), [("", False), ("--cold ", True)])
def test_a_cell_examines_warm_unless_it_is_asked_not_to(line, cold, monkeypatch):
    magics, asked = pytest.importorskip("ddp_lab.kit.cell.magics"), []
    monkeypatch.setattr(magics.launch, "torchrun", lambda _, **o: asked.append(o))
    monkeypatch.setattr(
        magics, "examine_script", lambda script, ranks, steps, start: start([])
    )
    magics.examine(f"{line}--nproc-per-node=2 ddp_lab/script/train.py")
    assert [each["cold"] for each in asked] == [cold]


@pytest.mark.parametrize(
    "line, told",
    [
        ("--nproc-per-node 2 nope.py", "there is no file nope.py"),
        ("--nproc-per-node x train.py", "--nproc-per-node takes a number, not 'x'"),
        ("--steps=a --nproc-per-node 2 train.py", "--steps takes a number, not 'a'"),
        ("train.py", "for example: %examine"),
        ("--nproc-per-node 2 refused.py", "refused.py was not run: the cell"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(line, told, monkeypatch):
    magics = pytest.importorskip("ddp_lab.kit.cell.magics")
    monkeypatch.setitem(magics.written.texts, "refused.py", "")
    with pytest.raises(magics.UsageError, match=told):
        magics.examine(line)


def test_verdicts_are_shown_in_color():
    screen = pytest.importorskip("ddp_lab.kit.cell.display")
    shown = screen.marked("examined: a.py\n\n✗ a <b>\n✓ c")
    assert shown["text/plain"] == "examined: a.py\n\n✗ a <b>\n✓ c"
    red = f'<span style="color: {screen.FAILED}">✗</span> a &lt;b&gt;\n'
    assert red in shown["text/html"]


def start(words: list[str]) -> None:
    try:
        torchrun(words, limits=Limits(silence=60))
    except RunFailed as failed:
        assert failed.run is not None


@FULL
@pytest.mark.processes
def test_no_program_of_the_course_is_accused():
    accused = []
    for path in sorted((ROOT / "ddp_lab").glob("*/*.py")):
        name, text = f"{path.parent.name}/{path.stem}", path.read_text()
        plain = not path.stem.startswith(("exercise", "puzzle")) and "optim" in text
        if plain and path.parent.name not in ("kit", "clinic") and name not in MEANT:
            ranks = 4 if "--nproc-per-node 4" in text else 2
            told = str(examine([str(path)], ranks, 20, start)).split("\n")
            accused += [f"{name}: {line}" for line in told if "✗" in line]
    assert not accused, "\n".join(accused)
