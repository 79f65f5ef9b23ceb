"""The rules that choose a road: their borders, and what was really trained.

The published trainings stand in the lesson, in one cell; here it is read from there.
"""

import ast

import pytest

pytest.importorskip("nbformat", reason="the lesson is a notebook")

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.overview import road  # noqa: E402
from ddp_lab.overview.road import BORDERS, GB, OTHERWISE, RULES  # noqa: E402
from figs import FIGURES  # noqa: E402
from tools import notebooks as kit  # noqa: E402


def lesson() -> dict:
    """Return what the lesson's cell about published trainings defines."""
    cells = kit.read(ROOT / "notebooks" / "16_which_road.ipynb").cells
    (source,) = [cell.source for cell in cells if "\nPUBLISHED = {" in cell.source]
    names = {"GB": GB, "road": road.road}
    shown = ast.For | ast.Assert  # what it prints, and what is tested here
    body = [node for node in ast.parse(source).body if not isinstance(node, shown)]
    code = compile(ast.Module(body, []), "the lesson", "exec")
    exec(code, names)  # a cell of our own
    return names


LESSON = lesson()
PUBLISHED, DIFFER, advise = (LESSON[n] for n in ("PUBLISHED", "DIFFER", "advise"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_advice_is_what_was_done_or_said_to_differ(name):
    *_, taken, paper = row = PUBLISHED[name]
    assert (advise(*row) != taken) == (name in DIFFER), advise(*row)
    assert len(paper) == 10


def test_there_are_a_dozen_and_they_take_every_road():
    assert len(PUBLISHED) >= 12 and set(DIFFER) < set(PUBLISHED)
    taken = {row[-2] for row in PUBLISHED.values()}
    assert taken >= {"DDP", "sharded", "tensor, pipeline, data", OTHERWISE}


def test_half_the_memory_would_have_changed_the_advice():
    # The numbers decide, not the names: Megatron's 1.2B just fits on a V100.
    size, batch, devices, memory, *rest = PUBLISHED["Megatron-LM 1.2B (2019)"]
    assert advise(size, batch, devices, memory / 2, *rest) != "DDP"
    # OLMo on links a tenth as fast could not hide the gathering.
    size, batch, devices, memory, machine, link, *rest = PUBLISHED["OLMo 7B (2024)"]
    assert advise(size, batch, devices, memory, machine, link / 10, *rest) == OTHERWISE


def test_every_rule_has_a_border_and_is_drawn():
    advice = {advice for *_, advice in RULES} | {OTHERWISE}
    assert set(BORDERS) == advice - {"remote calls"}
    assert road.road(GB, 1, 2, GB, calls=True)[0] == "remote calls"
    picture = str(FIGURES["road_tree"]())
    for question, _, road_named in RULES:
        assert f">{question}<" in picture and f">{road_named}<" in picture
    assert f">{OTHERWISE}<" in picture


def test_the_reasons_are_the_questions_up_to_the_first_yes():
    for expected, cases in BORDERS.items():
        for case in cases:
            advice, reasons = road.road(*case, 10 * GB, machine=4)
            assert advice == expected
            asked = [reason.rpartition(" ") for reason in reasons]
            order = [question for question, *_ in RULES]
            assert [question for question, *_ in asked] == order[: len(asked)]
            answers = [answer for *_, answer in asked]
            assert answers[:-1] == ["no"] * (len(answers) - 1)
            assert (answers[-1] == "yes") == (advice != OTHERWISE)
