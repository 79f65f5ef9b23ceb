"""What a rank says is heard once and for all, and bounded."""

import json
import socket
import time

import pytest

from classroom.engine.recorder import (
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LINES,
    MOST_WEIGHED,
    Recorder,
)

pytestmark = pytest.mark.sandbox

END = {"what": "end"}


def connected(recorder: Recorder, rank: object) -> socket.socket:
    """Return a connection that has said which rank it is."""
    speaker = socket.socket(socket.AF_UNIX)
    speaker.settimeout(20)
    speaker.connect(str(recorder.path))
    say(speaker, {"rank": rank})
    return speaker


def say(speaker: socket.socket, *lines: object) -> None:
    speaker.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def test_lines_have_their_order():
    with Recorder(2) as recorder:
        with connected(recorder, 1) as one, connected(recorder, 0) as zero:
            assert zero.recv(1) == one.recv(1) == b"\n"  # both are here
            say(one, {"what": "a"}, {"what": "b"})
            say(zero, {"what": "c"})
    assert recorder.events == [[{"what": "c"}], [{"what": "a"}, {"what": "b"}]]
    assert not recorder.unheard and not recorder.folder.exists()


def test_nobody_else_is_heard_when_all_are_here():
    with Recorder(1) as recorder, connected(recorder, 0) as rank:
        assert rank.recv(1) == b"\n"
        with pytest.raises(OSError), connected(recorder, 0) as other:
            say(other, {"what": "forged"})
            if not other.recv(1):
                raise ConnectionError("closed")
    assert recorder.events[0] == []


@pytest.mark.parametrize("rank", [1, -1, None, False, "0", [0]])
def test_who_is_no_rank_is_not_heard(rank):
    with Recorder(1) as recorder, connected(recorder, rank) as other:
        assert other.recv(1) == b""
    assert recorder.events == [[]]


def test_a_rank_that_is_here_cannot_come_again():
    with Recorder(2) as recorder, connected(recorder, 0) as rank:
        say(rank, {"what": "true"})
        while not recorder.events[0]:
            time.sleep(0.01)
        with connected(recorder, 0) as other:
            assert other.recv(1) == b""
    assert recorder.events[0] == [{"what": "true"}]


BAD = {
    "no JSON": b"hello\n",
    "no object": b"[1]\n",
    "too deep": b"[" * (LONGEST_LINE - 2) + b"\n",
    "too long": b'{"what": "' + b"x" * LONGEST_LINE + b'"}\n',
    "half a line": b'{"what": "end"}',
    "too many": b"{}\n" * (MOST_LINES + 1),
    "weighed too often": b'{"what": "weigh"}\n' * (MOST_WEIGHED + 1),
    "too much": (b'{"a": [' + b"[]," * 600 + b"0]}\n") * (MOST_BYTES // 1800),
}


@pytest.mark.parametrize("name", BAD)
def test_a_rank_that_makes_no_sense_is_heard_no_more(name):
    with Recorder(1) as recorder, connected(recorder, 0) as rank:
        rank.recv(1)
        say(rank, {"what": "first"})
        try:
            rank.sendall(BAD[name])
            rank.shutdown(socket.SHUT_WR)
            while rank.recv(1):
                pass
        except OSError:
            pass  # it has been closed before we were through
    assert recorder.events[0][0] == {"what": "first"}
    assert len(recorder.events[0]) <= MOST_LINES
    kept = json.dumps(recorder.events[0], separators=(",", ":"))
    assert len(kept) < 1.1 * MOST_BYTES
    assert recorder.unheard.keys() == {0}


def test_who_asks_is_answered_in_turn_and_heard():
    def reply(rank: int, asked: dict) -> list:
        return [rank, asked["number"]]

    with Recorder(1, reply) as recorder, connected(recorder, 0) as rank:
        lines = rank.makefile("rb")
        assert lines.readline() == b"\n"
        say(rank, {"what": "ask", "number": 7}, {"what": "ask", "number": 8})
        assert [json.loads(lines.readline()) for _ in range(2)] == [[0, 7], [0, 8]]
    assert [asked["number"] for asked in recorder.events[0]] == [7, 8]


def test_a_rank_cannot_say_what_it_weighs():
    with Recorder(1) as recorder, connected(recorder, 0) as rank:
        assert rank.recv(1) == b"\n"
        say(rank, {"what": "x", "memory": 0})
    assert recorder.events[0] == [{"what": "x"}]


def test_a_question_without_sense_ends_the_hearing():
    with Recorder(1, lambda rank, asked: asked["number"]) as recorder:
        with connected(recorder, 0) as rank:
            lines = rank.makefile("rb")
            assert lines.readline() == b"\n"
            say(rank, {"what": "ask"}, {"what": "later"})
            assert lines.readline() == b""
    assert recorder.events[0] == [{"what": "ask"}] and 0 in recorder.unheard
