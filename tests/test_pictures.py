"""Every picture can be read, in a narrow window too, and ticks no call that failed."""

import base64
import json
import re
import shutil
from dataclasses import replace
from html import unescape

import pytest
from test_figures import FIGS, NOTEBOOKS, SAMPLES
from test_jupyterlab import notebook, page_of, server  # noqa: F401  (fixtures)

from ddp_lab.kit.cell import display, plots, variants
from ddp_lab.kit.draw import RANK_COLORS, bar_color, before_after, standstill
from ddp_lab.kit.draw.colors import WHITE, contrast, text_on
from ddp_lab.kit.draw.svg import READABLE, text_width
from ddp_lab.kit.explain.cause import Stand
from ddp_lab.kit.explain.causes.ended import Signalled
from ddp_lab.kit.explain.find import find_failure
from ddp_lab.kit.record.calls import Call, with_failed
from ddp_lab.kit.record.stacks import Frame
from ddp_lab.kit.run.rank import as_call
from tests.faults import FAULTS
from tests.record_evidence import Recording

FRAME = Frame("a<b.py", 7, "main")


def call(name: str, number: int = 1, done: bool = True, line: int = 0) -> Call:
    frame = Frame("a.py", line, "main") if line else None
    return Call(name, name, "0", number, ((4,),), ("float32",), done, False, frame)


# Where ranks stand


def rows(drawn: str) -> list[str]:
    """Return the words of each rank's row."""
    parts = re.split(r'<div style="display: flex', drawn)[1:]
    return [unescape(re.sub(r"<[^>]+>", " ", p.replace("<wbr>", ""))) for p in parts]


def test_where_ranks_stand_is_told_in_rows_of_text():
    done, waits = call("all_reduce"), call("all_reduce", 2, done=False)
    stands = [Stand(0, "waits", FRAME, "all_reduce", waits, (1,)), Stand(1, "left")]
    drawn = standstill(stands, [[done, waits], [done]], {1: "ended by SIGABRT"}, {})
    first, second = rows(drawn)
    assert re.search(r"1\. all_reduce\s✓\s+float32 \[4\]", first)
    assert re.search(r"2\. all_reduce\s…\s+float32 \[4\]", first)
    assert re.search(r"waits in all_reduce for rank 1\s+a<b\.py:7", first)
    assert re.search(r"1\. all_reduce\s✓.*2\.\s+–\s+ended by SIGABRT", second)
    sizes = re.findall(r"font-size: (\d+)px", drawn)
    assert sizes and min(map(int, sizes)) >= 12
    assert "group" not in first


def test_calls_of_several_groups_are_told_apart():
    waits = replace(call("barrier"), done=False)
    calls = [[call("barrier"), replace(waits, group=name)] for name in ("1", "2")]
    stands = [Stand(rank, "waits", FRAME, "barrier") for rank in range(2)]
    drawn = [" ".join(row.split()) for row in rows(standstill(stands, calls, {}, {}))]
    assert "1. barrier ✓ float32 [4] group 0" in drawn[0]
    assert "1. barrier … float32 [4] group 1 1. – group 2" in drawn[0]
    assert "1. – group 1 1. barrier … float32 [4] group 2" in drawn[1]


def test_a_call_of_a_group_is_none_that_others_have_not_made():
    waits = replace(call("barrier", done=False), members=(0, 1, 2))
    within = replace(call("all_reduce"), group="9", members=(0, 1))
    left = replace(within, members=())  # it has destroyed the group
    calls = [[within, waits], [left], []]
    stands = [Stand(rank, "elsewhere", FRAME) for rank in range(3)]
    drawn, legend = standstill(stands, calls, {}, {}).rsplit("<div", 1)
    assert [row.count("–") for row in rows(drawn)] == [0, 1, 1]
    boxes = re.findall(r'<div style="(width: 12em.*?)"', drawn)  # 12 of their letters
    assert ["font-size: 12px" in box for box in boxes] == [True] * 6
    assert "not in this group" in legend
    assert "not in this group" not in standstill(stands, [[waits], [], []], {}, {})


def test_of_a_rank_that_left_no_record_no_call_is_told():
    killed = Stand(1, "left", FRAME, end=Signalled(code=-6))
    early = Stand(2, "elsewhere", FRAME)
    stands = [Stand(0, "waits", FRAME, "barrier"), killed, early]
    drawn = rows(standstill(stands, [[call("barrier", done=False)], [], []], {}, {}))
    assert ["–" in row for row in drawn[:2]] == [False, False] and "1. –" in drawn[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_call_is_ticked_that_raised_or_is_waited_in(fault, tmp_path):
    recording = Recording.load(fault)
    log = recording.lay_out(tmp_path)
    failure, _ = find_failure(log, *recording.ending)
    for rank in log.ranks:
        assert not (
            rank.heard.gave_up and rank.calls and all(c.done for c in rank.calls)
        )
    if not failure or not failure.stands:
        return
    drawn = rows(standstill(failure.stands, [r.calls for r in log.ranks], {}, {}))
    for stand, row in zip(failure.stands, drawn, strict=True):
        if stand.call:  # each group counts its own calls
            told = re.findall(rf"{stand.call.number}\. {stand.call.name}\s(.)", row)
            assert stand.call.p2p or "…" in told


def test_the_call_that_raised_is_the_last_one_at_its_line():
    calls = [call("all_reduce", n, line=line) for n, line in ((1, 5), (2, 7), (3, 5))]
    at = {5: [True, True, False], 7: [True, False, True], 9: [True, True, False]}
    for line, done in at.items():
        raised = with_failed(calls, Frame("a.py", line, "main"))
        assert [each.done for each in raised] == done
    # In work.wait(), while a call is known not to be done.
    calls[0] = replace(calls[0], done=False)
    assert with_failed(calls, Frame("a.py", 9, "main")) == calls
    assert with_failed([], None) == []


@pytest.mark.parametrize(
    "backend, state, retired, done",
    [
        ("gloo", "scheduled", True, True),  # gloo keeps no other state
        ("gloo", "scheduled", False, False),
        ("nccl", "completed", True, True),
        ("nccl", "started", True, False),  # it has run out of time
    ],
)
def test_the_recorder_is_asked_whether_a_call_is_done(backend, state, retired, done):
    entry = {
        "profiling_name": f"{backend}:all_reduce",
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "is_p2p": False,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": retired,
    }
    assert as_call(entry)["done"] is done


LONG_NAMES = ("reduce_scatter_tensor", "all_gather_into_tensor", "monitored_barrier")


@pytest.mark.parametrize("name", LONG_NAMES)
def test_the_name_of_a_call_fits_into_its_box(name):
    drawn = standstill([Stand(0, "left")], [[call(name, 100)]], {}, {})
    box = re.search(r"<b>(100\. .*?)</b>", drawn)[1]
    room = 12 * 12 - 2 * 6 - 2 * 2  # its width without padding and border
    for part in re.split(r" |<wbr>", unescape(box)):
        assert text_width(part, 12, bold=True) <= room, part


# Colors

# What a notebook's outputs lie on: JupyterLab's light page, and two layers of its dark.
THEMES = (WHITE, "#111111", "#212121")


@pytest.mark.parametrize("rank", range(8))
def test_a_ranks_bar_is_seen_in_every_theme_and_carries_text(rank):
    for theme in THEMES:
        assert contrast(bar_color(rank), theme) >= 3, theme
    assert contrast(bar_color(rank), text_on(bar_color(rank))) >= 4.5


def test_what_is_drawn_of_ranks_has_the_colors_of_bars():
    calls = [[call("barrier", done=rank < 4)] for rank in range(8)]
    drawn = standstill([Stand(rank, "left") for rank in range(8)], calls, {}, {})
    drawn += display._lines(["a"], bar_color(7))[1]
    bars = {bar_color(rank) for rank in range(8)}
    for color in RANK_COLORS:
        assert (color in drawn) == (color in bars)
    assert all(color in drawn for color in bars)


# The lessons' pictures

BOX = re.compile(
    r'<div style="overflow-x: auto; margin: 1em 0">\n((?:<img [^>]*>\n)+)</div>'
)
IMAGE = re.compile(r'<img src="\.\./figs/(\w+\.svg)" style="([^"]+)" alt="[^"]+">')


def badly_shown(source: str) -> list[str]:
    """Name the pictures in a Markdown cell that a narrow window makes too small."""
    boxes = "".join(BOX.findall(source))
    bad = re.findall(r"\S*\bfigs/(?!steps/)\S*", BOX.sub("", source))
    for name, style in IMAGE.findall(boxes):
        text = (FIGS / name).read_text(encoding="utf-8")
        sizes = map(float, re.findall(r'font-size="([\d.]+)"', text))
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1])
        least = re.search(r"min-width: (\d+)px", style)
        if not least or min(sizes) * float(least[1]) / width < READABLE:
            bad.append(name)
    return bad + ["another form"] * (boxes.count("<img") - len(IMAGE.findall(boxes)))


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem
)
def test_a_lessons_pictures_scroll_before_they_are_too_small(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    assert any(map(BOX.search, prose))
    assert [bad for source in prose for bad in badly_shown(source)] == []


# In a browser

WORDS = "words that a narrow window has to break into lines, none of them too long"


def kit_shows() -> list[str]:
    """Return HTML of each kind that the kit makes."""
    names = (*LONG_NAMES, "a" * 60)
    calls = [[call(name, n, n < 3) for n, name in enumerate(names)]] * 8
    stands = [Stand(rank, "waits", FRAME, "a" * 60) for rank in range(8)]
    lines = [display._lines([WORDS], bar_color(rank))[1] for rank in range(8)]
    change = ["--- a.py", "+++ b.py", f" {WORDS}", f"-{WORDS}", f"+{WORDS}"]
    bars = [[["work", 5.0, 6.0], ["wait for rank 1", 6.0, 9.0]]] * 8
    return [
        "".join(lines),
        variants._html(change),
        standstill(stands, calls, {}, {rank: "node 1, local 3" for rank in range(8)}),
        plots.timeline(bars, "who was when at what")._repr_html_(),
        *(before_after(title, *held)._repr_html_() for title, held in SAMPLES.items()),
    ]


# Of every image: its words, where it is, its width as shown, and whether it scrolls in
# a box that stays inside the cell.
IMAGES = """images => images.map(image => [
    image.alt, image.src, image.getBoundingClientRect().width,
    getComputedStyle(image.parentElement).overflowX == 'auto'
        && image.parentElement.getBoundingClientRect().right
        <= image.closest('.jp-RenderedHTMLCommon').getBoundingClientRect().right])"""
# Outputs that do not stay inside their cell.
TOO_WIDE = """cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1)
    .map(cell => cell.innerText.slice(0, 80))"""
PAGE_TOO_WIDE = "document.documentElement.scrollWidth > window.innerWidth"
# Short words that stand on two lines.
BROKEN = """texts => texts.flatMap(element => {
    const found = [], walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node; node = walk.nextNode();)
        for (const word of node.data.matchAll(/[a-z,]+/g)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const tops = new Set([...range.getClientRects()].map(box => box.top));
            if (tops.size > 1 && word[0].length < 20) found.push(word[0]);
        }
    return found;
})"""
# The colors of the page and of its texts.
COLORS = """texts => [getComputedStyle(document.querySelector('.jp-Notebook')),
    ...texts.map(text => getComputedStyle(text))].map((style, i) =>
    i ? style.color : style.backgroundColor)"""


def smallest_as_shown(source: str, width: float) -> float:
    """Return the size of the smallest text of an image that is `width` wide."""
    kind, _, data = source.partition(";base64,")
    if kind == "data:image/png":
        return plots.SMALLEST * width / plots.PAGE
    name = source.partition("?")[0].rpartition("/")[2]
    text = base64.b64decode(data) if data else (FIGS / name).read_bytes()
    sizes = map(float, re.findall(rb'font-size="([\d.]+)"', text))
    return min(sizes) * width / float(re.search(rb'viewBox="0 0 ([\d.]+)', text)[1])


def look(page, where: str, pictures: int) -> None:
    """Assert that a page's pictures can be read, wide and narrow."""
    images = page.locator(f"{where} img")
    images.nth(pictures - 1).wait_for(state="attached")
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        found = images.evaluate_all(IMAGES)
        assert len(found) == pictures
        for alt, source, shown, inside in found:
            assert smallest_as_shown(source, shown) >= READABLE, (width, alt)
            assert inside, (width, alt)
        assert not page.evaluate(PAGE_TOO_WIDE), width


@pytest.mark.browser
def test_every_picture_of_the_lessons_can_be_read(notebook, server):  # noqa: F811
    """All their cells with pictures are in one notebook: opening sixteen takes long."""
    folder = notebook.parent / "notebooks"
    folder.mkdir()
    shutil.copytree(FIGS, notebook.parent / "figs")
    document = json.loads(notebook.read_text())
    document["cells"] = [
        cell
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown" and "figs/" in "".join(cell["source"])
    ]
    (folder / "pictures.ipynb").write_text(json.dumps(document))
    pictures = json.dumps(document["cells"]).count(".svg")
    assert pictures >= len(list(NOTEBOOKS.glob("*.ipynb")))
    with page_of(server, "notebooks/pictures.ipynb") as page:
        look(page, ".jp-MarkdownCell", pictures)


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_everything_that_the_kit_shows_can_be_read(theme, notebook, server):  # noqa: F811
    themes = server.home / "settings/@jupyterlab/apputils-extension"
    choice = json.dumps({"theme": f"JupyterLab {theme}"})
    (themes / "themes.jupyterlab-settings").write_text(choice)
    document = json.loads(notebook.read_text())
    cell, shown = document["cells"][0], kit_shows()
    kind = {"output_type": "display_data", "metadata": {}}
    document["cells"] = [
        cell | {"id": f"shown{i}", "outputs": [kind | {"data": {"text/html": html}}]}
        for i, html in enumerate(shown)
    ]
    notebook.write_text(json.dumps(document))
    with page_of(server, notebook.name) as page:
        look(page, ".jp-CodeCell", sum("<img" in html for html in shown))
        outputs = page.locator(".jp-CodeCell .jp-RenderedHTMLCommon")
        assert outputs.count() == len(shown)
        assert outputs.evaluate_all(TOO_WIDE) == []
        texts = page.locator(".jp-OutputArea-output :is(pre, pre div, b, code)")
        assert texts.evaluate_all(BROKEN) == []
        back, *colors = [
            "#" + "".join(f"{int(c):02X}" for c in re.findall(r"\d+", rgb)[:3])
            for rgb in texts.evaluate_all(COLORS)
        ]
        assert back.lower() in [theme.lower() for theme in THEMES]
        assert all(contrast(color, back) >= 4.5 for color in colors)
