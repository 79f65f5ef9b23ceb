"""Figures that a lesson draws from its run: each says what the run said."""

import xml.etree.ElementTree as ElementTree
from itertools import combinations

from test_figures import SVG, text_boxes

from figs.runs import drift, lost_time, progress, stretches

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
        svg = drift([PATHS[rank % 2] for rank in range(ranks)], 2, 3.25)
        boxes = text_boxes(svg)
        for text, left, top, right, bottom in boxes:
            assert left >= 4 and top >= 4, text
            assert right <= svg.width - 4 and bottom <= svg.height - 4, text
        for (a, *one), (b, *two) in combinations(boxes, 2):
            beside = one[2] <= two[0] or two[2] <= one[0]
            assert beside or one[3] <= two[1] or two[3] <= one[1], f"{a} lies on {b}"


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
        boxes = text_boxes(svg)
        for text, left, top, right, bottom in boxes:
            assert left >= 4 and top >= 4, text
            assert right <= svg.width - 4 and bottom <= svg.height - 4, text
        for (a, *one), (b, *two) in combinations(boxes, 2):
            beside = one[2] <= two[0] or two[2] <= one[0]
            assert beside or one[3] <= two[1] or two[3] <= one[1], f"{a} lies on {b}"
