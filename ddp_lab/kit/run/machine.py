"""Who holds, right now, the port that a run could not get."""

import re
import socket

import psutil


def holder(message: str) -> str:
    """Return who holds the port that an error names; "" if that cannot be told."""
    found = re.search(r"port: (\d+)|:(\d+)\b", message)
    return _listener(int(found[1] or found[2])) if found else ""


def holder_of(place: str) -> str:
    """Return who listens at a place, `localhost:29500`; "" if it is not here."""
    host, _, port = place.rpartition(":")
    try:
        with socket.socket() as trial:
            trial.bind((host, 0))  # which only an address of this machine allows
    except OSError:
        return ""
    return _listener(int(port))


def _listener(port: int) -> str:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ""  # macOS lets only root look
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN and connection.pid
        if listens and connection.laddr.port == port:
            return f"port {port} belongs to {_process(connection.pid)}"
    return ""


def _process(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        words = []  # in another container, or gone
    return f"process {pid}" + (f" ({' '.join(words)[:60]})" if words else "")
