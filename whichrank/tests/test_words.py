"""The words that several explanations share."""

import signal

import pytest

from whichrank.record.words import conjugate, ended_by, listed, signal_name


@pytest.mark.parametrize(
    "names, text",
    [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b, c and d")],
)
def test_a_list(names, text):
    assert listed(names) == text


def test_a_list_takes_what_can_be_read_once():
    assert listed(str(number) for number in range(3)) == "0, 1 and 2"


@pytest.mark.parametrize(
    "verb, singular",
    [("wait", "waits"), ("stand", "stands"), ("are", "is"), ("have", "has")],
)
def test_a_verb_for_one_and_for_several(verb, singular):
    assert conjugate(verb, [3]) == singular
    assert conjugate(verb, [0, 3]) == verb


def test_a_signal():
    assert signal_name(9) == "SIGKILL"
    assert signal_name(signal.SIGRTMIN) == "SIGRTMIN"
    assert [signal_name(number) for number in (0, -9, 42, 200)] == [""] * 4


def test_an_end_by_a_signal():
    assert ended_by(-9) == "was ended by SIGKILL"
    assert ended_by(-42) == "was ended by signal 42"  # of real time: it has no name
