"""A client of the warm process may die at any time, and nobody else notices."""

import socket
import sys

import pytest

from ddp_lab.kit.run import job
from ddp_lab.kit.run.warm import Warm


@pytest.mark.skipif(sys.platform != "linux", reason="there is no warm process")
def test_a_client_that_dies_takes_nobody_with_it(tmp_path, monkeypatch):
    monkeypatch.delenv("DDP_LAB_COLD", raising=False)
    (tmp_path / "nothing.py").write_text("")
    words = b"\0".join([bytes(tmp_path), b"1", b"nothing.py"])
    warm = Warm()

    def ask(sent: bytes | None) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(warm.folder / "socket"))
        if sent is not None:
            socket.send_fds(client, [len(words).to_bytes(8, "big")], [0, 1, 2])
            client.sendall(sent)
        return client

    try:
        assert warm.python(job.environment()), warm.trouble
        for sent in (None, b"", words[:3], words):
            ask(sent).close()
            with ask(words) as next_one:
                next_one.settimeout(20)
                assert int(next_one.makefile().readline()) > 0
    finally:
        warm.stop()
