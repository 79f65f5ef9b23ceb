"""Which lines of a rank are facts: JSON objects that can be used."""

import json
import sys

import pytest

from whichrank.record.rank_files import RankFiles
from whichrank.record.rank_log import RankLog


def nested(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


NO_FACTS = {
    "deep": nested(100_000),
    "lists": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "an integer of 10,000 digits": f'{{"a": {"9" * 10_000}}}',
    "half a character": '{"a": "\\ud800"}',
    "half a character in a name": '{"\\udfff": 1}',
    "no JSON": "{'a': 1}",
}
FACTS = {
    "levels": nested(100),
    "infinite": '{"a": 1e999}',
    "not a number": '{"a": NaN}',
    "twice": '{"a": 1, "a": 2}',
    "wide": json.dumps({"a": [[i] for i in range(20_000)]}),
    "a whole character": '{"a": "\\ud83d\\ude00"}',
}


@pytest.mark.parametrize("kind", NO_FACTS)
def test_what_can_be_no_fact_is_a_line(kind):
    if kind.startswith("an integer") and not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this Python reads integers of any length")
    log = RankLog.of_output(RankFiles(stdout=NO_FACTS[kind]))
    assert (log.facts, log.lines) == ({}, [NO_FACTS[kind]])


@pytest.mark.parametrize("kind", FACTS)
def test_what_is_odd_but_can_be_used_is_a_fact(kind):
    log = RankLog.of_output(RankFiles(stdout=FACTS[kind]))
    assert list(log.facts) == ["a"] and log.lines == []
    repr(log.facts), json.dumps(log.facts)
