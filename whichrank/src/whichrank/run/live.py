"""One run while it goes on: started, watched, ended, and read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from whichrank.explain.find import find_failure, find_notes
from whichrank.explain.symptoms import in_words
from whichrank.record import names
from whichrank.record.lives import lives as read_lives
from whichrank.record.lives import nodes_by_rank
from whichrank.record.logs import RunLog, TorchrunLog, rank_folders, read_json
from whichrank.record.plan import Event, Planned, read_events, read_plan, read_played
from whichrank.record.tail import Latest, Tail
from whichrank.record.words import listed
from whichrank.run.guarded import Guarded
from whichrank.run.limits import SHORT, Limits
from whichrank.run.place import Place
from whichrank.run.result import Run, refused
from whichrank.run.signs import Signs
from whichrank.run.watchdog import Watchdog

Watch = Callable[[Run], None]
"""Called with the result so far, five times a second."""


class LiveRun:
    """One run of a command.

    Args:
        command: the plain command, as a terminal would take it.
        place: where it is.
        limits: what the run may take.
    """

    def __init__(self, command: str, place: Place, limits: Limits):
        self.command = command
        self.place = place
        self.limits = limits
        self.stopped: str | None = None
        """Why the run was ended, if it did not end by itself: a key of `STOPPED`."""
        self.limit: float | str = limits.silence
        """What `STOPPED` tells beside it: a limit, or a signal."""
        self.start, self.began = time.monotonic(), time.time()
        self.notes = place.notes
        self.standing: RunLog | None = None  # all just before we ended it
        self.ended = 0.0  # when we were interrupted, or the guard ended what was left

    @property
    def folder(self) -> Path:
        """Return where the run's files are."""
        return self.place.folder

    @cached_property
    def latest(self) -> Latest:
        """Return what follows the ranks' output while the run goes on."""
        by_rank = self.place.log is TorchrunLog
        return Latest(Tail(self.folder, by_rank), SHORT)

    def run(self, watch: Watch | None) -> Run:
        """Run it until it ends or is stopped; return what became of it."""
        try:
            run = self._run(watch)
            if watch:
                watch(run)  # who follows the files reads them to their ends
            return run
        except BrokenPipeError:  # the reader of what `watch` prints has gone, as `head`
            raise
        except OSError as error:  # too many open files, say
            symptom = in_words(str(error))
            means = f"\n  that is: {symptom.means}" if symptom else ""
            raise refused(f"{error}{means}") from error
        finally:
            self.place.close()

    def _run(self, watch: Watch | None) -> Run:
        child, code = None, 0

        def tell(state: str) -> None:
            if watch:
                watch(replace(self._result(), state=state))

        try:
            try:
                tell("")  # now, because any of what follows may take long
                self.place.wait(tell)
                self.start, self.began = time.monotonic(), time.time()
                child = self.place.start()
                self._wait(child, watch)
            except KeyboardInterrupt:
                self.stopped, self.ended = "interrupt", time.time()
            if self.stopped and child:
                self.place.look()
                self.standing = self.place.log.read(self.folder)
        except KeyboardInterrupt:  # once more: ask no rank, end it
            if child:
                child.hurry()
        finally:
            if child:  # however we leave, every process of the run is ended
                code = child.end()
                self.ended = self.ended or child.since
                self.place.end(stopped=bool(self.stopped) or code < 0)
        if code and not self.stopped and (by := self.place.ended_by(code)):
            self._stop(*by)  # something else has ended what the ranks depend on
        return self._result(code)

    def _wait(self, child: Guarded, watch: Watch | None) -> None:
        """Wait until the run ends, or has to be stopped."""
        signs, failing = Signs(self.folder), False
        watchdog = Watchdog(self.limits, time.monotonic())
        while child.runs():
            now = time.monotonic()
            if seconds := self._watched(watchdog, signs):
                return self._stop("timeout", seconds)
            if signs.written > self.limits.output:
                return self._stop("output", self.limits.output)
            if not failing and self._one_has_failed():
                failing = True
                self.place.look()  # at the others, before torchrun ends them
            if watch:
                watch(self._result())
            while child.runs() and time.monotonic() < now + 0.2:
                time.sleep(0.01)
        if by := child.ended_by():
            self._stop("guard", by)

    def _watched(self, watchdog: Watchdog, signs: Signs) -> float | None:
        """Tell the watchdog what the run does; return what `Watchdog.see` does."""
        watchdog.hear(time.monotonic(), signs.count())
        if not watchdog.due(time.monotonic()):
            return None
        pulses = self.place.see()
        now = time.monotonic()  # a look takes its time
        watchdog.hear(now, signs.count())
        return watchdog.see(now, pulses)

    def _stop(self, why: str, limit: float | str) -> None:
        """Say why the run has not ended by itself: a key of `STOPPED`, its argument."""
        self.stopped, self.limit = why, limit

    def _one_has_failed(self) -> bool:
        ends = [read_json(rank / names.END) for rank in rank_folders(self.folder)]
        return any(end and end["code"] for end in ends)

    def _result(self, code: int | None = None) -> Run:
        """Return the result so far; it is final once the exit code is known."""
        seconds, final = time.monotonic() - self.start, code is not None
        log = self._read(final)
        failure, exit_codes = None, [code for _ in log.ranks]
        notes = list(self.notes)
        if code is not None:
            failure, exit_codes = find_failure(log, code, self.stopped, self.limit)
            notes += [] if failure else [str(each) for each in find_notes(log)]
            if failure and failure.stands:  # which say less then
                notes += sorted({rank.trouble for rank in log.ranks} - {""})
        lives = read_lives(self.folder, self.began) if final else []
        happened = read_events(self.folder, self.began)
        played = read_played(self.folder)
        if played.left_out:
            left_out = listed(played.left_out)
            notes.append(f"left out, because the nodes share one network: {left_out}")
        if final and not self.stopped:
            planned = read_plan(self.folder).events
            notes += _not_happened(planned, happened, played.left_out)
        return Run(
            command=self.command,
            lines=[rank.lines for rank in log.ranks],
            facts=[rank.facts for rank in log.ranks],
            warnings=[rank.warnings for rank in log.ranks],
            exit_codes=exit_codes,
            seconds=seconds,
            failure=failure,
            calls=[rank.calls for rank in log.ranks],
            notes=notes,
            log_folder=None if final else self.folder,
            code=code,
            nodes=nodes_by_rank(lives),
            lives=lives,
            events=happened,
            played=played.how,
            typed=played.typed,
        )

    def _read(self, final: bool) -> RunLog:
        """Return what the run printed, and in the end what else is known of it."""
        if not final:
            return self.place.log(self.latest.ranks())
        self.latest.tail.close()
        log = self.place.log.read(self.folder)
        if self.standing:
            log = log.as_it_stood(self.standing)
        return log.ended_at(self.ended) if self.ended else log


def _not_happened(
    planned: Sequence[Planned], happened: Sequence[Event], left_out: Sequence[str]
) -> list[str]:
    """Return a note for each event to which the run has not come."""
    done, notes = [*map(str, happened), *left_out], []
    for each in planned:
        if str(each.event) in done:
            done.remove(str(each.event))
        else:
            notes.append(f"the run was over before this event: {each.sentence}")
    return notes
