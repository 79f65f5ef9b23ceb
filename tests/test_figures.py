"""The figures: drawn by the code, told in words, shown by a lesson, true to values.

A figure that is drawn once is a row of FIGURES in figs/; one that a lesson draws from
its run has a row of FROM_RUNS here: on what samples it is drawn, and what its words
must say of the first. What holds of every drawing is tried on all of them.
"""

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest

from ddp_lab import ROOT
from ddp_lab.kit.draw import RANK_COLORS, before_after
from ddp_lab.kit.draw.colors import WHITE, tint
from ddp_lab.kit.draw.svg import READABLE, Svg, text_width
from ddp_lab.scale.road import GB, H100, Cut, Training, memory
from figs import FIGURES, STEPPERS
from figs.costs import call_lines, heat, pieces_by_step
from figs.inside import overlap
from figs.less import loss_and_bytes
from figs.long import choices, tiles
from figs.profiles import step_rows
from figs.runs import counters, drift, lost_time, pair_times, progress, stretches
from figs.scale import planned, three_groups
from figs.sharding import WIDE, held_over_step
from whichrank.record.calls import Call

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


def test_notebooks_show_figures_that_exist_and_tell_them_in_words():
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        for alt, address in images(notebook):
            assert (notebook.parent / address).is_file(), (notebook.name, address)
            assert len(alt.split()) >= 4, (notebook.name, address, alt)


def test_every_figure_is_shown():
    shown = {*re.findall(r"figs/(\w+\.svg)", (ROOT / "README.md").read_text())}
    shown |= {
        Path(address).name
        for notebook in NOTEBOOKS.glob("*.ipynb")
        for _, address in images(notebook)
    }
    # An assignment's notebook loads its figures when it runs.
    for notebook in (ROOT / "classroom" / "source").glob("*/*.ipynb"):
        shown |= {*re.findall(r"figs/(\w+\.svg)", notebook.read_text())}
    assert {path.name for path in FIGS.glob("*.svg")} <= shown


# What every drawing must be


def nodes(svg: Svg, tag: str) -> list[dict]:
    """Return what the elements of this name have."""
    return [n.attrib for n in ElementTree.fromstring(str(svg)).iter(f"{SVG}{tag}")]


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


def see(svg: Svg, margin: int = 4) -> None:
    """See that a drawing is plain and has words, its texts on the page and apart."""
    root = ElementTree.fromstring(str(svg))
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert svg.title and svg.desc and svg.smallest >= READABLE
    page = {"width": f"{svg.width:g}", "height": f"{svg.height:g}", "fill": WHITE}
    assert root[2].attrib == page
    assert root.get("viewBox") == f"0 0 {svg.width:g} {svg.height:g}"
    assert svg.width <= 720 and len(str(svg)) < 40_000
    # With ids, styles or scripts two drawings on one page could disturb each other.
    tags = {node.tag.removeprefix(SVG) for node in root.iter()}
    assert tags <= {"svg", "title", "desc", "rect", "text", "path", "polygon", "circle"}
    assert not any("id" in node.keys() for node in root.iter())
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


def call(name: str, group: str, number: int) -> Call:
    return Call(name, name, group, number, ((1,),), ("float32",), True, False, None)


# Two ranks walk alone for two steps, and meet, twice.
PATHS = [[1.0, 2.0, 3.0, 3.0, 3.0, 3.5], [3.0, 4.0, 3.0, 4.0, 4.0, 3.5]]
# Rank 1 takes part in the world only.
CALLS = [
    [call("all_reduce", "1", 1), call("broadcast", "0", 1), call("barrier", "1", 2)],
    [call("broadcast", "0", 1)],
]
# Four ranks on two nodes, where the wire is slow.
FAR = [
    [None, 1.5, 88.0, 92.0],
    [1.5, None, 87.0, 85.0],
    [88.0, 87.0, None, 1.0],
    [92.0, 85.0, 1.0, None],
]
# Four ranks take three steps, are killed after an unsaved one; two go on after a gap.
DIARY = [[0.0, 1, 4], [0.1, 2, 4], [0.2, 3, 4], [5.0, 3, 2], [5.1, 4, 2]]
CURVE = [(2 * 1.1**i, 0.2 + abs(i - 20) / 100) for i in range(48)]
# Weights, gradients and Adam's state, at three moments of a step.
HELD = {
    "DDP": [[4.0, 4.0, 8.0]] * 3,
    "ZeRO-3": [[1.0, 0.0, 2.0], [2.0, 1.0, 2.0], [1.0, 0.0, 2.0]],
}
BLOCKS = [(f"block {i}", 10) for i in (3, 2, 1, 0)]
PHASES = [("forward", 8), ("", 2), *BLOCKS, ("rest", 2), ("", 1)]
# Two ranks in one step: a bucket that leaves at once, and one that has to wait.
ONE_STEP = {
    "start": 5.0,
    "made": [5.001, 5.003, 5.006],
    "trips": [[5.001, 5.004], [5.0061, 5.008]],
    "end": 5.009,
}
# Two ranks swap halves, and then the sums of them.
HALVING = [[[1, 1], [3, 1], [3, 3]], [[2, 2], [2, 3], [3, 3]]]
TO_ROOT = [[[1], [3], [3]], [[2], [2], [3]]]
SIZES = [1000, 10_000, 100_000, 1_000_000]
CALL = {
    "low": [1e-4, 1e-4, 1e-4, 1e-3],
    "median": [1.1e-4, 1.2e-4, 2e-4, 1.1e-3],
    "high": [2e-4, 2e-4, 4e-4, 0.1],
    "alpha": 1e-4,
    "beta": 1e-9,
}
LOSSES = {"DDP": (100.0, [5.0, 3.0, 2.0]), "top-k": (5.0, [5.0, 3.5, 2.05])}
T = Training(175e9, 96, 12288, 1536, 2048, 1024, **H100, slow=45 * GB)
FITS = Cut("DDP", 16, 1, 8, 8, laps=3)


def square(ranks: int) -> Svg:
    rows = [[None if a == b else 88.8 for a in range(ranks)] for b in range(ranks)]
    nodes = [2 * rank // ranks for rank in range(ranks)]
    return pair_times({"one": rows, "two": rows}, nodes)


def mesh() -> Svg:
    sent, across = {"tensor": 40, "pipeline": 5}, dict(pipeline=2, data=1, tensor=1)
    places = [[p, d, t] for p in (0, 1) for d in (0, 1) for t in (0, 1)]
    return three_groups([{"at": at, "sent": sent, "across": across} for at in places])


def cut(loader: int) -> list[dict]:
    """Return four steps of 100 ms, as the verdict cuts them."""
    kinds, rows = ("kernels", "messages", "waiting", "Python"), []
    for at in (1e5 * step for step in range(4)):
        edges = [at + loader + 2000 * i for i in range(4)] + [at + 1e5]
        spans = zip(edges, edges[1:], strict=False)
        row = {kind: [[*span]] for kind, span in zip(kinds, spans, strict=True)}
        rows.append({"loader": [[at, at + loader]], **row})
    return rows


FROM_RUNS = {
    "drift": (
        lambda: [drift([PATHS[r % 2] for r in range(n)], 2, 3.25) for n in (2, 4, 8)],
        "2 ranks walk apart for 2 steps at a time",
        "at their mean: 3.00, 3.50.",
        "ends at 3.25",
    ),
    "counters": (
        lambda: [
            counters(CALLS),
            counters([[call("reduce_scatter_tensor", "0", 1)]] * 8),
            counters([[], []]),
            counters([CALLS[0]] * 8),
            counters([[call("all_gather", str(n // 2), n) for n in range(12)]] * 2),
        ],
        "rank 0, group 0: 1 broadcast, group 1: 1 all_reduce, 2 barrier",
        "rank 1, group 0: 1 broadcast, group 1: none.",
    ),
    "pair_times": (
        lambda: [pair_times({"slow": FAR}, [0, 0, 1, 1]), *map(square, (2, 4, 8))],
        "slow: inside a node 1.0 to 1.5, across 85.0 to 92.0.",
    ),
    "progress": (
        lambda: [progress(DIARY, 4)],
        "4 ranks, 1 to 3; 2 ranks, 3 to 4. 1 were done twice.",
    ),
    "lost_time": (
        lambda: [
            lost_time([(2.0, 0.4), (20.0, 0.1), (200.0, 0.3)], [(20.0, 0.11)], 25.0),
            lost_time(CURVE, CURVE[::8], 25.0),
        ],
        "40% at 2, 10% at 20, 30% at 200. The rule of thumb says 25",
    ),
    "held_over_step": (
        lambda: [
            held_over_step(HELD, [("forward", 2), ("backward", 1)]),
            held_over_step(
                {f"ZeRO-{n}": [[4e6, 4e6, 8e6]] * 53 for n in range(4)}, PHASES
            ),
        ],
        "DDP: weights 4, gradients 4, Adam 8; ZeRO-3: weights 1 to 2,",
        "gradients 0 to 1, Adam 2.",
    ),
    "overlap": (
        lambda: [
            overlap({"two buckets": [ONE_STEP, ONE_STEP]}),
            overlap({name: [ONE_STEP] * 4 for name in ("one bucket", "of 1 MB")}),
        ],
        "two buckets, rank 1: 1 of 2 left early.",
    ),
    "pieces_by_step": (
        lambda: [
            pieces_by_step({"halving": HALVING, "to_root": TO_ROOT}),
            *(
                pieces_by_step({way: [[[1] * n] * 9] * n for way in ("ring", "tree")})
                for n in (2, 4, 8)
            ),
        ],
        "halving: complete 0, 2, 4; to_root: complete 0, 1, 2.",
    ),
    "call_lines": (
        lambda: [
            call_lines(SIZES, {"exchange": CALL, "other": CALL | {"alpha": 3e-4}}),
            call_lines(SIZES, {f"call {n}": CALL for n in range(5)}),
        ],
        "exchange: 100 µs and 1.00 ns a byte; other: 300 µs",
    ),
    "heat": (
        lambda: [
            heat({"whole": [[90, 90], [90, 90]], "own": [[20, 25], [80, 90]]}),
            *(heat({"whole step": [[90.0] * 5] * n}) for n in (2, 4, 8)),
        ],
        "own: rank 0 20 to 25, rank 1 80 to 90",
    ),
    "loss_and_bytes": (
        lambda: [
            loss_and_bytes(LOSSES, 10),
            loss_and_bytes(
                {f"way {i}": (i + 1.0, [5.0, 2.0 + i / 50]) for i in range(6)}, 10
            ),
        ],
        "after 20 steps",
        "DDP: 2.00, bytes × 1; top-k: 2.05, bytes × 0.05.",
    ),
    "tiles": (
        lambda: [tiles("t", {"row": [[0, 1], [2, 3]], "fair": [[0, 3], [1, 2]]})],
        "row: [3, 7]; fair: [5, 5].",
    ),
    "choices": (
        lambda: [choices("who", {"one": [[9, 1, 1, 1]] * 3, "all": [[3] * 4] * 2})],
        "one: 75%; all: 25%.",
    ),
    "three_groups": (
        lambda: [mesh()],
        "pipeline: 0 and 4, 1 and 5, 2 and 6, 3 and 7; over 2 nodes",
        "tensor: 0 and 1, 2 and 3, 4 and 5, 6 and 7; inside a node",
        "a rank sends 40 bytes",
        "sends 0 bytes",
    ),
    "planned": (
        lambda: [
            planned(T, FITS),
            planned(T, Cut("sharded", 128, 128, 8)),
            planned(T, Cut("DDP", 1024)),
        ],
        "tensor 8: neighbors, in one machine; data 16: every 8th rank",
        "pipeline 8: every 128th rank, over 8 machines",
    ),
    "step_rows": (
        lambda: [
            step_rows({"before": [cut(80000), cut(50000)], "after": [cut(8000)] * 2}),
            *(
                step_rows({x: [cut(50000)] * n for x in ("a", "b c")}, 3)
                for n in (1, 8)
            ),
        ],
        "before: rank 0 loader 80 kernels 2",
        "after: rank 0 loader 8",
    ),
}
DRAWINGS = (
    {name: lambda draw=draw: [draw()] for name, draw in FIGURES.items()}
    | {title: lambda t=title: [before_after(t, *SAMPLES[t])] for title in SAMPLES}
    | {name: draw for name, (draw, *_) in FROM_RUNS.items()}
    | {f"steps {name}": lambda n=name: STEPPERS[n]().pictures for name in STEPPERS}
)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_plain_and_its_texts_are_on_the_page_and_apart(name):
    for svg in DRAWINGS[name]():
        see(svg, margin=2 if name.startswith("steps ") else 4)


@pytest.mark.parametrize("name", FROM_RUNS)
def test_a_figure_tells_what_the_run_said(name):
    draw, *told = FROM_RUNS[name]
    assert [words for words in told if words not in draw()[0].desc] == []


# Figures of a run, where a number becomes a length, a place or a color


def widths(svg: Svg) -> list[float]:
    return [float(box["width"]) for box in nodes(svg, "rect")]


def test_lines_that_drift_apart_meet_at_the_mean():
    svg = drift(PATHS, 2, 3.25)
    paths = [p["d"] for p in nodes(svg, "path") if p["d"].count("L") == 6]
    (end,) = {path.rpartition("L")[2] for path in paths}
    last = nodes(svg, "circle")[1]
    x, y = map(float, end.split())
    assert len(paths) == 2
    assert (abs(x - float(last["cx"])), abs(y - float(last["cy"]))) < (0.1, 0.1)


def test_counters_stand_in_the_column_of_their_group():
    places = {text: (left, top) for text, left, top, *_ in text_boxes(counters(CALLS))}
    (group, _), (world, _) = places["group 1"], places["group 0: all"]
    for text, row in (("1 all_reduce", 0), ("2 barrier", 0), ("no call", 1)):
        left, top = places[text]
        assert left > group > world and abs(top - places[f"rank {row}"][1]) < 2, text


def test_longer_times_of_pairs_are_darker():
    fills = [
        box["fill"] for box in nodes(pair_times({"slow": FAR}, [0, 0, 1, 1]), "rect")
    ]
    assert fills.count("#0072B2") >= 2  # of 92, the longest


def test_progress_has_a_line_for_each_stretch():
    assert [len(part) for part in stretches(DIARY)] == [3, 2]
    assert [len(part) for part in stretches([[0.0, 1, 2], [9.0, 2, 2]])] == [1, 1]


def test_what_is_held_is_drawn_to_scale():
    svg = held_over_step(HELD, [("forward", 2), ("backward", 1)])
    boxes = [(float(b["width"]), float(b["height"])) for b in nodes(svg, "rect")]
    areas = [width * high for width, high in boxes if 12 < width < WIDE + 1]
    # Three kinds stay alike; then Adam's state, weights in three columns, gradients.
    assert len(areas) == 3 + 5
    assert abs(sum(areas[:3]) / sum(areas[3:]) - 48 / 11) < 0.01


def test_the_overlap_is_drawn_to_scale_a_lane_for_each_bucket():
    svg = overlap({"two buckets": [ONE_STEP, ONE_STEP]})
    made, trip = [width for width in widths(svg) if width < 600][1:5:3]
    assert abs(made - 2 / 9 * 508) < 0.1 and abs(trip - 3 / 9 * 508) < 0.1
    late = ONE_STEP | {"trips": [[5.001, 5.008], [5.0061, 5.0085]]}
    boxes = nodes(overlap({"two buckets": [late]}), "rect")
    first, second = (box for box in boxes if box["fill"] == RANK_COLORS[0])
    assert float(second["y"]) >= float(first["y"]) + float(first["height"])


def test_pieces_have_the_colors_of_their_sum_and_a_frame_when_it_is_whole():
    paths = nodes(pieces_by_step({"halving": HALVING, "to_root": TO_ROOT}), "path")
    assert [p["d"].count("z") for p in paths if p.get("stroke")] == [2 + 4, 1 + 2]
    paths = nodes(pieces_by_step({"to_root": TO_ROOT}), "path")
    stripes = {path.get("fill"): path["d"].count("z") for path in paths}
    assert [stripes[RANK_COLORS[rank]] for rank in (0, 1)] == [1 + 1 + 2, 1 + 2 + 2]


def test_the_map_is_darkest_where_the_time_is_longest():
    svg = heat({"whole": [[90, 90], [90, 90]], "own": [[20, 25], [80, 90]]})
    fills = [box["fill"] for box in nodes(svg, "rect")]
    assert fills.count(tint("#0072B2", 1.0)) == 4 + 1 + 1  # and rank 0


def test_losses_without_bytes_tell_no_bytes():
    runs = {name: (0, losses) for name, (_, losses) in LOSSES.items()}
    assert "bytes ×" not in loss_and_bytes(runs, 10).desc


def test_tiles_have_the_color_of_their_rank():
    svg = tiles("t", {"row": [[0, 1], [2, 3]], "fair": [[0, 3], [1, 2]]})
    fills = [box["fill"] for box in nodes(svg, "rect")]
    drawn = [fills.count(tint(color, 0.45)) for color in RANK_COLORS[:2]]
    assert drawn == [3 + 5, 7 + 5]


def test_the_darkest_expert_is_the_one_that_most_tokens_chose():
    svg = choices("who", {"one": [[9, 1, 1, 1]] * 3, "all": [[3] * 4] * 2})
    shades = {path["fill"]: path["d"].count("M") for path in nodes(svg, "path")}
    # Three times the mean is six of eight shades; the mean is two, and a third is one.
    assert [shades[tint("#0072B2", s / 8)] for s in (6, 2, 1)] == [3, 4 * 2, 3 * 3]


def test_a_layout_is_drawn_with_all_that_fills_it():
    svg = planned(T, FITS)
    assert "does not fit" not in str(svg) and "does not fit" in str(
        planned(T, Cut("DDP", 1024))
    )
    # Below the bar stands what the description says, not a share of what is used.
    told = re.findall(r"(\w+) ([\d.]+) GB", svg.desc)
    assert all(f">{kind} {size} GB<" in str(svg) for kind, size in told)
    kinds = ["weights", "gradients", "optimizer", "activations"]
    assert [kind for kind, _ in told] == kinds  # DDP gathers nothing
    whole = sum(float(size) for _, size in told)
    assert whole == pytest.approx(sum(memory(T, FITS)) / GB, abs=0.3)
