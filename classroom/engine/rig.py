"""Run a student's programs, and bring back what their ranks have to show.

A rig runs an assignment's harness in every rank beside the program. What was expected
is known here only, where the judge is: no process of the run has ever seen it.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from classroom.engine import npz, runner
from classroom.engine.assignment import Assignment, folder
from classroom.engine.verdict import PASS, Verdict, compare, fail

IMPORTED = [Path(__file__).with_name(name) for name in ("ranks.py", "npz.py")]
"""What every harness imports; a run finds it beside its harness."""


class SandboxError(Exception):
    """The sandbox itself does not work: nobody's answer is to blame."""


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
    calls: list[list[str]] = field(default_factory=list)
    """By rank, the calls that PyTorch's own flight recorder has kept, oldest first."""
    exit_codes: list[int | None] = field(default_factory=list)

    def problem(self, *names: str) -> Verdict | None:
        """Return why nothing can be judged; None if every rank gave all of `names`."""
        if self.failure and "NotImplementedError" in self.failure.split("\n")[0]:
            first, *rest = self.failure.split("\n")
            place = rest[0].strip().split(": ")[0] if rest else ""
            who = first.split(":")[0]
            return Verdict("not yet", f"{who} raises NotImplementedError {place}")
        if self.failure:
            return fail(self.failure)
        for rank, given in enumerate(self.outputs):
            if missing := [name for name in names if name not in given]:
                what = ", ".join(missing)
                return fail(f"rank {rank} ended before it had given its {what}")
        return None


def compare_all(
    expected: ArrayLike,
    outcome: Outcome,
    name: str,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> Verdict:
    """Compare what each rank gave as `name` with `expected`: one array, or by rank."""
    for rank, given in enumerate(outcome.outputs):
        truth = expected[rank] if isinstance(expected, list) else expected
        if words := compare(rank, truth, given.get(name), rtol=rtol, atol=atol):
            return fail(words)
    return PASS


# --- runs ---


class Rig:
    """Runs a student's programs for an assignment; this one without a sandbox.

    Args:
        assignment: whose harness is run.
        programs: by file name, the text of each program that the student has written.
    """

    def __init__(self, assignment: Assignment, programs: Mapping[str, str]):
        self.assignment, self.programs = assignment, programs

    @classmethod
    def here(cls, assignment: Assignment, written: Path) -> "Rig":
        """Return a rig for an assignment's programs as they lie in `written`."""
        paths = {name: written / name for name in assignment.PROGRAMS.values()}
        programs = {n: path.read_text() for n, path in paths.items() if path.exists()}
        return cls(assignment, programs)

    def run(
        self,
        ranks: int,
        inputs: dict | Sequence[dict],
        *,
        timeout: float = 20,
        files: Mapping[str, bytes] | None = None,
    ) -> Outcome:
        """Run the harness on `ranks` ranks; return what came of it, whatever it is.

        Args:
            ranks: how many.
            inputs: arrays, or anything JSON-like, by name: for all ranks, or a list of
                such by rank; a rank sees its own only.
            timeout: seconds of silence after which the run is ended.
            files: what shall lie in the run's folder `out` from the start, as an
                earlier outcome's `files` had it.
        """
        by_rank = [inputs] * ranks if isinstance(inputs, dict) else inputs
        if len(by_rank) != ranks:
            raise ValueError(f"inputs for {len(by_rank)} ranks, not for {ranks}")
        sent = {f"answer/{n}": text.encode() for n, text in self.programs.items()}
        sent |= {f"inputs_{r}.npz": pack(values) for r, values in enumerate(by_rank)}
        sent |= {f"out/{name}": data for name, data in (files or {}).items()}
        # Ours come last: no name among the files can put something in their place.
        ours = [folder(self.assignment) / "harness.py", *IMPORTED]
        sent |= {path.name: path.read_bytes() for path in ours}
        answer, received = self._execute({"ranks": ranks, "timeout": timeout}, sent)
        try:
            return _outcome(answer, received, ranks)
        except Exception as error:  # what came out of a sandbox may be anything
            return Outcome([{}] * ranks, f"an answer that makes no sense: {error}")

    def _execute(
        self, header: dict, files: dict[str, bytes]
    ) -> tuple[dict, dict[str, bytes]]:
        return runner.execute(header, files)

    def close(self) -> None:
        """End whatever still runs."""


def pack(values: dict) -> bytes:
    """Return `values` as the bytes of an .npz file."""
    arrays = {
        name: value if isinstance(value, np.ndarray) else np.array(json.dumps(value))
        for name, value in values.items()
    }
    file = io.BytesIO()
    npz.save(file, arrays)
    return file.getvalue()


def unpack(data: bytes) -> dict:
    """Return what a rank has given (see ranks.py). Its author is not trusted.

    Raises:
        ValueError: if it is not such a file.
    """
    values = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ValueError("compressed")
                name = entry.filename.removesuffix(".npy")
                array = _array(archive.read(entry))
                if array.dtype.kind == "U":
                    values[name] = json.loads(str(array))
                elif name.endswith(":bfloat16"):
                    bits = array.view(np.uint16).astype(np.uint32) << 16
                    values[name.removesuffix(":bfloat16")] = bits.view(np.float32)
                else:
                    values[name] = array
    except Exception as error:
        raise ValueError(f"not a result: {error}") from None
    return values


def _array(data: bytes) -> np.ndarray:
    """Return the array of a .npy file, without believing its header."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    rest = data[file.tell() :]
    if dtype.hasobject or dtype.kind not in "biufU" or fortran and len(shape) > 1:
        raise ValueError(f"dtype {dtype}")
    return np.frombuffer(rest, dtype).reshape(shape)


def _outcome(answer: dict, files: dict[str, bytes], ranks: int) -> Outcome:
    """Build the outcome; an answer that makes no sense is a failed run."""
    failure = answer.get("failure")
    outputs: list[dict] = []
    for rank in range(ranks):
        data = files.pop(f"rank_{rank}.npz", None)
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
        answer.get("calls") or [],
        answer.get("exit_codes") or [],
    )
