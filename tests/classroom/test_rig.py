"""What goes into a rank and comes out of it may have any name."""

import os
import subprocess
import sys

import numpy as np
import pytest

from classroom.engine.rig import IMPORTED, pack, unpack

pytestmark = pytest.mark.sandbox

ECHO = f"import sys; sys.path.insert(0, {str(IMPORTED[0].parent)!r})\n"
ECHO += "from ranks import give, inputs\ngive(**inputs())\n"


def test_names_that_numpy_has_for_itself_are_free(tmp_path):
    values = {"file": np.arange(3), "allow_pickle": [1, "2"], "args": None, "self": {}}
    (tmp_path / "inputs_0.npz").write_bytes(pack(values))
    (tmp_path / "out").mkdir()
    subprocess.run(
        [sys.executable, "-c", ECHO, str(tmp_path)],
        env={**os.environ, "RANK": "0"},
        check=True,
        timeout=60,
    )
    found = unpack((tmp_path / "out" / "rank_0.npz").read_bytes())
    assert found.keys() == values.keys()
    assert found.pop("file").tolist() == values.pop("file").tolist()
    assert found == values
