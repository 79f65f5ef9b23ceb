"""What the kit draws: true to values, readable in narrow windows, no false ticks."""

import base64
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape

import pytest
from faults import FAULTS
from record_evidence import Recording
from test_figures import FIGS, NOTEBOOKS, SAMPLES, SVG, nodes
from test_jupyterlab import notebook, page_of, server  # noqa: F401  (fixtures)

from ddp_lab.kit.cell import display, plots, variants
from ddp_lab.kit.draw import RANK_COLORS, bar_color, before_after, standstill
from ddp_lab.kit.draw.colors import PALE, WHITE, contrast, text_on
from ddp_lab.kit.draw.svg import READABLE, Svg, text_width
from ddp_lab.kit.draw.timeline import RANK_BAR, timeline, timelines
from whichrank.explain.causes.ended import Signalled
from whichrank.explain.find import find_failure
from whichrank.explain.states import Elsewhere, Left, Waits
from whichrank.record.calls import Call, with_failed
from whichrank.record.stacks import Frame
from whichrank.run.inside.recorder import as_call

FRAME = Frame("a<b.py", 7, "main")


def call(name: str, number: int = 1, done: bool = True, line: int = 0) -> Call:
    frame = Frame("a.py", line, "main") if line else None
    return Call(name, name, "0", number, ((4,),), ("float32",), done, False, frame)


# Values before and after


def cells_after(svg: Svg) -> list[tuple[str, str]]:
    """Return (text, fill) of the cells right of the arrow, from top to bottom."""
    root = ElementTree.fromstring(str(svg))
    boxes = [box for box in nodes(svg, "rect") if box.get("rx") == "3"]
    middle = float(svg.width) / 2
    cells = []
    for box in boxes:
        left, top = float(box.get("x")), float(box.get("y"))
        right, bottom = left + float(box.get("width")), top + float(box.get("height"))
        inside = [
            node.text
            for node in root.iter(f"{SVG}text")
            if left < float(node.get("x")) < right
            and top < float(node.get("y")) < bottom
        ]
        if left > middle and inside:
            cells.append((inside[0], box.get("fill")))
    return cells


def fills(count: int) -> list[str]:
    """Return the fill of a cell of each of the first ranks."""
    own = before_after("", list(range(count)), list(range(count)))
    return [fill for _, fill in cells_after(own)]


def test_before_after_says_everything_in_words():
    svg = before_after("gather", [1, 2.5], [[1, 2.5], None])
    assert svg.title == "gather"
    assert svg.desc == (
        "Before: rank 0 1; rank 1 2.5. After: rank 0 1, 2.5; rank 1 nothing."
    )
    assert repr(svg) == f"{svg.title}: {svg.desc}"
    assert str(svg) == str(before_after("gather", [1, 2.5], [[1, 2.5], None]))


def test_a_drawing_shows_as_an_image_with_its_words():
    svg = before_after("gather", ['"<a>"', 2], [["x", 2], None])
    image = re.search(
        r'<img alt="([^"]+)" .*src="data:image/svg\+xml;base64,([^"]+)">',
        svg._repr_html_(),
    )
    assert unescape(image[1]) == repr(svg)
    assert base64.b64decode(image[2]).decode() == str(svg)


def test_a_value_that_moved_has_the_color_of_where_it_was():
    blue, orange, green = fills(3)
    ring = before_after("ring", [10, 11, 12], [12, 10, 11])
    assert cells_after(ring) == [("12", green), ("10", blue), ("11", orange)]
    kept = before_after("kept", [7, 7, 8], [7, 7, 7])
    assert cells_after(kept) == [("7", blue), ("7", orange), ("7", blue)]


def test_a_value_that_was_computed_is_white():
    _, orange = fills(2)
    # The 2 on rank 0 is a sum, although rank 0 held a 2 before, in its other cell.
    summed = before_after("reduce to rank 0", [[1, 2], [1, 3]], [[2, 5], [1, 3]])
    assert cells_after(summed) == [
        ("2", WHITE),
        ("5", WHITE),
        ("1", orange),
        ("3", orange),
    ]


VALUES = {
    "0": (0, -0.0),
    "3": (3, 3.0),
    "0.3333": (1 / 3,),
    "-0.05": (-0.05,),
    "1235": (1234.56,),
    "123456": (123456,),
    "1.2e7": (12345678,),
    "1e-9": (1e-9,),
    "nan": (float("nan"),),
    "-inf": (float("-inf"),),
    "True": (True,),
    "A+B": ("A+B",),
}


def test_values_are_written_short():
    for text, values in VALUES.items():
        for value in values:
            told = before_after("", [value], [value]).desc
            assert told.startswith(f"Before: rank 0 {text}."), value


def test_tensors_and_lists_of_lists_are_laid_out_flat():
    class Tensor:
        def tolist(self):
            return [[1.0, 2.0], [3.0, 4.0]]

    flat = before_after("", [[1, 2, 3, 4]], [None])
    for nested in (Tensor(), [[1, 2], [3, 4]], ([1, 2], [3, 4])):
        assert str(before_after("", [nested], [None])) == str(flat)
    assert "1, –, 2" in before_after("", [[1, None, 2]], [None]).desc


def test_the_end_of_a_long_row_is_cut_off():
    assert "5, 6, …;" in before_after("", [list(range(9)), 0], [0, 0]).desc
    assert "6, 7;" in before_after("", [list(range(8)), 0], [0, 0]).desc


def test_markup_in_values_and_titles_is_text():
    svg = before_after("a < b & c", ["<script>"], ["&amp;"])
    root = ElementTree.fromstring(str(svg))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"a < b & c", "<script>", "&amp;"} <= set(texts)


def test_ranks_that_do_not_match_are_refused():
    for before, after in (([], []), ([1], [1, 2])):
        with pytest.raises(ValueError, match="ranks before"):
            before_after("broken", before, after)


# Timelines, plots, differences


def test_a_timeline_shows_bars_labels_and_waits_to_scale():
    rows = [
        [["work", 5.0, 6.0], ["wait for rank 1", 6.0, 9.0], ["a long label", 9.0, 9.1]],
        [["work", 5.0, 9.0]],
    ]
    picture = timeline(rows, "a straggler")
    words = ElementTree.fromstring(str(picture)).iter(f"{SVG}text")
    assert [word.text for word in words][-5:] == [
        "rank 0",
        "rank 1",
        "work",
        "wait for rank 1",
        "work",
    ]
    bars = [bar for bar in nodes(picture, "rect") if bar["height"] == str(RANK_BAR)][2:]
    left, second = float(bars[0]["x"]), float(bars[0]["width"])
    spans = [(float(bar["x"]) - left, float(bar["width"])) for bar in bars]
    drawn = [length / second for span in spans for length in span]
    assert drawn == pytest.approx([0, 1, 1, 3, 4, 0.1, 0, 4], abs=0.01)
    assert [bar["y"] == bars[0]["y"] for bar in bars] == [True, True, True, False]
    assert [bar["fill"] == PALE for bar in bars] == [False, True, False, False]
    assert "rank 1: work 0.000 to 4.000 s" in repr(picture)


def test_timelines_to_be_compared_have_one_scale():
    quick, slow = timelines({"quick": [[["a", 5.0, 6.0]]], "slow": [[["a", 0, 2.0]]]})

    wide = [float(nodes(svg, "rect")[-1]["width"]) for svg in (quick, slow)]
    assert wide[1] == pytest.approx(2 * wide[0], rel=0.01)


def test_a_timeline_of_nothing_or_backwards_is_refused():
    for rows in ([], [[], []], [[["work", 2.0, 1.0]]]):
        with pytest.raises(ValueError):
            timeline(rows, "broken")


def test_a_plot_is_an_image_with_its_title():
    figures = pytest.importorskip("matplotlib.figure")
    plot = plots.Plot("by class", figures.Figure())
    assert plot.png().startswith(b"\x89PNG")
    assert '<img alt="by class" ' in plot._repr_html_()
    assert 'src="data:image/png;base64,' in plot._repr_html_()
    assert repr(plot) == "Plot: by class"


def test_a_difference_is_shown_whole_and_in_two_colors():
    lines = ["--- a.py", "+++ b.py", "", " same", "-old <1>", "-old 2", "+new"]
    shown = variants._html(lines)
    red = f'<div style="background-color: {variants.COLORS["-"]};">'
    green = f'<div style="background-color: {variants.COLORS["+"]};">'
    assert f"{red}-old &lt;1&gt;\n-old 2</div>{green}+new</div>" in shown
    assert "<div> same</div>" in shown and "--- a.py\n+++ b.py\n" in shown


# Where ranks stand


def rows(drawn: str) -> list[str]:
    """Return the words of each rank's row."""
    parts = re.split(r'<div style="display: flex', drawn)[1:]
    return [unescape(re.sub(r"<[^>]+>", " ", p.replace("<wbr>", ""))) for p in parts]


def test_where_ranks_stand_is_told_in_rows_of_text():
    done, waits = call("all_reduce"), call("all_reduce", 2, done=False)
    stands = [Waits(0, FRAME, "all_reduce", waits, (1,)), Left(1)]
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
    stands = [Waits(rank, FRAME, "barrier") for rank in range(2)]
    drawn = [" ".join(row.split()) for row in rows(standstill(stands, calls, {}, {}))]
    assert "1. barrier ✓ float32 [4] group 0" in drawn[0]
    assert "1. barrier … float32 [4] group 1 1. – group 2" in drawn[0]
    assert "1. – group 1 1. barrier … float32 [4] group 2" in drawn[1]


def test_a_call_of_a_group_is_none_that_others_have_not_made():
    waits = replace(call("barrier", done=False), members=(0, 1, 2))
    within = replace(call("all_reduce"), group="9", members=(0, 1))
    left = replace(within, members=())  # it has destroyed the group
    calls = [[within, waits], [left], []]
    stands = [Elsewhere(rank, FRAME) for rank in range(3)]
    drawn, legend = standstill(stands, calls, {}, {}).rsplit("<div", 1)
    assert [row.count("–") for row in rows(drawn)] == [0, 1, 1]
    boxes = re.findall(r'<div style="(width: 12em.*?)"', drawn)  # 12 of their letters
    assert ["font-size: 12px" in box for box in boxes] == [True] * 6
    assert "not in this group" in legend
    assert "not in this group" not in standstill(stands, [[waits], [], []], {}, {})


def test_of_a_rank_that_left_no_record_no_call_is_told():
    killed = Left(1, FRAME, end=Signalled(code=-6))
    early = Elsewhere(2, FRAME)
    stands = [Waits(0, FRAME, "barrier"), killed, early]
    drawn = rows(standstill(stands, [[call("barrier", done=False)], [], []], {}, {}))
    assert ["–" in row for row in drawn[:2]] == [False, False] and "1. –" in drawn[2]


def test_no_call_is_ticked_that_raised_or_is_waited_in(tmp_path):
    drawn = 0
    for fault in FAULTS:
        recording = Recording.load(fault)
        log = recording.lay_out(tmp_path / fault.name)
        failure, _ = find_failure(log, *recording.ending)
        calls = [rank.calls for rank in log.ranks]
        for rank, made in zip(log.ranks, calls, strict=True):
            all_done = made and all(each.done for each in made)
            assert not (rank.heard.gave_up and all_done), fault.name
        if not failure or not failure.stands:
            continue
        drawing = rows(standstill(failure.stands, calls, {}, {}))
        for stand, row in zip(failure.stands, drawing, strict=True):
            call = stand.call if isinstance(stand, Waits) else None
            if call and not call.p2p:  # each group counts its own calls
                told = re.findall(rf"{call.number}\. {call.name}\s(.)", row)
                assert "…" in told, fault.name
                drawn += 1
    assert drawn


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


def test_the_name_of_a_call_fits_into_its_box():
    room = 12 * 12 - 2 * 6 - 2 * 2  # its width without padding and border
    for name in LONG_NAMES:
        drawn = standstill([Left(0)], [[call(name, 100)]], {}, {})
        box = re.search(r"<b>(100\. .*?)</b>", drawn)[1]
        for part in re.split(r" |<wbr>", unescape(box)):
            assert text_width(part, 12, bold=True) <= room, part


# Colors

# What a notebook's outputs lie on: JupyterLab's light page, and two layers of its dark.
THEMES = (WHITE, "#111111", "#212121")


def test_ranks_colors_differ_carry_text_and_are_seen_in_every_theme():
    assert len(set(RANK_COLORS)) == 8
    for color in (*RANK_COLORS, *map(bar_color, range(8))):
        assert contrast(color, text_on(color)) >= 4.5
    for bar in map(bar_color, range(8)):
        assert min(contrast(bar, theme) for theme in THEMES) >= 3


def test_what_is_drawn_of_ranks_has_the_colors_of_bars():
    calls = [[call("barrier", done=rank < 4)] for rank in range(8)]
    drawn = standstill([Left(rank) for rank in range(8)], calls, {}, {})
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


def test_a_lessons_pictures_scroll_before_they_are_too_small():
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        assert any(map(BOX.search, prose)), path.name
        assert [bad for source in prose for bad in badly_shown(source)] == [], path.name


# In a browser

WORDS = "words that a narrow window has to break into lines, none of them too long"


def kit_shows() -> list[str]:
    """Return HTML of each kind that the kit makes."""
    names = (*LONG_NAMES, "a" * 60)
    calls = [[call(name, n, n < 3) for n, name in enumerate(names)]] * 8
    stands = [Waits(rank, FRAME, "a" * 60) for rank in range(8)]
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
    themes.mkdir(parents=True, exist_ok=True)
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
