"""What goes into a rank and comes out of it: any name, and nothing that blows up."""

import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from classroom.engine import rig, runner
from classroom.engine.assignment import load
from classroom.engine.recorder import Recorder
from classroom.engine.rig import Rig
from classroom.engine.values import LONGEST_JSON, pack, unpack

pytestmark = pytest.mark.sandbox

ENGINE = Path(rig.__file__).parent

ECHO = f"import sys; sys.path.insert(0, {str(ENGINE)!r})\n"
ECHO += "from ranks import give, inputs\ngive(**inputs())\n"


def test_what_an_answer_cannot_hold_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LARGEST_ANSWER", 100)
    for rank in range(2):
        (tmp_path / f"rank_{rank}").write_bytes(bytes(60))
    answer = {"failure": None}
    assert [*runner.collect(tmp_path, answer)] == ["rank_0"]
    assert answer["failure"] == "rank_1: the files of a run are more than 100 bytes"


def test_any_name_and_any_kind_arrives(tmp_path):
    values = {"file": np.arange(3), "allow_pickle": [1, "2"], "args": None, "self": {}}
    values |= {"none": np.zeros((0, 3), "float16"), "one": np.array(True)}
    values["turned"] = np.arange(6.0).reshape(2, 3).T
    (tmp_path / "inputs_0").write_bytes(pack(values))
    (tmp_path / "out").mkdir()
    with Recorder(1) as recorder:
        (tmp_path / "recorder").symlink_to(recorder.path)
        subprocess.run(
            [sys.executable, "-c", ECHO, str(tmp_path)],
            env={**os.environ, "RANK": "0"},
            check=True,
            timeout=60,
        )
    found = unpack((tmp_path / "out" / "rank_0").read_bytes())
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_equal(found[name], value)
        if isinstance(value, np.ndarray):
            assert found[name].dtype == value.dtype, name


def head(*entries: object) -> bytes:
    return json.dumps(entries).encode() + b"\n"


BOMBS = {
    "nothing": b"",
    "an archive": b"PK\x03\x04" + bytes(100),
    "a pickle": pickle.dumps({"result": [1, 2, 3]}),
    "no list": b'{"result": 1}\n',
    "too deep": b"[" * 1_000_000 + b"\n",
    "too long a line": b"[" + b" " * LONGEST_JSON + b"]\n",
    "too many values": head(*([f"{i}", None, 0] for i in range(1001))),
    "too large a number": b'[["x", null, ' + b"9" * 10_000 + b"]]\n",
    "a name twice": head(["x", "int8", [1]], ["x", "int8", [1]]) + b"ab",
    "a long name": head(["x" * 101, None, 0]),
    "the same bytes for many": head(*([f"{i}", "int8", [10**7]] for i in range(60)))
    + bytes(10**7),
    "an array that is not there": head(["x", "float64", [10**9]]),
    "a negative shape": head(["x", "int8", [-1, -1]]) + b"a",
    "a shape that overflows": head(["x", "int8", [2**33, 2**33]]),
    "a shape of many dimensions": head(["x", "int8", [1] * 65]) + b"a",
    "a shape of words": head(["x", "int8", "1"]) + b"a",
    "objects": head(["x", "O", [1]]) + bytes(8),
    "records": head(["x", [["a", "O"]], [1]]) + bytes(8),
    "more than it says": head(["x", "int8", [1]]) + b"ab",
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_makes_no_sense_is_refused_before_it_takes_memory(name):
    data = BOMBS[name]
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^.{1,200}$"):
        unpack(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 * LONGEST_JSON


def test_a_full_line_of_json_stays_in_bounds():
    data = b'[["x", null, [' + b"[]," * (LONGEST_JSON // 3 - 10) + b"0]]]\n"
    tracemalloc.start()
    unpack(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40 * LONGEST_JSON


def test_an_array_is_a_view():
    data = pack({"x": np.zeros(10**7, dtype="int8")})
    tracemalloc.start()
    assert unpack(data)["x"].nbytes == 10**7
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_draws_are_reproducible_and_a_secret_makes_them_others():
    rig = Rig(load("ring"), {})
    numbers = [rig.draw(5).integers(10**9) for _ in range(2)]
    rig.secret = "3f9c"
    numbers += [rig.draw(5).integers(10**9) for _ in range(2)]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
