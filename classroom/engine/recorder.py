"""Hear from the ranks what they do while they do it.

Every rank connects to a socket before any program of a student is imported (ranks.py),
and says a line of JSON for each thing that happens. The lines are kept here, outside of
the processes that are judged. A program may add to what its rank says; it can take
nothing back, change no order, and say nothing for another rank. What a rank
asks is answered from here, so that a part of its work can be the judge's.
"""

import json
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

LONGEST_LINE = 2000  # bytes
MOST_LINES, MOST_BYTES = 50_000, 5_000_000  # of a rank; as JSON they take more memory
MOST_WEIGHED = 10  # times that a rank asks for its memory, which takes a while
CREDENTIALS = 12  # bytes: three numbers, the first is the process
KEPT = "RssAnon:", "RssShmem:", "VmSwap:"  # lines in kB of /proc/PID/status
HEARD_WITHIN = 5.0  # seconds, once the run is over

Reply = Callable[[int, dict], object]
"""Given a rank and its question, the answer, JSON-like; it may take its time."""


class Recorder:
    """Listens to the ranks of one run (`with`).

    Args:
        ranks: how many will connect; after so many connections there is no other.
        reply: what answers an event {"what": "ask", ...}; one rank's come in turn.
    """

    def __init__(self, ranks: int, reply: Reply | None = None):
        self.reply = reply
        self.events: list[list[dict]] = [[] for _ in range(ranks)]
        """By rank what it has said, in order."""
        self.unheard: dict[int, str] = {}
        """By rank why nobody listens to it any more."""
        self.folder = Path(tempfile.mkdtemp(prefix="classroom-"))
        self.path = self.folder / "recorder"
        """The socket to which the ranks connect."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(ranks)
        self._here: dict[int, socket.socket] = {}  # by rank, who has said hello
        self._lock = threading.Lock()
        self._threads: list[tuple[threading.Thread, socket.socket]] = []

    def __enter__(self) -> "Recorder":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread, connection in self._threads:
            with suppress(OSError):  # what has been said by now is still heard
                connection.shutdown(socket.SHUT_RD)
            thread.join(HEARD_WITHIN)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):  # the run is over
            for _ in self.events:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._hear, args=[connection])
                self._threads.append((thread, connection))
                thread.start()
        self._listener.close()

    def _hear(self, connection: socket.socket) -> None:
        """Keep what one rank says, until it ends or makes no sense."""
        rank, size, weighed = None, 0, 0
        with connection, connection.makefile("rb") as lines:
            try:
                rank = self._greet(_read(lines.readline(LONGEST_LINE)), connection)
                while line := lines.readline(LONGEST_LINE):
                    size += len(line)
                    if len(self.events[rank]) == MOST_LINES or size > MOST_BYTES:
                        raise ValueError(f"more than {MOST_LINES:,} calls and events")
                    event = _read(line)
                    event.pop("memory", None)  # is for the judge to say
                    if event.get("what") == "weigh":
                        if (weighed := weighed + 1) > MOST_WEIGHED:
                            raise ValueError(f"weighs more than {MOST_WEIGHED} times")
                        event["memory"] = _memory(connection)
                        connection.send(b"\n")  # it has held still for that
                    self.events[rank].append(event)
                    if self.reply and event.get("what") == "ask":
                        answer = json.dumps(self.reply(rank, event)).encode()
                        connection.sendall(answer + b"\n")
            except OSError:
                pass  # the rank has ended
            except Exception as error:  # what it says or asks may be anything
                if rank is not None:
                    self.unheard[rank] = str(error)[:200]

    def _greet(self, said: dict, connection: socket.socket) -> int:
        """Return which rank this is; when all are here, tell them to go on."""
        rank = said.get("rank")
        with self._lock:
            if type(rank) is not int or not 0 <= rank < len(self.events):
                raise ValueError("no rank")
            if rank in self._here:
                raise ValueError("a rank that is here already")
            self._here[rank] = connection
            if len(self._here) == len(self.events):
                for everybody in self._here.values():
                    with suppress(OSError):
                        everybody.send(b"\n")
        return rank


def _memory(connection: socket.socket) -> int | None:
    """Return the bytes that the process at the other end keeps, with its children.

    That is their memory, but for files that they map; children share most of it with
    their parent, and yet no answer that is weighed needs any. None where the system has
    no such count.
    """
    with suppress(OSError, AttributeError, psutil.Error):  # it has ended, or no Linux
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS)
        rank = psutil.Process(int.from_bytes(peer[:4], sys.byteorder))
        pids = [rank.pid, *(child.pid for child in rank.children(recursive=True))]
        lines = [
            line.split()
            for pid in pids
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        ]
        return 1024 * sum(int(words[1]) for words in lines if words[0] in KEPT)
    return None


def _read(line: bytes) -> dict:
    """Return what a line says.

    Raises:
        ValueError: if it makes no sense.
    """
    said = json.loads(line) if line.endswith(b"\n") else None
    if not isinstance(said, dict):
        raise ValueError("it says what makes no sense")
    return said
