"""Steppers: they show what the messages do, and anyone can step through them."""

import ast
import importlib.util
import json
import math
import re
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from itertools import chain, product, zip_longest
from typing import NamedTuple

import pytest
from test_jupyterlab import browser, notebook, server, wait_for_kernel  # noqa: F401

from ddp_lab import ROOT
from ddp_lab.kit.draw.svg import Svg
from figs import STEPPERS, exchanges, schedules
from figs.exchanges import ALL_REDUCES, Message, Value, own, pieces, play, whole
from figs.step_by_step import MOST_STEPS, Steps

PAGES = ROOT / "figs" / "steps"
stepper = cache(lambda name: STEPPERS[name]())
MANY = range(2, 10)


def book_costs():
    """Load book/costs.py, which no package holds."""
    spec = importlib.util.spec_from_file_location("costs", ROOT / "book" / "costs.py")
    costs = sys.modules["costs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(costs)
    return costs


# What the messages do


def after(plan, n: int) -> list[list[Value | None]]:
    """Return what n ranks hold after a plan that began with a tensor on each."""
    return play(own(n, pieces(plan)), plan)[-1]


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_an_all_reduce_leaves_the_sum_on_every_rank(name):
    for n in MANY if name != "two_level" else MANY[::2]:  # nodes of two ranks
        plan = whole(ALL_REDUCES[name](n))
        total = [Value(frozenset(range(n)), piece) for piece in range(pieces(plan))]
        assert after(plan, n) == [total] * n, n


@pytest.mark.parametrize("name", ALL_REDUCES)
def test_no_message_of_an_all_reduce_can_be_left_out(name):
    plan = whole(ALL_REDUCES[name](4))
    right = after(plan, 4)
    for step, message in product(range(len(plan)), range(4)):
        broken = [list(messages) for messages in plan]
        if message < len(broken[step]):
            del broken[step][message]
            try:
                assert after(broken, 4) != right, (step, message)
            except ValueError:  # it would have added a rank twice
                pass


def test_a_rank_that_is_added_twice_is_found():
    with pytest.raises(ValueError):
        after([[Message(1, 0, 0, 1)], [Message(1, 0, 0, 1)]], 2)


def test_the_lesson_plays_the_same_plans():
    """Lesson 12's program has three of the ways as well: it stands alone."""
    lesson = ROOT / "ddp_lab" / "cost" / "ways.py"
    taught = "to_root", "tree", "ring"
    names = {*taught, "whole", "Message"}
    tree = ast.parse(lesson.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") in names]
    theirs = {"NamedTuple": NamedTuple}
    exec(compile(tree, str(lesson), "exec"), theirs)
    for name, n in product(taught, MANY):
        plan = [[tuple(m) for m in step] for step in theirs["whole"](theirs[name](n))]
        mine = whole(ALL_REDUCES[name](n))
        assert plan == [[tuple(m[:5]) for m in step] for step in mine], (name, n)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_collectives_end_as_they_should(n):
    def one(rank, piece=0):
        return Value(frozenset([rank]), piece)

    everyone, all_ranks = frozenset(range(n)), range(n)
    tensors = [[one(rank)] for rank in all_ranks]
    rows = [[one(rank, piece) for piece in all_ranks] for rank in all_ranks]
    mine = exchanges.only(rows, lambda rank, piece: rank == piece)

    first = exchanges.only(tensors, lambda rank, piece: rank == 0)
    assert play(first, exchanges.broadcast(n))[-1] == [[one(0)]] * n
    assert play(tensors, exchanges.tree(n))[-1][0] == [Value(everyone, 0)]
    for plan in (exchanges.doubling(n), exchanges.barrier(n)):
        assert play(tensors, plan)[-1] == [[Value(everyone, 0)]] * n
    dealt = exchanges.only(rows, lambda rank, piece: rank == 0)
    got = play(dealt, exchanges.scatter(n))[-1]
    assert [got[rank][rank] for rank in all_ranks] == rows[0]
    diagonal = [one(rank, rank) for rank in all_ranks]
    assert play(mine, exchanges.gather(n))[-1][0] == diagonal
    assert play(mine, exchanges.all_gather(n))[-1] == [diagonal] * n
    summed = play(rows, exchanges.reduce_scatter(n))[-1]
    assert [summed[r][r] for r in all_ranks] == [Value(everyone, r) for r in all_ranks]
    columns = [[one(rank, piece) for rank in all_ranks] for piece in all_ranks]
    assert play(rows, exchanges.all_to_all(n))[-1] == columns


def test_a_rank_sends_and_receives_one_message_a_step():
    plans = [whole(way(8)) for way in ALL_REDUCES.values()]
    names = "broadcast scatter gather all_gather reduce_scatter doubling all_to_all"
    plans += [getattr(exchanges, name)(8) for name in names.split()]
    for step in (step for plan in plans for step in plan):
        for ranks in ([m.source for m in step], [m.target for m in step]):
            assert len(set(ranks)) == len(ranks)


# What they cost


def test_the_formulas_are_what_the_messages_cost():
    costs = book_costs()
    fast, slow = costs.Wire(1e-6, 1e-11), costs.Wire(3e-5, 1e-9)
    for n, node, size in product((2, 4, 8, 16, 64), (1, 2, 4, 8), (8, 1e6, 1e10)):
        if node > n:
            continue
        told = costs.formulas(n, size, fast, slow, node)
        for name, way in ALL_REDUCES.items():
            half = way(n, node) if name == "two_level" else way(n)
            found = costs.seconds(whole(half), size, fast, slow, node)
            assert math.isclose(told[name], found), (n, node, size, name)


# What the schedules do

SCHEDULES = {
    "gpipe": (schedules.gpipe, 1),
    "1f1b": (schedules.one_f_one_b, 1),
    "interleaved": (schedules.interleaved, 2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_does_all_work_once_and_waits_as_the_formula_says(name):
    make, turns = SCHEDULES[name]
    for p, m in ((2, 2), (2, 4), (3, 3), (3, 6), (4, 8)):
        orders = make(p, m)
        begun = schedules.starts(orders)
        for order in orders:
            assert set(Counter(order).values()) == {1}
            assert len(order) == 2 * m * turns
        assert 1 + max(map(max, begun)) == 2 * (m * turns + p - 1)
        when = {
            (rank, work): slot
            for rank, (order, slots) in enumerate(zip(orders, begun, strict=True))
            for work, slot in zip(order, slots, strict=True)
        }
        for (rank, work), slot in when.items():
            if before := schedules.needed(rank, work, p, turns):
                assert when[before] < slot


def of_lesson(program: str) -> dict:
    """Return the schedules that a program of the lesson on pipelines defines."""
    tree = ast.parse((ROOT / "ddp_lab" / "pipeline" / program).read_text())
    names = {"gpipe", "one_f_one_b", "interleaved", "by_turns"}
    tree.body = [
        node
        for node in tree.body
        if getattr(node, "name", "") in names
        or ast.unparse(node).startswith("STAGES_PER_RANK =")
    ]
    found = {"chain": chain, "zip_longest": zip_longest}
    exec(compile(tree, program, "exec"), found)
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_lesson_has_the_same_schedules(name):
    make, _ = SCHEDULES[name]
    theirs = of_lesson("interleaved.py" if name == "interleaved" else "plan.py")
    for p, m in ((2, 4), (3, 6), (4, 8)):
        for rank, order in enumerate(make(p, m)):
            mine = [(work.turn * p + rank, work.kind, work.batch) for work in order]
            assert mine == theirs[make.__name__](rank, p, m), (p, m, rank)


def test_1f1b_keeps_less_than_gpipe():
    for p, m in ((3, 6), (4, 8)):
        most = {
            make: [
                max(schedules.kept(order, slots, now) for now in range(4 * m))
                for order, slots in zip(
                    make(p, m), schedules.starts(make(p, m)), strict=True
                )
            ]
            for make in (schedules.gpipe, schedules.one_f_one_b)
        }
        assert most[schedules.gpipe] == [m] * p
        assert most[schedules.one_f_one_b] == [p - rank for rank in range(p)]


def test_orders_that_wait_for_each_other_are_found():
    back = [schedules.Work("B", 0), schedules.Work("F", 0)]
    with pytest.raises(ValueError, match="never end"):
        schedules.starts([back, back])


def test_a_bucket_leaves_when_it_is_full_and_the_wire_is_free():
    leaves = [schedules.sent_at(bucket) for bucket in schedules.BUCKETS]
    assert leaves == [2, 4, 6]
    assert len(schedules.SAYS) == leaves[-1] + schedules.SENDING + 1


def test_no_rank_holds_two_whole_layers():
    found = schedules.moments()
    assert [m.whole for m in found if m.whole is not None] == [0, 1, 2, 2, 1, 0]
    assert found[-2].gradients == ("shard",) * 3
    assert all("whole" not in m.gradients for m in found if m.whole is None)


# How they are drawn


class Tags(HTMLParser):
    """The elements of a page, and what they have."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def all(self, *tags: str) -> list[dict]:
        return [has for tag, has in self.tags if tag in tags]


def test_the_committed_pages_are_what_the_code_draws():
    drawn = {f"{name}.html": stepper(name).page() for name in STEPPERS}
    there = {path.name: path.read_text("utf-8") for path in PAGES.iterdir()}
    assert {name for name, _ in drawn.items() ^ there.items()} == set(), "make figs"


def test_each_stepper_has_its_own_name_and_place():
    assert len({stepper(name).name for name in STEPPERS}) == len(STEPPERS)
    pages = (ROOT / "book").glob("steps*.md")
    prose = "".join(page.read_text() for page in pages)
    linked = re.findall(r"figs/steps/(\w+)\.html", prose)
    assert sorted(linked) == sorted(STEPPERS)
    lessons = "".join(p.read_text() for p in (ROOT / "notebooks").glob("*.ipynb"))
    for name in re.findall(r"figs/steps/(\w+)\.html", lessons):
        assert name in STEPPERS


@pytest.mark.parametrize("name", STEPPERS)
def test_a_page_needs_no_script_and_no_network_and_its_buttons_lead_to_steps(name):
    text, steps = (PAGES / f"{name}.html").read_text("utf-8"), stepper(name)
    page = Tags(text)
    assert not page.all("script", "link", "iframe", "object", "img")
    assert not re.search(r"url\(|@import|\son\w+=", text)
    assert all(has["href"].startswith("#") for has in page.all("a"))
    assert len(text) < 200_000
    assert len({one.width for one in steps.pictures}) == 1
    dots = [has["id"] for has in page.all("input")]
    places = [has["id"] for has in page.all("figure")]
    assert len(dots) == len(places) == len(steps.pictures)
    there = [has["for"] for has in page.all("label") if "for" in has]
    assert Counter(there) == Counter([*dots[:-1], *dots[1:]])
    links = [has["href"][1:] for has in page.all("a")]
    assert Counter(links) == Counter([*places[:-1], *places[1:]])
    assert [has["aria-label"] for has in page.all("input")] == [
        f"{n} of {len(dots)}: {svg.title}" for n, svg in enumerate(steps.pictures, 1)
    ]


def test_an_output_of_a_notebook_has_pictures_that_nobody_has_to_trust():
    steps = stepper("sum_ring")
    page = Tags(steps._repr_html_())
    assert [has["alt"] for has in page.all("img")] == [repr(s) for s in steps.pictures]
    assert not page.all("script", "svg")
    assert repr(steps).count("\n") == len(steps.pictures)


def test_too_few_and_too_many_steps_are_refused():
    for count in (0, 1, MOST_STEPS + 1):
        with pytest.raises(ValueError, match="steps"):
            Steps("a", "a", [Svg("a", "b")] * count)


# In JupyterLab


@pytest.mark.browser
def test_jupyterlab_steps_without_a_kernel_and_without_trust(notebook, server):  # noqa: F811
    """An output that is not trusted is a strip with links; a page has all of it."""
    steps = stepper("sum_tree")
    (notebook.parent / "tree.html").write_text(steps.page())
    document = json.loads(notebook.read_text())
    kind = {"output_type": "display_data", "metadata": {}}
    output = kind | {"data": {"text/html": steps._repr_html_()}}
    document["cells"] = [document["cells"][0] | {"outputs": [output]}]
    notebook.write_text(json.dumps(document))
    with browser() as page:
        page.goto(f"{server.url}/doc/tree/{notebook.name}?token=secret")
        wait_for_kernel(page)
        strip = page.locator(".jp-RenderedHTMLCommon fieldset > div")
        assert strip.locator("img").count() == len(steps.pictures)
        assert not page.locator(".jp-RenderedHTMLCommon input").first.is_visible()
        strip.locator("figure >> nth=0 >> a").click()
        page.wait_for_function("e => e.scrollLeft > 100", arg=strip.element_handle())

        page.goto(f"{server.url}/doc/tree/tree.html?token=secret")
        frame = page.frame_locator("iframe")
        frame.locator("input").first.focus()
        for key, step in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
            page.keyboard.press(key)
            frame.locator(f"figure >> nth={step}").wait_for(state="visible")
        frame.locator("figure:visible label >> nth=1").click()
        frame.locator("figure >> nth=2").wait_for(state="visible")
        assert frame.locator("figure:visible").count() == 1
