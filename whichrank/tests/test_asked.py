"""A rank is asked for its calls while it runs, and tells them itself when it ends."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from whichrank.record import names
from whichrank.run import probe
from whichrank.run.inside import recorder


def test_who_asks_leaves_what_a_rank_told_at_its_end(tmp_path):
    """It has not said yet that it has ended, and answers nobody any more."""
    told = tmp_path / "none_x" / "attempt_0" / "0"
    told.mkdir(parents=True)
    (told / names.PID).write_text(str(os.getpid()))
    (told / names.FLIGHT).write_text('{"groups": {}, "calls": []}')
    since = time.monotonic()
    assert [*probe._ask_all(tmp_path, None)] == [told]
    assert time.monotonic() - since < probe.CALLS_WAIT
    assert (told / names.FLIGHT).exists()


def test_a_rank_may_end_while_it_answers(monkeypatch):
    """Both read the recorder at once, and neither imports what takes seconds."""
    import torch

    monkeypatch.delattr(torch, "_inductor", raising=False)
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    until = time.monotonic() + 0.5

    def read():
        while time.monotonic() < until:
            recorder.flight()

    with ThreadPoolExecutor() as pool:
        for reader in [pool.submit(read) for _ in range(2)]:
            reader.result()
    assert "torch._inductor" not in sys.modules
