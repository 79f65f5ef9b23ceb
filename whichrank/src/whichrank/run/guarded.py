"""A command under its guard, as the launcher sees them: start, wait, end."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from whichrank.record import names
from whichrank.record.words import signal_name
from whichrank.run import guard

GUARD_WAIT = 30.0  # seconds that a guard has to end a run; it may be frozen


class Guarded:
    """A command that runs under a guard (guard.py).

    Args:
        command: what to run, with its arguments.
        mark: that of the run, which each of its processes carries.
        folder: the run's folder: `out` and `err` in it take the command's output.
        env: the environment.
    """

    def __init__(
        self, command: Sequence[str], mark: str, folder: Path, env: dict[str, str]
    ):
        self.mark = mark
        self.since = 0.0
        """When the end of whatever was left began, in seconds since the epoch."""
        self._word: list[bytes] = []  # of the guard: the command's exit code, and when
        self._grace = guard.GRACE
        self._line, its_end = socket.socketpair()
        out, err = folder / names.OUT, folder / names.ERR
        with its_end, open(out, "wb") as stdout, open(err, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-IS", guard.__file__, mark, str(folder)],
                stdin=its_end.fileno(),
                stdout=stdout,
                stderr=stderr,
                env=env,
                start_new_session=True,  # the stop button is for the caller alone
            )
        words = b"\0".join(map(os.fsencode, command))
        with suppress(OSError):  # it has ended already, which is told as any other end
            self._line.sendall(len(words).to_bytes(8, "big") + words)

    def runs(self) -> bool:
        """Tell whether the guard is there: it ends when the whole run has ended."""
        return self.process.poll() is None

    def ended_by(self) -> str:
        """Return the signal that has ended the guard in the midst of its run, or ""."""
        end = self.process.poll()
        if end is None or self._listen():
            return ""
        return signal_name(-end if end < 0 else end - 128)  # it obeys SIGTERM

    def hurry(self) -> None:
        """Let the guard kill the run at once."""
        self._grace = 0
        self.process.terminate()

    def end(self) -> int:
        """End every process of the run; return the exit code of the command.

        It is negative for a signal. Impatience makes us hurry.
        """
        while True:
            try:
                return self._end()
            except KeyboardInterrupt:
                self.hurry()

    def _end(self) -> int:
        with suppress(OSError):  # the guard has gone
            self._line.shutdown(socket.SHUT_WR)
        try:
            self.process.wait(GUARD_WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if not self._listen():  # it could not end the run, so it is up to us
            self.since = time.time()
            guard.end_all(self.mark, grace=self._grace)
        self._line.close()
        if not self._word:
            return self.process.returncode
        self.since = float(self._word[1])
        return int(self._word[0])

    def _listen(self) -> list[bytes]:
        """Return what the guard, which has ended, had to say."""
        with suppress(OSError):  # it has not even heard the command
            self._word = self._word or self._line.recv(64).split()
        return self._word
