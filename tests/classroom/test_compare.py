"""What a verdict quotes shows the difference that it speaks of."""

import numpy as np
import pytest

from classroom.engine.verdict import compare

pytestmark = pytest.mark.sandbox
NEXT = np.nextafter


def told(expected, got) -> str:
    """Return what is said of two arrays, without the rank."""
    return compare(0, expected, np.asarray(got)).removeprefix("rank 0 expected ")


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ([0.1], [0.2], "[0.1], got [0.2]"),
        ([0.1], [0.1000002], "[0.1], got [0.1000002]"),
        ([0.1], [NEXT(0.1, 1)], "[0.10000000000000001], got [0.10000000000000002]"),
        (1e9 + 1, 1e9, "1000000001, got 1000000000"),
        (3, 3.0000001, "3, got 3.0000001"),
        ([7], [8], "[7], got [8]"),
    ],
)
def test_as_many_digits_as_the_difference_needs(expected, got, said):
    assert told(expected, got).partition(" (")[0] == said


def test_a_difference_beyond_what_is_quoted_has_its_digits_as_well():
    expected = np.ones(9, dtype=np.float32)
    got = expected.copy()
    got[7] = NEXT(np.float32(1), np.float32(2))
    end = "(1 of 9 numbers differ, first at 7: 1 expected, 1.0000001 got)"
    assert told(expected, got).endswith(end)


ONES = np.ones(4)


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (ONES, np.ones((2, 2)), "shape (4,), got (2, 2)"),
        (ONES, ONES.astype("float32"), "float64, got float32"),
        ([1, 1], ONES[:2].astype("float32"), None),  # what is no array asks for no type
        (
            ONES * np.nan,
            ONES * np.nan,
            "[nan, nan, nan, nan], got [nan, nan, nan, nan]",
        ),
        (ONES, [1.0, 2, 3, 1], "2 of 4 numbers differ, first at 1"),
        (ONES, [1, 1, 1, 1.09], None),
        (ONES, [1, 1, 1, 1.11], "1 of 4 numbers differ, first at 3"),
        (ONES * 0, [0, 0, 0, 0.09], "1 of 4 numbers differ"),  # relative to expected
    ],
)
def test_what_counts_as_a_difference(expected, got, said):
    words = compare(0, expected, np.asarray(got, getattr(got, "dtype", None)), rtol=0.1)
    assert words is None if said is None else said in words


def test_what_is_no_array_is_quoted_as_it_is():
    assert compare(2, [0.1], None) == "rank 2 expected [0.1], got None"
