"""Figures that a lesson draws from its run: each says what the run said."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from test_figures import SVG, see_texts, text_boxes

from ddp_lab.kit.draw import RANK_COLORS
from ddp_lab.kit.draw.colors import tint
from ddp_lab.kit.record.calls import Call
from ddp_lab.scale.road import GB, H100, Cut, Training, memory
from figs.costs import call_lines, heat, pieces_by_step
from figs.inside import overlap
from figs.less import loss_and_bytes
from figs.long import choices, tiles
from figs.profiles import step_rows
from figs.runs import counters, drift, lost_time, pair_times, progress, stretches
from figs.scale import planned, three_groups
from figs.sharding import WIDE, held_over_step

# Two ranks walk alone for two steps, and meet, twice.
PATHS = [[1.0, 2.0, 3.0, 3.0, 3.0, 3.5], [3.0, 4.0, 3.0, 4.0, 4.0, 3.5]]


def test_the_drift_tells_where_the_ranks_meet():
    svg = drift(PATHS, 2, 3.25)
    assert "2 ranks walk apart for 2 steps at a time" in svg.desc
    assert "at their mean: 3.00, 3.50." in svg.desc and "ends at 3.25" in svg.desc


def test_the_drift_has_a_line_for_each_rank_and_a_circle_for_each_mean():
    root = ElementTree.fromstring(str(drift(PATHS, 2, 3.25)))
    walks = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("d").count("L") == 6]
    circles = [(c.get("cx"), c.get("cy")) for c in root.iter(f"{SVG}circle")]
    assert len(walks) == 2 and len(circles) == 2
    # Both lines pass through the last circle, and end there.
    ends = {walk.rpartition("L")[2] for walk in walks}
    assert len(ends) == 1
    x, y = map(float, ends.pop().split())
    assert (abs(x - float(circles[1][0])), abs(y - float(circles[1][1]))) < (0.1, 0.1)


def test_the_drift_keeps_its_texts_on_the_page_and_apart():
    for ranks in (2, 4, 8):
        see_texts(drift([PATHS[rank % 2] for rank in range(ranks)], 2, 3.25))


def call(name: str, group: str, number: int) -> Call:
    return Call(name, name, group, number, ((1,),), ("float32",), True, False, None)


# Rank 1 takes part in the world only.
CALLS = [
    [call("all_reduce", "1", 1), call("broadcast", "0", 1), call("barrier", "1", 2)],
    [call("broadcast", "0", 1)],
]


def test_the_counters_tell_each_group_apart():
    svg = counters(CALLS)
    assert "rank 0, group 0: 1 broadcast, group 1: 1 all_reduce, 2 barrier" in svg.desc
    assert "rank 1, group 0: 1 broadcast, group 1: none." in svg.desc
    places = {text: (left, top) for text, left, top, *_ in text_boxes(svg)}
    (group, _), (world, _) = places["group 1"], places["group 0: all"]
    for text, column, row in (
        ("1 all_reduce", group, "rank 0"),
        ("2 barrier", group, "rank 0"),
        ("no call", group, "rank 1"),
    ):
        left, top = places[text]
        assert left > column > world and abs(top - places[row][1]) < 2, text


def test_the_counters_show_a_ranks_last_calls_in_its_color():
    many = [call("all_reduce", "0", number) for number in range(1, 9)]
    root = ElementTree.fromstring(str(counters([many, many])))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert "8 all_reduce" in texts and "1 all_reduce" not in texts
    fills = [node.get("fill") for node in root.iter(f"{SVG}rect")]
    shown = sum("all_reduce" in text for text in texts) // 2
    assert fills.count(tint(RANK_COLORS[1])) == shown == 4


def test_the_counters_keep_their_texts_on_the_page_and_apart():
    worlds = [[call("reduce_scatter_tensor", "0", 1)]] * 8
    for calls in (CALLS, worlds, [[], []], [CALLS[0]] * 8):
        see_texts(counters(calls))
    groups = [call("all_gather", str(n // 2), n) for n in range(12)]
    see_texts(counters([groups, groups]))


# Four ranks on two nodes; as it is, and where the wire is slow.
NEAR = [
    [None, 1.5, 1.25, 1.5],
    [1.5, None, 2.0, 5.4],
    [1.25, 2.0, None, 1.0],
    [1.5, 5.4, 1.0, None],
]
FAR = [
    [None, 1.5, 88.0, 92.0],
    [1.5, None, 87.0, 85.0],
    [88.0, 87.0, None, 1.0],
    [92.0, 85.0, 1.0, None],
]


def test_the_times_of_the_pairs_are_told_inside_and_across():
    svg = pair_times({"as it is": NEAR, "slow": FAR}, [0, 0, 1, 1])
    assert "as it is: inside a node 1.0 to 1.5, across 1.2 to 5.4;" in svg.desc
    assert "slow: inside a node 1.0 to 1.5, across 85.0 to 92.0." in svg.desc


def test_the_times_of_the_pairs_are_darker_where_they_are_longer():
    svg = pair_times({"as it is": NEAR, "slow": FAR}, [0, 0, 1, 1])
    root = ElementTree.fromstring(str(svg))
    fills = [box.get("fill") for box in root.iter(f"{SVG}rect")]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("88") == 2 and texts.count("1.5") == 6
    assert fills.count("#0072B2") >= 2  # of 92, the longest
    lines = [
        path for path in root.iter(f"{SVG}path") if path.get("stroke-width") == "2"
    ]
    assert len(lines) == 4  # in each matrix one down and one across, between the nodes


def test_the_times_of_the_pairs_keep_their_texts_on_the_page_and_apart():
    for ranks in (2, 4, 8):
        rows = [[None if a == b else 88.8 for a in range(ranks)] for b in range(ranks)]
        nodes = [2 * rank // ranks for rank in range(ranks)]
        see_texts(pair_times({"one": rows, "two": rows}, nodes))


# Four ranks take three steps, are killed after an unsaved one; two go on after a gap.
DIARY = [[0.0, 1, 4], [0.1, 2, 4], [0.2, 3, 4], [5.0, 3, 2], [5.1, 4, 2]]


def test_the_progress_has_a_line_for_each_stretch():
    svg = progress(DIARY, 4)
    assert "4 ranks, 1 to 3; 2 ranks, 3 to 4. 1 were done twice." in svg.desc
    assert [len(part) for part in stretches(DIARY)] == [3, 2]
    lines = [p.get("d") for p in ElementTree.fromstring(str(svg)).iter(f"{SVG}path")]
    assert len([d for d in lines if "." in d.partition("L")[0]]) == 2


def test_a_step_that_took_long_was_interrupted():
    assert [len(part) for part in stretches([[0.0, 1, 2], [9.0, 2, 2]])] == [1, 1]


def test_the_lost_time_is_told_and_drawn():
    truth, dots = [(2.0, 0.4), (20.0, 0.1), (200.0, 0.3)], [(20.0, 0.11)]
    svg = lost_time(truth, dots, 25.0)
    assert "40% at 2, 10% at 20, 30% at 200. The rule of thumb says 25" in svg.desc
    root = ElementTree.fromstring(str(svg))
    assert len(list(root.iter(f"{SVG}circle"))) == 1


def test_these_figures_keep_their_texts_on_the_page_and_apart():
    curve = [(2 * 1.1**i, 0.2 + abs(i - 20) / 100) for i in range(48)]
    for svg in (progress(DIARY, 4), lost_time(curve, curve[::8], 25.0)):
        see_texts(svg)


# Weights, gradients and Adam's state, at three moments of a step.
HELD = {
    "DDP": [[4.0, 4.0, 8.0]] * 3,
    "ZeRO-3": [[1.0, 0.0, 2.0], [2.0, 1.0, 2.0], [1.0, 0.0, 2.0]],
}


def test_what_is_held_is_told_and_drawn_to_scale():
    svg = held_over_step(HELD, [("forward", 2), ("backward", 1)])
    assert "DDP: weights 4, gradients 4, Adam 8; ZeRO-3: weights 1 to 2," in svg.desc
    assert "gradients 0 to 1, Adam 2." in svg.desc
    boxes = [box.attrib for box in ElementTree.fromstring(str(svg)).iter(f"{SVG}rect")]
    columns = [box for box in boxes if 12 < float(box["width"]) < WIDE + 1]
    areas = [float(box["width"]) * float(box["height"]) for box in columns]
    # Three kinds that stay alike; then Adam's state, weights in three columns, and
    # gradients in one.
    assert [round(3 * float(box["width"]) / WIDE) for box in columns][:3] == [3] * 3
    assert len(columns) == 3 + 5
    assert abs(sum(areas[:3]) / sum(areas[3:]) - 48 / 11) < 0.01


def test_what_is_held_keeps_its_texts_on_the_page_and_apart():
    blocks = [(f"block {i}", 10) for i in (3, 2, 1, 0)]
    phases = [("forward", 8), ("", 2), *blocks, ("rest", 2), ("", 1)]
    names = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
    see_texts(held_over_step({name: [[4e6, 4e6, 8e6]] * 53 for name in names}, phases))


# Two ranks in one step: a bucket that leaves at once, and one that has to wait.
ONE_STEP = {
    "start": 5.0,
    "made": [5.001, 5.003, 5.006],
    "trips": [[5.001, 5.004], [5.0061, 5.008]],
    "end": 5.009,
}


def test_the_overlap_tells_what_left_early_and_is_drawn_to_scale():
    svg = overlap({"two buckets": [ONE_STEP, ONE_STEP]})
    assert "two buckets, rank 1: 1 of 2 left early." in svg.desc
    boxes = [box.attrib for box in ElementTree.fromstring(str(svg)).iter(f"{SVG}rect")]
    widths = [float(box["width"]) for box in boxes if float(box["width"]) < 600]
    made, trip = widths[1], widths[4]  # 2 ms and 3 ms of 9
    assert abs(made - 2 / 9 * 508) < 0.1 and abs(trip - 3 / 9 * 508) < 0.1


def test_the_overlap_has_a_lane_for_each_bucket_and_numbers_its_gradients():
    late = {**ONE_STEP, "trips": [[5.001, 5.008], [5.0061, 5.0085]]}
    svg = overlap({"two buckets": [late]})
    boxes = [box.attrib for box in ElementTree.fromstring(str(svg)).iter(f"{SVG}rect")]
    first, second = [box for box in boxes if box["fill"] == RANK_COLORS[0]]
    assert float(second["y"]) >= float(first["y"]) + float(first["height"])
    texts = [text for text, *_ in text_boxes(svg)]
    assert {"bucket 0", "bucket 1", "0 ms"} <= set(texts)
    assert texts.count("0") == 1 and texts.count("1") == 2  # two fill the second one


def test_the_overlap_keeps_its_texts_on_the_page_and_apart():
    see_texts(overlap({name: [ONE_STEP] * 4 for name in ("one bucket", "of 1 MB")}))


# Two ranks swap halves, and then the sums of them.
HALVING = [[[1, 1], [3, 1], [3, 3]], [[2, 2], [2, 3], [3, 3]]]
TO_ROOT = [[[1], [3], [3]], [[2], [2], [3]]]


def test_pieces_are_framed_where_all_ranks_are_in_the_sum():
    svg = pieces_by_step({"halving": HALVING, "to_root": TO_ROOT})
    assert "halving: complete 0, 2, 4; to_root: complete 0, 1, 2." in svg.desc
    paths = ElementTree.fromstring(str(svg)).iter(f"{SVG}path")
    frames = [path.get("d").count("z") for path in paths if path.get("stroke")]
    assert frames == [2 + 4, 1 + 2]


def test_the_colors_of_a_piece_are_those_of_its_sum():
    root = ElementTree.fromstring(str(pieces_by_step({"to_root": TO_ROOT})))
    stripes = {p.get("fill"): p.get("d").count("z") for p in root.iter(f"{SVG}path")}
    assert stripes[RANK_COLORS[0]] == 1 + 1 + 2
    assert stripes[RANK_COLORS[1]] == 1 + 2 + 2


SIZES = [1000, 10_000, 100_000, 1_000_000]
CALL = {
    "low": [1e-4, 1e-4, 1e-4, 1e-3],
    "median": [1.1e-4, 1.2e-4, 2e-4, 1.1e-3],
    "high": [2e-4, 2e-4, 4e-4, 0.1],
    "alpha": 1e-4,
    "beta": 1e-9,
}


def test_the_lines_tell_alpha_and_beta_and_have_a_dot_for_each_size():
    svg = call_lines(SIZES, {"exchange": CALL, "all_reduce": CALL | {"alpha": 3e-4}})
    assert "exchange: 100 µs and 1.00 ns a byte; all_reduce: 300 µs" in svg.desc
    dots = [*ElementTree.fromstring(str(svg)).iter(f"{SVG}circle")]
    assert len(dots) == 2 * len(SIZES)
    heights = [float(dot.get("cy")) for dot in dots[: len(SIZES)]]
    assert heights == sorted(heights, reverse=True)


def test_the_map_is_darkest_where_the_time_is_longest():
    svg = heat({"whole": [[90, 90], [90, 90]], "own": [[20, 25], [80, 90]]})
    assert "own: rank 0 20 to 25, rank 1 80 to 90" in svg.desc
    fills = [
        box.get("fill") for box in ElementTree.fromstring(str(svg)).iter(f"{SVG}rect")
    ]
    assert fills.count(tint("#0072B2", 1.0)) == 4 + 1 + 1  # and rank 0


def test_the_figures_of_costs_keep_their_texts_on_the_page_and_apart():
    for ranks in (2, 4, 8):
        see_texts(
            heat({"whole step": [[90.0] * 5] * ranks, "own": [[9.0] * 5] * ranks})
        )
        names = ("to_root", "ring", "two_level")
        see_texts(pieces_by_step({n: [[[1] * ranks] * 9] * ranks for n in names}))
    see_texts(call_lines(SIZES, {f"call {n}": CALL for n in range(5)}))


RUNS = {"DDP": (100.0, [5.0, 3.0, 2.0]), "top-k": (5.0, [5.0, 3.5, 2.05])}


def test_the_losses_tell_the_bytes_beside_those_of_the_first():
    svg = loss_and_bytes(RUNS, 10)
    assert "DDP: 2.00, bytes × 1; top-k: 2.05, bytes × 0.05." in svg.desc
    assert "after 20 steps" in svg.desc


def test_losses_without_bytes_tell_no_bytes():
    runs = {name: (0, losses) for name, (_, losses) in RUNS.items()}
    assert "bytes ×" not in loss_and_bytes(runs, 10).desc


def test_the_losses_have_a_line_each_and_texts_apart():
    many = {f"way {i}": (i + 1.0, [5.0, 3.0, 2.0 + i / 100]) for i in range(6)}
    svg = loss_and_bytes(many, 10)
    paths = ElementTree.fromstring(str(svg)).iter(f"{SVG}path")
    assert sum(path.get("d").count("L") == 2 for path in paths) == 6
    see_texts(svg)


def test_the_tiles_are_counted_for_each_rank():
    svg = tiles("tiles", {"in a row": [[0, 1], [2, 3]], "fair": [[0, 3], [1, 2]]})
    assert "in a row: [3, 7]; fair: [5, 5]." in svg.desc
    words = [text for text, *_ in text_boxes(svg)]
    assert [words.count(count) for count in ("7", "5")] == [1, 2]
    boxes = list(ElementTree.fromstring(str(svg)).iter(f"{SVG}rect"))
    for rank, color in enumerate(RANK_COLORS[:2]):
        drawn = [box.get("fill") for box in boxes].count(tint(color, 0.45))
        assert drawn == [3 + 5, 7 + 5][rank]


def test_the_darkest_expert_is_the_one_that_most_tokens_chose():
    svg = choices("who is chosen", {"one": [[9, 1, 1, 1]] * 3, "all": [[3] * 4] * 2})
    assert "one: 75%; all: 25%." in svg.desc
    paths = ElementTree.fromstring(str(svg)).iter(f"{SVG}path")
    shades = {path.get("fill"): path.get("d").count("M") for path in paths}
    # Three times the mean is six of eight shades; the mean is two, and a third is one.
    assert [shades[tint("#0072B2", s / 8)] for s in (6, 2, 1)] == [3, 4 * 2, 3 * 3]
    see_texts(svg)


def test_the_mesh_tells_its_lines_and_what_was_sent_along_them():
    sent, across = {"tensor": 40, "pipeline": 5}, dict(pipeline=2, data=1, tensor=1)
    places = [[p, d, t] for p in (0, 1) for d in (0, 1) for t in (0, 1)]
    facts = [{"at": at, "sent": sent, "across": across} for at in places]
    svg = three_groups(facts)
    assert "pipeline: 0 and 4, 1 and 5, 2 and 6, 3 and 7; over 2 nodes" in svg.desc
    assert "tensor: 0 and 1, 2 and 3, 4 and 5, 6 and 7; inside a node" in svg.desc
    assert "a rank sends 40 bytes" in svg.desc and "sends 0 bytes" in svg.desc
    see_texts(svg)


def test_a_layout_is_drawn_with_its_lines_and_all_that_fills_it():
    t = Training(175e9, 96, 12288, 1536, 2048, 1024, **H100, slow=45 * GB)
    svg = planned(t, Cut("DDP", 16, 1, 8, 8, laps=3))
    assert "tensor 8: neighbors, in one machine; data 16: every 8th rank" in svg.desc
    assert "pipeline 8: every 128th rank, over 8 machines" in svg.desc
    assert "fits" in str(svg) and "does not fit" not in str(svg)
    # Below the bar stands what the description says, not a share of what is used.
    held = memory(t, Cut("DDP", 16, 1, 8, 8, laps=3))
    told = re.findall(r"(\w+) ([\d.]+) GB", svg.desc)
    assert all(f">{kind} {size} GB<" in str(svg) for kind, size in told)
    kinds = ["weights", "gradients", "optimizer", "activations"]
    assert [kind for kind, _ in told] == kinds  # DDP gathers nothing
    whole = sum(float(size) for _, size in told)
    assert whole == pytest.approx(sum(held) / GB, abs=0.3)
    see_texts(svg)
    sharded = planned(t, Cut("sharded", 128, 128, 8))
    assert "optimizer" in sharded.desc and ", gathered " in sharded.desc
    over = planned(t, Cut("DDP", 1024))
    assert "does not fit" in str(over)
    see_texts(over)


def cut(loader):
    """Four steps of 100 ms, as the verdict cuts them."""
    kinds = "kernels", "messages", "waiting", "Python"
    rows = []
    for step in range(4):
        at = 1e5 * step
        edges = [
            at,
            at + loader,
            *(at + loader + 2000 * i for i in range(1, 4)),
            at + 1e5,
        ]
        spans = zip(edges[1:], edges[2:], strict=False)
        row = {kind: [[*span]] for kind, span in zip(kinds, spans, strict=True)}
        rows.append({"loader": [edges[:2]], **row})
    return rows


def test_the_steps_tell_their_milliseconds_over_one_scale():
    svg = step_rows({"before": [cut(80000), cut(50000)], "after": [cut(8000)] * 2})
    assert "before: rank 0 loader 80 kernels 2" in svg.desc
    assert "after: rank 0 loader 8" in svg.desc
    paths = ElementTree.fromstring(str(svg)).iter(f"{SVG}path")
    assert [p.get("d").count("M") for p in paths if p.get("fill") == "#D55E00"] == [
        2
    ] * 4


def test_the_steps_keep_their_texts_on_the_page_and_apart():
    for ranks in (1, 2, 4, 8):
        see_texts(step_rows({name: [cut(50000)] * ranks for name in ("a", "b c")}, 3))
