"""Ports: one that is free, and who listens at one."""

import os
import socket
from pathlib import Path

PORTS = range(20_000, 32_000)  # below those that the system gives to anybody
GIVEN: set[int] = set()  # by free_port: who has asked may not listen there yet
LISTEN = "0A"  # a socket's state in /proc/net/tcp


def free_port() -> int:
    """Return a port at which nobody listens, and which the system gives to nobody.

    In one process no two calls return the same.
    """
    for _ in PORTS:
        port = PORTS[int.from_bytes(os.urandom(4), "big") % len(PORTS)]
        if port in GIVEN:
            continue
        with socket.socket() as trial:
            try:
                trial.bind(("", port))
            except OSError:
                continue
        GIVEN.add(port)
        return port
    raise OSError("no port is free")


def listens(pid: int, port: int) -> bool:
    """Tell whether a process listens at `port` in the network of the process `pid`."""
    for name in ("tcp", "tcp6"):
        try:
            rows = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        sockets = [row.split()[1:4] for row in rows]
        if any(at.endswith(f":{port:04X}") and how == LISTEN for at, _, how in sockets):
            return True
    return False
