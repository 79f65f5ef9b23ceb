"""Try a student's program against a criterion, and say in one line what came of it.

A criterion is a function of an assignment's module:

    def right(bench: Bench, *, ranks: int, length: int, seed: int = 0) -> Verdict:
        outcome = bench.run("ring", ranks, [{"x": x} for x in vectors])
        if problem := outcome.problem("result"):
            return problem
        return compare_all(expected, outcome, "result")

The bench runs a harness (harness/NAME.py) beside the program in every rank and returns
what the ranks gave. What was expected is known here only, where the judge is: no
process of the run has ever seen it.
"""

import io
import json
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from classroom.grading import runner
from classroom.grading.harness._npz import save
from ddp_lab import ROOT

WRITTEN = ROOT / "build" / "classroom"
"""The folder into which an assignment's cells write its programs."""
SHOWN = 6  # numbers of a tensor that a verdict quotes
LONGEST = 1200  # characters of a verdict
STATES = ("pass", "fail", "blocked", "not yet")


class SandboxError(Exception):
    """The sandbox itself does not work: nobody's answer is to blame."""


@dataclass(frozen=True)
class Verdict:
    """What became of one case, or of a criterion with all its cases."""

    state: str
    """"pass", "fail", "blocked" (could not be judged here) or "not yet" (a stub)."""
    words: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.words}" if self.words else self.state


PASS = Verdict("pass")


def fail(words: str) -> Verdict:
    """Return the verdict of a wrong answer."""
    return Verdict("fail", words)


def blocked(words: str) -> Verdict:
    """Return the verdict of a case that cannot be judged here, and why."""
    return Verdict("blocked", words)


@dataclass
class Outcome:
    """What became of one run."""

    outputs: list[dict]
    """By rank, what the harness gave: numpy arrays and JSON-like values."""
    failure: str | None = None
    """The launcher's report: the cause, and where the other ranks stood."""
    kind: str | None = None
    """See `ddp_lab.kit.Failure.kind`; "killed" if a limit ended the sandbox."""
    rank: int | None = None
    bytes_on_wire: int | None = None
    """The kernel's count of the sandbox's loopback; None outside a sandbox."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What else was left in the run's folder `out`."""
    seconds: float = 0.0
    calls: list[list[str]] = field(default_factory=list)
    """By rank, the calls that PyTorch's own flight recorder has kept, oldest first."""
    lines: list[list[str]] = field(default_factory=list)
    """By rank, the last lines printed."""
    exit_codes: list[int | None] = field(default_factory=list)
    expect_failure: bool = False

    def problem(self, *names: str) -> Verdict | None:
        """Return why nothing can be judged; None if every rank gave all of `names`."""
        if self.expect_failure:
            return None if self.failure else fail("the run was to fail, but ended well")
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


def compare(
    rank: int, expected: np.ndarray, got, *, rtol: float = 0.0, atol: float = 0.0
) -> str | None:
    """Return how `got` of this rank differs from `expected`; None if it does not.

    Shapes must be the same, and so must dtypes if `expected` is an array (bfloat16
    arrives as float32). NaN equals nothing.
    """
    typed, expected = isinstance(expected, np.ndarray), np.asarray(expected)
    if not isinstance(got, np.ndarray):
        return f"rank {rank} expected {_quote(expected)}, got {str(got)[:80]}"
    if got.shape != expected.shape:
        shapes = f"shape {expected.shape}, got {got.shape}"
        return f"rank {rank} expected {shapes}"
    if typed and got.dtype != expected.dtype:
        return f"rank {rank} expected {expected.dtype}, got {got.dtype}"
    with np.errstate(all="ignore"):
        same = got == expected
        if rtol or atol:
            difference = np.abs(got.astype(np.float64) - expected)
            same |= difference <= atol + rtol * np.abs(expected)
    if same.all():
        return None
    wrong = np.flatnonzero(~np.ravel(same))
    text = f"rank {rank} expected {_quote(expected)}, got {_quote(got)}"
    if expected.size > 1:
        where = f"first at {wrong[0]}"
        if wrong[0] >= SHOWN:
            at = int(wrong[0])
            values = expected.ravel()[at], got.ravel()[at]
            where += f": {_number(values[0])} expected, {_number(values[1])} got"
        text += f" ({len(wrong):,} of {expected.size:,} numbers differ, {where})"
    return text


def compare_all(
    expected, outcome: Outcome, name: str, *, rtol: float = 0.0, atol: float = 0.0
) -> Verdict:
    """Compare what each rank gave as `name` with `expected`: one array, or by rank."""
    for rank, given in enumerate(outcome.outputs):
        truth = expected[rank] if isinstance(expected, list) else expected
        if words := compare(rank, truth, given.get(name), rtol=rtol, atol=atol):
            return fail(words)
    return PASS


def _quote(values: np.ndarray) -> str:
    flat = np.ravel(values)
    text = ", ".join(_number(value) for value in flat[:SHOWN])
    if values.ndim == 0:
        return text
    return f"[{text}{', …' if flat.size > SHOWN else ''}]"


def _number(value) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


# --- runs ---


class Bench:
    """Runs harnesses beside one student's programs; this one without a sandbox.

    Args:
        programs: by file name, the text of each program that the student has written.
    """

    def __init__(self, programs: dict[str, str]):
        self.programs = programs

    @classmethod
    def here(cls, names: Sequence[str], folder: Path = WRITTEN) -> "Bench":
        """Return a bench for the programs `names` as they lie in `folder`."""
        paths = {name: folder / name for name in names}
        return cls({n: path.read_text() for n, path in paths.items() if path.exists()})

    def run(
        self,
        harness: str,
        ranks: int,
        inputs: dict | list[dict],
        *,
        timeout: float = 20,
        program: str | None = None,
        files: dict[str, bytes] | None = None,
        expect_failure: bool = False,
        args: Sequence = (),
    ) -> Outcome:
        """Run `harness` on `ranks` ranks; return what came of it. Never raises for it.

        Args:
            harness: the name of a file in `harness/`, without its ending.
            ranks: how many.
            inputs: arrays, or anything JSON-like, by name: for all ranks, or a list of
                such by rank; a rank sees its own only.
            timeout: seconds of silence after which the run is ended.
            program: run this file of the student itself instead of the harness, with
                `args` as its arguments, in which {folder} stands for the run's folder.
            files: what shall lie in the run's folder `out` from the start, as an
                earlier outcome's `files` had it.
            expect_failure: a failing run is no problem, but what was asked for.
            args: further arguments.
        """
        by_rank = inputs if isinstance(inputs, list) else [inputs] * ranks
        if len(by_rank) != ranks:
            raise ValueError(f"inputs for {len(by_rank)} ranks, not for {ranks}")
        sent = {f"answer/{name}": text.encode() for name, text in self.programs.items()}
        sent |= {f"inputs_{r}.npz": pack(values) for r, values in enumerate(by_rank)}
        sent |= {f"out/{name}": data for name, data in (files or {}).items()}
        header = {"harness": harness, "program": program, "ranks": ranks}
        header |= {"timeout": timeout, "args": [str(word) for word in args]}
        answer, received = self._execute(header, sent)
        try:
            outcome = _outcome(answer, received, ranks)
        except Exception as error:  # what came out of a sandbox may be anything
            outcome = Outcome([{}] * ranks, f"an answer that makes no sense: {error}")
        outcome.expect_failure = expect_failure
        return outcome

    def _execute(self, header: dict, files: dict[str, bytes]):
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
    save(file, arrays)
    return file.getvalue()


def unpack(data: bytes) -> dict:
    """Return what `harness/_ranks.give` has stored. Whoever wrote it is not trusted.

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
    failure, kind = answer.get("failure"), answer.get("kind")
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
        failure, kind = f"the run broke off: {trouble}", "launch"
    if late := answer.get("late"):
        failure = f"no end after {float(late):.0f} seconds\n{failure}"
    return Outcome(
        outputs,
        None if failure is None else str(failure)[:4000],
        None if kind is None else str(kind),
        answer.get("rank"),
        answer.get("bytes_on_wire"),
        files,
        float(answer.get("seconds") or 0.0),
        answer.get("calls") or [],
        answer.get("lines") or [],
        answer.get("exit_codes") or [],
    )


# --- criteria ---


def words_of(module, case: dict) -> str:
    """Return a case as text: `3 ranks, 10 numbers`. A seed tells the reader nothing.

    The module's WORDS says how: by parameter, a format as "{} numbers".
    """
    formats = {"ranks": "{} ranks", "seed": ""} | getattr(module, "WORDS", {})
    parts = []
    for name, value in case.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        text = formats.get(name, name.replace("_", " ") + " {}").format(text)
        parts.append(text)
    return ", ".join(part for part in parts if part)


def needed(module, criterion: str) -> list[str]:
    """Return the files of the programs that a criterion looks at."""
    every = list(module.PROGRAMS.values())
    return list(getattr(module, "NEEDS", {}).get(criterion, every))


def try_case(module, criterion: str, bench: Bench, case: dict) -> Verdict:
    """Return the verdict of one case; a program that is missing is "not yet"."""
    files = needed(module, criterion)
    if missing := [name for name in files if name not in bench.programs]:
        return Verdict("not yet", f"{', '.join(missing)} has not been written")
    try:
        verdict = module.CRITERIA[criterion](bench, **case)
    except SandboxError:
        raise
    except Exception as error:
        # What the ranks gave may be anything, if the program has meddled with it.
        verdict = fail(f"its results cannot be judged: {type(error).__name__}: {error}")
    words = verdict.words.strip()
    if len(words) > LONGEST:
        words = f"{words[:LONGEST]}…"
    return Verdict(verdict.state, words)


def line(module, criterion: str, case: dict, verdict: Verdict) -> str:
    """Return what the student reads, in the notebook and in the feedback alike."""
    words = words_of(module, case)
    return f"{criterion}, {words}: {verdict}" if words else f"{criterion}: {verdict}"


def total(verdicts: Sequence[Verdict]) -> str:
    """Return the state of a criterion, given its cases."""
    states = {verdict.state for verdict in verdicts}
    for state in ("fail", "not yet", "blocked"):
        if state in states:
            return state
    return "pass" if states else "fail"


def make_check(name: str) -> Callable[..., None]:
    """Return the `check` of the assignment whose module is `name`, for its notebook."""
    WRITTEN.mkdir(parents=True, exist_ok=True)

    def check(criterion: str, *cases: dict) -> None:
        """Try the program on each case, and print what came of it. Never raises."""
        module = sys.modules[name]
        bench = Bench.here(list(module.PROGRAMS.values()))
        for case in cases:
            try:
                verdict = try_case(module, criterion, bench, case)
            except KeyboardInterrupt:
                print(f"{criterion}: stopped")
                return
            print(line(module, criterion, case, verdict), flush=True)

    return check
