"""Run a student's programs, and bring back what their ranks have to show.

A rig runs an assignment's harness in every rank beside the program. What was expected
is known here only, where the judge is: no process of the run has ever seen it.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from classroom.engine import runner
from classroom.engine.assignment import LAB, Assignment, folder
from classroom.engine.modules import imported
from classroom.engine.recorder import Recorder, Reply
from classroom.engine.values import pack, unpack
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail

BESIDE = LAB / "assignments" / "beside"
"""Files that the harnesses of several assignments share."""


def beside(assignment: Assignment) -> list[Path]:
    """Return the files of a run: the harness, and what it imports by a bare name.

    That is ours in this folder, or what several assignments share.
    """
    todo = [folder(assignment) / "harness.py", Path(__file__).with_name("values.py")]
    places = [Path(__file__).parent, folder(assignment).parent / "beside", BESIDE]
    found: list[Path] = []
    while todo:
        found.append(todo.pop(0))
        for name in imported(found[-1].read_text()):
            files = [place / f"{name.partition('.')[0]}.py" for place in places]
            todo += [f for f in files if f.is_file() and f not in [*found, *todo]][:1]
    return found


TURN = threading.RLock()
"""Whose turn it is to judge: torch's seeds and threads are for one alone."""


@contextmanager
def others_turn() -> Iterator[None]:
    """Let others judge while a program runs, if it is our turn."""
    try:
        TURN.release()
    except RuntimeError:  # it is not
        yield
        return
    try:
        yield
    finally:
        TURN.acquire()


class SandboxError(Exception):
    """The sandbox itself does not work: nobody's answer is to blame."""


class Busy(Exception):
    """The machine has had no time for a run: nobody's answer is to blame."""


ENOUGH = 1 / 2  # of the timeout: who has had as much time to work, and is silent, fails
LONGER = 10  # times the timeout, where others have taken the cores the first time


@dataclass
class Outcome:
    """What became of one run."""

    outputs: list[dict]
    """By rank, what the harness gave: numpy arrays and JSON-like values."""
    failure: str | None = None
    """The launcher's report: the cause, and where the other ranks stood."""
    bytes_on_wire: int | None = None
    """The kernel's count of the sandbox's loopback; None outside a sandbox."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What else was left in the run's folder `out`."""
    exit_codes: list[int | None] = field(default_factory=list)
    starved: bool = False
    """Whether it was ended, and others had kept it from working (runner.py)."""
    events: list[list[dict]] = field(default_factory=list)
    """By rank, what it has said as it happened (see recorder.py)."""

    def must_give(self, *names: str) -> None:
        """Decide the case if nothing can be judged: not every rank gave all `names`."""
        if self.failure and "NotImplementedError" in self.failure.split("\n")[0]:
            first, *rest = self.failure.split("\n")
            place = rest[0].strip().split(": ")[0] if rest else ""
            who = first.split(":")[0]
            told = f"{who} raises NotImplementedError {place}"
            raise Decided(Verdict("not yet", told))
        if self.failure:
            raise Decided(fail(self.failure))
        for rank, given in enumerate(self.outputs):
            if missing := [name for name in names if name not in given]:
                what = ", ".join(missing)
                raise Decided(fail(f"rank {rank} ended before it had given its {what}"))


def compare_all(
    expected: ArrayLike, outcome: Outcome, name: str, **near: float
) -> Verdict:
    """`compare` each rank's `name` with `expected`: one array, or one each."""
    for rank, given in enumerate(outcome.outputs):
        truth = expected[rank] if isinstance(expected, list) else expected
        if words := compare(rank, truth, given.get(name), **near):
            return fail(words)
    return PASS


# --- runs ---


class Rig:
    """Runs a student's programs for an assignment; this one without a sandbox.

    Args:
        assignment: whose harness is run.
        programs: by file name, the text of each program that the student has written.
    """

    secret: str = ""
    """Random for each grading run; empty in the `check` of a notebook."""
    at_once: int = 1
    """How many runs may go on at the same time."""

    def __init__(self, assignment: Assignment, programs: Mapping[str, str]):
        self.assignment, self.programs = assignment, programs

    def draw(self, seed: int) -> np.random.Generator:
        """Return the generator from which a case with `seed` draws its inputs.

        When it is graded, no program can try seeds until one fits: see `secret`.
        """
        return np.random.default_rng([seed, *self.secret.encode()])

    def run(
        self,
        ranks: int,
        inputs: dict | Sequence[dict],
        *,
        timeout: float = 20,
        files: Mapping[str, bytes] | None = None,
        quiet: bool = False,
        reply: Reply | None = None,
    ) -> Outcome:
        """Run the harness on `ranks` ranks; return what came of it, whatever it is.

        Args:
            ranks: how many.
            inputs: arrays, or anything JSON-like, by name: for all ranks, or a list of
                such by rank; a rank sees its own only.
            timeout: seconds of silence after which the run is ended.
            files: what shall lie in the run's folder `out` from the start, as an
                earlier outcome's `files` had it.
            quiet: whether nothing else shall run beside, as where many ranks do.
            reply: what answers the ranks' questions (`ask`), here in the judge.
        """
        for patience in (timeout, LONGER * timeout):  # the second time alone
            header = {"ranks": ranks, "timeout": patience, "enough": ENOUGH * timeout}
            header["quiet"] = quiet or patience > timeout
            outcome = self._once(header, inputs, files or {}, reply)
            if not outcome.starved:
                return outcome
        raise Busy(f"for {patience:.0f} seconds it had hardly a core")

    def _once(
        self,
        header: dict,
        inputs: dict | Sequence[dict],
        more: Mapping[str, bytes],
        reply: Reply | None,
    ) -> Outcome:
        ranks = header["ranks"]
        by_rank = [inputs] * ranks if isinstance(inputs, dict) else inputs
        if len(by_rank) != ranks:
            raise ValueError(f"inputs for {len(by_rank)} ranks, not for {ranks}")
        sent = {f"answer/{n}": text.encode() for n, text in self.programs.items()}
        sent |= {f"inputs_{r}": pack(values) for r, values in enumerate(by_rank)}
        sent |= {f"out/{name}": data for name, data in more.items()}
        # Ours come last: no name among the files can put something in their place.
        sent |= {path.name: path.read_bytes() for path in beside(self.assignment)}
        with Recorder(ranks, reply) as recorder:
            with others_turn():
                asked = header | {"recorder": str(recorder.path)}
                answer, received = self._execute(asked, sent)
        try:
            outcome = _outcome(answer, received, ranks)
        except Exception as error:  # what came out of a sandbox may be anything
            outcome = Outcome(
                [{}] * ranks, f"an answer that makes no sense: {error}"[:400]
            )
        outcome.events = recorder.events
        for rank, why in recorder.unheard.items():
            outcome.failure = outcome.failure or f"rank {rank} is not heard: {why}"
        return outcome

    def _execute(self, header: dict, files: dict[str, bytes]) -> runner.Answer:
        return runner.execute(header, files)

    def close(self) -> None:
        """Give back what the runs have needed, when there is no later one."""


def _outcome(answer: dict, files: dict[str, bytes], ranks: int) -> Outcome:
    """Build the outcome; an answer that makes no sense is a failed run."""
    failure = answer.get("failure")
    outputs: list[dict] = []
    for rank in range(ranks):
        data = files.pop(f"rank_{rank}", None)
        try:
            outputs.append({} if data is None else unpack(data))
        except ValueError as error:
            outputs.append({})
            failure = failure or f"rank {rank} left a result that cannot be read"
            failure += f" ({error})" if len(str(error)) < 100 else ""
    if trouble := answer.get("trouble"):
        failure = f"the run broke off: {trouble}"
    if late := answer.get("late"):
        failure = f"no end after {float(late):.0f} seconds\n{failure}"
    return Outcome(
        outputs,
        None if failure is None else str(failure)[:4000],
        answer.get("bytes_on_wire"),
        files,
        exit_codes=answer.get("exit_codes") or [],
        starved=bool(answer.get("starved")),
    )
