"""Who holds, right now, what a run could not get: a port, or the memory of a GPU."""

import re
import socket
import subprocess

import psutil

NVIDIA_SMI_WAIT = 10.0  # seconds that nvidia-smi has to answer
QUERY = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]


def holder(symptom: str, message: str) -> str:
    """Return who holds the thing that `message` misses; "" if that cannot be told.

    Args:
        symptom: its name in the table of symptoms.
        message: the error's text.
    """
    if symptom == "port taken":
        found = re.search(r"port: (\d+)|:(\d+)\b", message)
        return _listener(int(found[1] or found[2])) if found else ""
    return _gpu_users() if symptom in ("CUDA memory", "busy GPU") else ""


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


def _gpu_users() -> str:
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=NVIDIA_SMI_WAIT
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    rows = [row.split(",") for row in done.stdout.splitlines() if row.count(",") == 1]
    users = [f"{_process(int(pid))} has {memory.strip()}" for pid, memory in rows]
    return "on the GPUs now: " + ", ".join(users) if users else ""


def _process(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        words = []  # in another container, or gone
    return f"process {pid}" + (f" ({' '.join(words)[:60]})" if words else "")
