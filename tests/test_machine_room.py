"""Played nodes: what each runs, what happens to them, and their picture."""

import re
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError
from left import Left, comings_and_goings

from ddp_lab.kit import torchrun
from ddp_lab.kit.cell import magics
from ddp_lab.kit.draw import lives as draw
from ddp_lab.kit.played import events, plan
from ddp_lab.kit.played.room import LOOPBACK, Room
from whichrank.record.lives import lives
from whichrank.record.plan import Event
from whichrank.run.command import Command
from whichrank.run.result import Run, RunFailed


@pytest.fixture
def left(tmp_path) -> Left:
    return Left(tmp_path)


def test_a_fixed_number_of_nodes_meets_at_node_0():
    made = plan.make(Command.parse("--nnodes 2 --nproc-per-node 4 a.py x"), [], 0.0)
    start = "--nnodes 2 --nproc-per-node 4 --node-rank"
    assert [" ".join(words) for words in made.typed] == [
        f"{start} {node} --master-addr node0 a.py x" for node in (0, 1)
    ]
    assert [" ".join(words) for words in made.on_loopback] == [
        f"{start} {node} --master-addr 127.0.0.1 --master-port {{port}} a.py x"
        for node in (0, 1)
    ]
    assert made.least == 2 and made.fixed


@pytest.mark.parametrize(
    "command, least, fixed",
    [
        ("--nnodes 1:2", 1, False),
        ("--nnodes 2 --max-restarts 3", 2, False),
        ("--nnodes 2 --rdzv-id x", 2, True),
    ],
)
def test_nodes_that_may_come_and_go_meet_by_c10d(command, least, fixed):
    made = plan.make(Command.parse(f"{command} a.py"), [], 0.0)
    assert made.typed[0] == made.typed[1]
    typed, *_ = (" ".join(words) for words in made.typed)
    assert typed == f"{command} --rdzv-backend c10d --rdzv-endpoint node0 a.py"
    hosts = [words[words.index("--rdzv-conf") + 1] for words in made.on_loopback]
    assert hosts == ["is_host=1", "is_host=0"]
    assert (made.least, made.fixed) == (least, fixed)


def test_settings_of_the_rendezvous_are_kept():
    command = "--nnodes 1:2 --rdzv-conf last_call_timeout=5 a.py"
    made = plan.make(Command.parse(command), [], 0.0)
    words = made.on_loopback[1]
    assert words.count("--rdzv-conf") == 1
    assert "is_host=0,last_call_timeout=5" in words


def test_words_are_heard_in_whatever_pieces_they_come(left, monkeypatch):
    monkeypatch.setenv(LOOPBACK, "1")
    made = plan.make(Command.parse("--nnodes 2 a.py"), [], 0.0)
    plans = asdict(made) | {"python": ["python"]}
    left.write("plan.json", plans)
    room = Room(left.folder, "0" * 32)
    left.life(1, 0, 1, 1.0)
    (life,) = room._lives()
    speakers = [
        events.parse(f'rank {rank} says "step 7": kill node 0') for rank in (1, 0)
    ]
    heard = []
    for words in ("", "a step", " 6\nb st", "ep", " 7\n", "more\n"):
        with open(life / "stdout.log", "a") as file:
            file.write(words)
        heard.append([room._says(life, event) for event in speakers])
    assert heard == [[False, False]] * 4 + [[True, False]] * 2  # until the next event


def test_a_sentence_says_when_and_what():
    event = events.parse('rank 3 says "step: 7": kill node 1')
    assert (event.speaker, event.says) == (3, "step: 7")
    assert event.event == Event("kill", 1)
    event = events.parse("2.5 seconds later: cut node 0")
    assert (event.seconds, event.event) == (2.5, Event("cut", 0))


@pytest.mark.parametrize(
    "sentence, right",
    [
        ("kill node 1", "`WHEN: WHAT`"),
        ("soon: kill node 1", "`3 seconds later`"),
        ("3 seconds later: destroy node 1", "`kill node 1`"),
        ("3 seconds later: cut node 2", "the last one is 1"),
    ],
)
def test_a_wrong_sentence_is_told_with_what_would_be_right(sentence, right):
    with pytest.raises(ValueError, match=re.escape(right)):
        events.parse_all([sentence], nodes=2)


def test_a_node_that_is_started_first_is_not_there_before():
    found = events.parse_all(
        ["1 seconds later: start node 1", "1 seconds later: kill node 0"]
        + ["1 seconds later: start node 0"],
        nodes=2,
    )
    assert events.absent(found) == {1}


@pytest.mark.parametrize(
    "words, bits",
    [("100mbit", 100e6), ("1gbit", 1e9), ("500kbit", 5e5), ("1.5Gbit/s", 1.5e9)],
)
def test_a_rate_is_written_as_tc_does(words, bits):
    assert events.rate(words) == bits


NO_RATES = ["fast", "0mbit", "100", "100mb", "", "1bit", "99999999gbit"]


@pytest.mark.parametrize("words", NO_RATES)
def test_a_wrong_rate_is_refused(words):
    with pytest.raises(ValueError, match="a rate is written"):
        events.rate(words)


@pytest.mark.parametrize(
    "words, said",
    [
        (f"--nnodes 81 {__file__}", "one machine plays up to 80 nodes, not 81"),
        ("--nnodes 2 --no-python a.sh", "the ranks are Python programs"),
    ],
    ids=["too many", "no program"],
)
def test_nodes_that_cannot_be_played_are_refused_in_a_sentence(words, said):
    with pytest.raises(RunFailed, match=said):
        torchrun(words)


@pytest.fixture
def launched(monkeypatch) -> list:
    """Let a cell have a list `happens`, and note what it launches."""
    shell = SimpleNamespace(user_ns={"happens": ["1 seconds later: kill node 1"]})
    monkeypatch.setattr(magics, "get_ipython", lambda: shell)
    seen: list = []

    def launch(command, watch, **options):
        seen.append((command, options))
        return Run("torchrun", [], [], [], [], 0.0, None)

    monkeypatch.setattr(magics.launch, "torchrun", launch)
    return seen


def test_a_cell_says_what_happens_to_the_nodes(launched):
    magics.torchrun("--rate 1gbit --events happens --nnodes 2 a.py")
    assert launched == [
        (
            ["--nnodes", "2", "a.py"],
            {
                "rate": "1gbit",
                "events": ["1 seconds later: kill node 1"],
            },
        )
    ]


@pytest.mark.parametrize(
    "cell, told",
    [
        (lambda: magics.torchrun("--events nothing --nnodes 2 a.py"), "'nothing' is"),
        (lambda: magics.torchrun("--rate"), "--rate takes a value"),
        (lambda: magics.torchrun("--rate 1gbit"), "which program"),
    ],
)
def test_a_cell_that_is_not_understood_says_what_would_be_right(launched, cell, told):
    with pytest.raises(UsageError, match=told):
        cell()
    assert launched == []


def test_the_picture_shows_each_life_and_each_event(left):
    comings_and_goings(left)
    run = SimpleNamespace(
        lives=lives(left.folder, 1.0), events=[Event("kill", 1, 3.9)], seconds=20.0
    )
    svg = draw(run)
    assert str(svg).count(">rank 0<") + str(svg).count(">0<") >= 4
    assert "kill node 1" in str(svg) and "local 0" in str(svg)
    assert "node 1, local 0: rank 1 of 2 from 0.1 s to 4.0 s, SIGKILL" in svg.desc
    assert "after 3.9 s: kill node 1" in svg.desc
    assert "<img alt=" in svg._repr_html_()


def test_a_life_without_an_end_lasts_as_long_as_the_run(left):
    left.life(0, 0, 0, 1.0)
    run = SimpleNamespace(lives=lives(left.folder, 1.0), events=[], seconds=7.0)
    assert draw(run).desc == "node 0, local 0: rank 0 of 2 from 0.0 s."
