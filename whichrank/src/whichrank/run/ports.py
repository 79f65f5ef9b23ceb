"""A port that is free."""

import os
import socket

PORTS = range(20_000, 32_000)  # below those that the system gives to programs
GIVEN: set[int] = set()  # by free_port: its caller may not listen there yet


def free_port() -> int:
    """Return a port that is free, and that the system gives to no program by itself.

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
