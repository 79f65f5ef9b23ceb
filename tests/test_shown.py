"""What a rank printed, and what of it reaches the page."""

import json
import time
import tracemalloc
from dataclasses import replace

import pytest

from ddp_lab.kit.cell.display import bundle
from whichrank.record import stacks, stderr
from whichrank.record.files import clean, read, read_json
from whichrank.record.logs import TorchrunLog
from whichrank.record.rank_end import LastWord, Uncaught
from whichrank.record.rank_files import RankFiles
from whichrank.record.rank_log import RankLog
from whichrank.run.result import Run
from whichrank.terminal.follow import Output

# --- characters ---

OBEYED = {
    "colors": "\x1b[31m",
    "colors with colons": "\x1b[38:5:196m",
    "private modes": "\x1b[?1049h",
    "soft reset": "\x1b[!p",
    "title": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://a.b\x1b\\",
    "device control": "\x1bPq#0\x1b\\",
    "reset": "\x1bc",
    "character set": "\x1b(0",
    "C1 colors": "\x9b31m",
    "C1 title": "\x9d0;title\x9c",
    "C1": "".join(map(chr, range(0x80, 0xA0))),
    "C0": "".join(chr(c) for c in range(32) if c not in (9, 10, 13)),
    "delete": "\x7f",
    "overrides": "\u202a\u202b\u202c\u202d\u202e",
    "isolates": "\u2066\u2067\u2068\u2069",
    "no width": "\u200b\u2060\ufeff",
    "annotations": "\ufff9\ufffa\ufffb",
}
READABLE = (
    "naïve, Grüße, e\u0301 (a combining mark)",
    "👩\u200d💻 👨\u200d👩\u200d👧 🏳️\u200d🌈 🇩🇪 ❤️",
    "العربية \u200fمع علامات\u200f، עברית",
    "می\u200cخواهم",
    "日本語\u3000全角, 한국어, ελληνικά, हिन्दी",
    "a\ttab, 10 % ± 1, ½, “quotes”, no\u00a0break",
)


@pytest.mark.parametrize("kind", OBEYED)
def test_what_a_page_would_obey_is_taken_out(kind, tmp_path):
    (tmp_path / "out").write_text(f"be{OBEYED[kind]}fore", encoding="utf-8")
    shown = read(tmp_path / "out").replace(" ", "")
    assert shown == "before"


@pytest.mark.parametrize("text", READABLE)
def test_what_people_write_stays(text, tmp_path):
    (tmp_path / "out").write_text(text, encoding="utf-8")
    assert read(tmp_path / "out") == text


def test_what_ends_a_line_elsewhere_does_not_here(tmp_path):
    (tmp_path / "out").write_text("a\x85b\u2028c\u2029d\n", encoding="utf-8")
    assert read(tmp_path / "out") == "a b c d\n"
    assert len(clean("\x0b\x0c\x1c\x1d\x1ea\x85\u2028b").splitlines()) == 1


def test_a_sequence_without_an_end_hides_nothing():
    assert clean("a\x1b]0;no end\nb") == "a0;no end\nb"
    assert clean("a\x1b[") == "a"


def test_what_a_rank_left_as_json_is_cleaned_too(tmp_path):
    found = {"error": "a\x1b[31m\u202eb\ud800", "frames": [["\u2066f", 3, "g"]]}
    (tmp_path / "raised.json").write_text(json.dumps(found))
    assert read_json(tmp_path / "raised.json") == {
        "error": "ab\ufffd",
        "frames": [["f", 3, "g"]],
    }


def test_a_source_line_is_cleaned_too(tmp_path):
    (tmp_path / "a.py").write_text("if admin:  # \u202e\nx = '\u2066y'\n")
    assert stacks.Frame(str(tmp_path / "a.py"), 2, "").code == "x = 'y'"


# --- while a run goes on ---


def test_a_state_is_dated(tmp_path, capsys):
    nowhere = tmp_path / "not there yet"
    run = Run("a.py", [], [], [], [], 8.2, None, log_folder=nowhere, state="queued")
    assert bundle(run, live=True)["text/plain"] == "running for 8 s: queued"
    begun = replace(run, state="")
    assert bundle(begun, live=True)["text/plain"] == "running for 8 s"
    output = Output(by_rank=True)
    for each in (run, run, begun):
        output.update(each)
    assert capsys.readouterr().err == "note: queued\n"


# --- facts ---


def test_a_line_of_50_megabytes_is_read_by_its_ends(tmp_path):
    rank = tmp_path / "run" / "attempt_0" / "0"
    rank.mkdir(parents=True)
    (rank / "stdout.log").write_text('{"a": "' + "x" * 50_000_000 + '"}\nlast\n')
    tracemalloc.start()
    begun = time.monotonic()
    (log,) = TorchrunLog.read(tmp_path).ranks
    assert time.monotonic() - begun < 5
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert log.lines[-1] == "last" and log.facts == {}


# --- tracebacks on stderr ---

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 3, in f
    g()
    ^^^
ValueError: {}
"""
DUMP = """Fatal Python error: Aborted

Current thread 0x1 (most recent call first):
  File "a.py", line 7 in work

Extension modules: numpy (total: 1)
"""
BETWEEN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def kinds(text: str) -> list[str]:
    """Return what each part of stderr is: a line, a traceback, a dump."""
    names = {(False, False): "lines", (True, False): "traceback", (True, True): "dump"}
    return [names[part.is_traceback, part.is_dump] for part in stderr.split(text)]


@pytest.mark.parametrize(
    "text, found",
    [
        ("", []),
        ("a line\n", ["lines"]),
        (TRACEBACK.format("x") + "after\n", ["traceback", "lines"]),
        ("before\n" + TRACEBACK.format("x") + "after", ["lines", "traceback", "lines"]),
        (TRACEBACK.format(1) + BETWEEN + TRACEBACK.format(2), ["traceback"]),
        (TRACEBACK.format(1) + TRACEBACK.format(2), ["traceback"] * 2),
        (DUMP + "after", ["dump", "lines"]),
        ("it said 'Traceback (most recent call last):' once", ["lines"]),
        ("[rank1]: " + TRACEBACK.format("x").strip(), ["traceback"]),
    ],
)
def test_stderr_is_taken_apart(text, found):
    assert kinds(text) == found
    assert (
        "\n".join(part.text for part in stderr.split(text)).split()
        == (
            text.replace("[rank1]: ", "").replace(
                "Extension modules: numpy (total: 1)", ""
            )
        ).split()
    )


def test_a_dump_that_a_program_has_asked_for_is_one():
    thread = "Thread 0x1 (most recent call first):"
    said = f'Timeout (0:00:15)!\n{thread}\n  File "a.py", line 3'
    (part,) = stderr.split(said)
    assert part.is_dump


def test_a_dead_thread_is_not_the_end_of_its_rank():
    dead = "Exception in thread Thread-1 (f):\n" + TRACEBACK.format("in a thread")
    log = RankLog.of_output(RankFiles(stderr=dead), code=1)
    assert log.traceback == "" and "ValueError: in a thread" in log.warnings


def test_a_known_end_is_taken_out_however_it_was_printed():
    said = "before\n[rank0]: " + "\n[rank0]: ".join(TRACEBACK.format("x").split("\n"))
    assert stderr.without(said, TRACEBACK.format("x")).split() == ["before"]
    other = TRACEBACK.format("x").replace("    ^^^\n", "")
    assert stderr.without("before\n" + other, TRACEBACK.format("x")).split() == [
        "before"
    ]
    assert stderr.without("before", TRACEBACK.format("x")) == "before"


def test_a_program_that_took_the_ranks_place_ended_with_its_last_words():
    files = RankFiles(stderr="a line\n" + TRACEBACK.format("x"))
    log = RankLog.of_output(files, code=1)
    assert log.traceback == TRACEBACK.format("x") and log.warnings == ["a line"]
    by_exit = replace(files, end=LastWord(1))  # it ended as Python does, by sys.exit
    log = RankLog.of_output(by_exit, code=1)
    assert log.traceback == "" and log.other_traceback[0]


def test_ten_thousand_exceptions_that_led_to_one_another_are_one():
    text = BETWEEN.join([TRACEBACK.format("x")] * 10_000)
    assert kinds(text) == ["traceback"]


def test_a_long_traceback_that_was_not_the_end_is_cut():
    end = TRACEBACK.format("its end")
    words = TRACEBACK.format("x" * 100_000) + end
    log = RankLog.of_output(RankFiles(stderr=words, raised=Uncaught("E", end)))
    assert sum(map(len, log.warnings)) < 2 * stderr.LONGEST
    assert "its end" not in str(log.warnings) and "its end" in log.traceback
