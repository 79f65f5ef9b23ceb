"""The figures: drawn by the code, told in words, shown by a lesson, true to values."""

import base64
import html
import json
import re
import xml.etree.ElementTree as ElementTree
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from ddp_lab import ROOT
from ddp_lab.kit.cell import variants
from ddp_lab.kit.draw import RANK_COLORS, before_after
from ddp_lab.kit.draw.colors import PALE, WHITE, contrast, text_on
from ddp_lab.kit.draw.svg import Svg, text_width
from ddp_lab.kit.draw.timeline import RANK_BAR, timeline, timelines
from figs import FIGURES

FIGS, NOTEBOOKS = ROOT / "figs", ROOT / "notebooks"
SVG = "{http://www.w3.org/2000/svg}"
MARKDOWN_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)[^)]*\)")
HTML_IMAGE = re.compile(r"<img\b[^>]*>", re.IGNORECASE)


def images(notebook: Path) -> list[tuple[str, str]]:
    """Return (alt text, address) of every image in a notebook's prose."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    prose = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] != "code")
    found = MARKDOWN_IMAGE.findall(prose)
    for tag in HTML_IMAGE.findall(prose):
        pairs = re.findall(r"""(\w+)\s*=\s*(["'])(.*?)\2""", tag)
        names = {name: value for name, _, value in pairs}
        found.append((names.get("alt", ""), names.get("src", "")))
    return found


# The figures of the lessons


def test_committed_figures_are_what_the_code_draws():
    drawn = {f"{name}.svg": str(draw()) for name, draw in FIGURES.items()}
    there = {path.name: path.read_text(encoding="utf-8") for path in FIGS.glob("*.svg")}
    assert {name for name, _ in drawn.items() ^ there.items()} == set(), "make figs"


def test_figures_are_told_in_words():
    for path in FIGS.glob("*.svg"):
        root = ElementTree.parse(path).getroot()
        assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc"), path


def test_notebooks_show_figures_that_exist_and_tell_them_in_words():
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        for alt, address in images(notebook):
            assert (notebook.parent / address).is_file(), (notebook.name, address)
            assert len(alt.split()) >= 4, (notebook.name, address, alt)


def test_every_figure_is_shown_by_a_notebook():
    shown = {
        Path(address).name
        for notebook in NOTEBOOKS.glob("*.ipynb")
        for _, address in images(notebook)
    }
    # An assignment's notebook loads its figures when it runs.
    for notebook in (ROOT / "classroom" / "source").glob("*/*.ipynb"):
        shown |= {*re.findall(r"figs/(\w+\.svg)", notebook.read_text())}
    assert {path.name for path in FIGS.glob("*.svg")} <= shown


# What every drawing must be


def text_boxes(svg: Svg) -> list[tuple[str, float, float, float, float]]:
    """Return each text of a drawing and about where: left, top, right, bottom."""
    boxes = []
    for node in ElementTree.fromstring(str(svg)).iter(f"{SVG}text"):
        size, y = float(node.get("font-size")), float(node.get("y"))
        font = {
            "bold": "font-weight" in node.keys(),
            "mono": "font-family" in node.keys(),
        }
        places = [*map(float, node.get("x").split())]
        texts = node.text if places[1:] else [node.text]  # a place for each character
        for x, text in zip(places, texts, strict=True):
            width = text_width(text, size, **font)
            x -= {"middle": width / 2, "end": width}.get(node.get("text-anchor"), 0)
            boxes.append((text, x, y - 0.75 * size, x + width, y + 0.05 * size))
    return boxes


def see_texts(svg: Svg, margin: int = 4) -> None:
    """See that the texts of a drawing are on its page, and apart."""
    boxes = text_boxes(svg)
    for text, left, top, right, bottom in boxes:
        assert left >= margin and top >= margin, text
        assert right <= svg.width - margin and bottom <= svg.height - margin, text
    for (a, left, top, right, bottom), (b, *other) in combinations(boxes, 2):
        apart = right <= other[0] or other[2] <= left or bottom <= other[1]
        assert apart or other[3] <= top, f"{a!r} lies on {b!r}"


SAMPLES = {
    "two scalars": ([5, 0], [5, 5]),
    "three vectors": ([[1, 2], [3, 4], [5, 6]], [[9, 12]] * 3),
    "one rank holds all": ([[10, 11, 12, 13], None, None, None], [10, 11, 12, 13]),
    "eight by eight": (
        [[10 * rank + i for i in range(8)] for rank in range(8)],
        [[10 * i + rank for i in range(8)] for rank in range(8)],
    ),
    "eight fractions": ([[-1 / 3] * 8] * 4, [[2 / 300] * 8] * 4),
    "far too much": (["words " * 40, "words"], [list(range(1000)), [1e300] * 8]),
    "a title that is much longer than the page is wide, so that it is broken " * 2: (
        [1, 2],
        [2, 1],
    ),
}
DRAWINGS = FIGURES | {
    title: partial(before_after, title, *values) for title, values in SAMPLES.items()
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_texts_stay_on_the_page_and_off_each_other(name):
    see_texts(DRAWINGS[name]())


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_plain_white_and_small(name):
    svg = DRAWINGS[name]()
    root = ElementTree.fromstring(str(svg))
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    page = root[2].attrib
    assert page == {
        "width": f"{svg.width:g}",
        "height": f"{svg.height:g}",
        "fill": WHITE,
    }
    assert root.get("viewBox") == f"0 0 {svg.width:g} {svg.height:g}"
    assert svg.width <= 720 and len(str(svg)) < 40_000
    # With ids, styles or scripts two drawings on one page could disturb each other.
    tags = {node.tag.removeprefix(SVG) for node in root.iter()}
    assert tags <= {"svg", "title", "desc", "rect", "text", "path", "polygon", "circle"}
    assert not any("id" in node.keys() for node in root.iter())


def test_rank_colors_differ_and_carry_readable_text():
    assert len(set(RANK_COLORS)) == 8
    for color in RANK_COLORS:
        assert contrast(color, text_on(color)) >= 4.5


# before_after


def cells_after(svg: Svg) -> list[tuple[str, str]]:
    """Return (text, fill) of the cells right of the arrow, from top to bottom."""
    root = ElementTree.fromstring(str(svg))
    boxes = [node for node in root.iter(f"{SVG}rect") if node.get("rx") == "3"]
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
    assert html.unescape(image[1]) == repr(svg)
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (3, "3"),
        (3.0, "3"),
        (1 / 3, "0.3333"),
        (-0.05, "-0.05"),
        (1234.56, "1235"),
        (123456, "123456"),
        (12345678, "1.2e7"),
        (1e-9, "1e-9"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (True, "True"),
        ("A+B", "A+B"),
    ],
)
def test_values_are_written_short(value, text):
    assert before_after("", [value], [value]).desc.startswith(f"Before: rank 0 {text}.")


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


@pytest.mark.parametrize(("before", "after"), [([], []), ([1], [1, 2])])
def test_ranks_that_do_not_match_are_refused(before, after):
    with pytest.raises(ValueError, match="ranks before"):
        before_after("broken", before, after)


# plots


def test_a_timeline_shows_bars_labels_and_waits():
    rows = [
        [["work", 5.0, 6.0], ["wait for rank 1", 6.0, 9.0], ["a long label", 9.0, 9.1]],
        [["work", 5.0, 9.0]],
    ]
    picture = timeline(rows, "a straggler")
    root = ElementTree.fromstring(str(picture))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words[0] == "a straggler" and words[-5:] == [
        *("rank 0", "rank 1", "work", "wait for rank 1", "work")
    ]
    assert words[1:-5] == [
        "0",
        "0.5",
        "1",
        "1.5",
        "2",
        "2.5",
        "3",
        "3.5",
        "4",
        "seconds",
    ]
    found = [rect.attrib for rect in root.iter(f"{SVG}rect")]
    bars = [bar for bar in found if bar["height"] == str(RANK_BAR)][2:]
    left, second = float(bars[0]["x"]), float(bars[0]["width"])
    starts = [(float(bar["x"]) - left) / second for bar in bars]
    assert starts == pytest.approx([0, 1, 4, 0], abs=0.01)
    widths = [float(bar["width"]) / second for bar in bars]
    assert widths == pytest.approx([1, 3, 0.1, 4], abs=0.01)
    assert [bar["y"] == bars[0]["y"] for bar in bars] == [True, True, True, False]
    assert [bar["fill"] == PALE for bar in bars] == [False, True, False, False]
    assert "rank 1: work 0.000 to 4.000 s" in repr(picture)


def test_timelines_to_be_compared_have_one_scale():
    quick, slow = timelines({"quick": [[["a", 5.0, 6.0]]], "slow": [[["a", 0, 2.0]]]})

    def bar(svg) -> float:
        return float(re.findall(r'<rect [^>]*? width="([\d.]+)"', str(svg))[-1])

    assert bar(slow) == pytest.approx(2 * bar(quick), rel=0.01)


@pytest.mark.parametrize("rows", [[], [[], []], [[["work", 2.0, 1.0]]]])
def test_a_timeline_of_nothing_or_backwards_is_refused(rows):
    with pytest.raises(ValueError):
        timeline(rows, "broken")


def test_a_plot_is_an_image_with_its_title():
    figures = pytest.importorskip("matplotlib.figure")
    from ddp_lab.kit.cell.plots import Plot

    plot = Plot("by class", figures.Figure())
    assert plot.png().startswith(b"\x89PNG")
    assert '<img alt="by class" ' in plot._repr_html_()
    assert 'src="data:image/png;base64,' in plot._repr_html_()
    assert repr(plot) == "Plot: by class"


# differences


def test_a_difference_is_shown_whole_and_in_two_colors():
    lines = ["--- a.py", "+++ b.py", "", " same", "-old <1>", "-old 2", "+new"]
    shown = variants._html(lines)
    red = f'<div style="background-color: {variants.COLORS["-"]};">'
    green = f'<div style="background-color: {variants.COLORS["+"]};">'
    assert f"{red}-old &lt;1&gt;\n-old 2</div>{green}+new</div>" in shown
    assert "<div> same</div>" in shown and "--- a.py\n+++ b.py\n" in shown
