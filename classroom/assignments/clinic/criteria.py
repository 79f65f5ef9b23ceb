"""Assignment 5, Clinic: six sick programs, to be diagnosed and cured.

A diagnosis is read, never executed. A cure is judged by its work: one function of the
cured program is called with other data and other ranks than the sick one ever saw.
"""

import ast
import time
from collections.abc import Callable
from threading import Event

import numpy as np

from classroom.assignments.beside.wired import wired
from classroom.engine.modules import parsed
from classroom.engine.recorder import Reply
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, fail

PATIENTS = "goal", "relay", "prices", "leaders", "overlap", "score"
PROGRAMS = {"diagnosis": "diagnosis.py"} | {name: f"{name}.py" for name in PATIENTS}
CAUSES = {
    "alone": "a rank decides by itself whether it makes a call that needs all of them",
    "circle": "each rank waits for its neighbor to begin",
    "group": "a call that is meant for some ranks goes to others",
    "left out": "`if rank == …` keeps a rank from a call that needs all of them",
    "mean of means": "every rank counts alike, whatever its number of samples",
    "order": "calls that fit each other come in another order on one of the ranks",
    "stranger": "who answers at the address is not whom the ranks are looking for",
    "swallowed": "an error is caught, and with it a call has been skipped",
    "too early": "a buffer is used before the call that fills it has ended",
    "unlike": "the ranks bring tensors of different shapes or dtypes to one call",
}
WORDS = {
    "samples": "{} samples",
    "length": "{} numbers",
    "per_node": "{} a node",
    "prices": "prices {}",
    # What a diagnosis should have been is for the judge alone.
    "rank": "",
    "lines": "",
    "cause": "",
}


ROUNDING = 1e-5  # relative; to compute in float32 is no sickness
LATE = 1.0  # seconds after rank 0 has looked for its largest number
LOOKS_WITHIN = 3.0  # seconds that rank 0 has to do so

# --- diagnoses ---


def diagnoses(text: str) -> dict[str, dict]:
    """Return what `text` assigns as DIAGNOSES[patient] = {...}, without executing it.

    A dictionary of all patients at once will do as well. What is no literal is skipped.

    Raises:
        ValueError: if it is no Python, and why.
    """
    found: dict[str, dict] = {}
    try:
        statements = parsed(text).body
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    for statement in statements:
        if not isinstance(statement, ast.Assign):
            continue
        try:
            value = ast.literal_eval(statement.value)
            for target in statement.targets:
                if isinstance(target, ast.Subscript):
                    found[ast.literal_eval(target.slice)] = value
                elif isinstance(value, dict):
                    found |= value
        except (ValueError, TypeError, RecursionError, MemoryError):
            continue
    return found


def _malformed(given: dict) -> str | None:
    """Return what is wrong with the form of a diagnosis."""
    if not isinstance(given, dict) or set(given) != {"rank", "line", "cause"}:
        return "expected a dictionary with rank, line and cause"
    if type(given["rank"]) not in (int, type(None)):
        return f"rank expected a number or None, got {str(given['rank'])[:80]!r}"
    if type(given["line"]) is not int:
        return f"line expected a number, got {str(given['line'])[:80]!r}"
    if given["cause"] not in list(CAUSES):
        return f"cause expected one of the list, got {str(given['cause'])[:80]!r}"
    return None


def _diagnosis(patient: str) -> Callable[..., Verdict]:
    def diagnosis(
        rig: Rig, *, rank: int | None = None, lines: tuple = (), cause: str = ""
    ) -> Verdict:
        """The rank, the line and the cause are all right.

        Without a cause to compare with, only the form is looked at.
        """
        try:
            given = diagnoses(rig.programs[PROGRAMS["diagnosis"]]).get(patient)
        except ValueError as error:
            if patient != PATIENTS[0]:  # once is enough
                return fail(f"diagnosis.py is no Python: see {PATIENTS[0]}_diagnosis")
            return fail(f"diagnosis.py is no Python: {error}")
        if given is None:
            return Verdict("not yet", f"there is no DIAGNOSES[{patient!r}]")
        if words := _malformed(given):
            return fail(words)
        if not cause:
            return Verdict("pass", "its form is right; grading says whether it is true")
        right = {
            "rank": given["rank"] == rank,
            "line": given["line"] in lines,
            "cause": given["cause"] == cause,
        }
        if all(right.values()):
            return PASS
        told = [
            f"{name} is {'right' if is_so else 'not'}" for name, is_so in right.items()
        ]
        return fail(", ".join(told))

    return diagnosis


# --- cures ---


def _treat(
    rig: Rig,
    patient: str,
    call: str,
    arguments: list[dict],
    results: tuple = ("result",),
    reply: Reply | None = None,
) -> tuple[Outcome, list[dict]]:
    """Call the cured program's function with `arguments` by rank; see that it returns.

    Args:
        results: names for what it returns.
        reply: what answers the ranks, which then work over a wire, whose diary it is
            that is returned as well.
    """
    about = {"program": PROGRAMS[patient], "call": call, "results": list(results)}
    given = [{**about, "takes": [*values], **values} for values in arguments]
    if reply:
        outcome, diary = wired(rig, given, reply=reply)
    else:
        outcome, diary = rig.run(len(given), given), []
    outcome.must_give(*results)
    return outcome, diary


def _near(
    expected: np.ndarray | list[np.ndarray], outcome: Outcome, name: str
) -> Verdict:
    """Compare what each rank gave as `name`, in whichever float it is."""
    for given in outcome.outputs:
        got = given.get(name)
        if isinstance(got, np.ndarray) and got.dtype.kind == "f":
            given[name] = got.astype(np.float64)
    if isinstance(expected, list):
        truth: list | np.ndarray = [one.astype(np.float64) for one in expected]
    else:
        truth = expected.astype(np.float64)
    return compare_all(truth, outcome, name, rtol=ROUNDING)


def goal_cure(rig: Rig, *, ranks: int, samples: int, seed: int = 1) -> Verdict:
    """fit() stops when the mean of the ranks' losses says so, on all of them."""
    draw = rig.draw(seed)
    x = draw.uniform(0.5, 1.5, (ranks, samples))
    y = (2 + draw.uniform(-0.4, 0.4, (ranks, 1))) * x

    def loss(w: float) -> float:
        return ((w * x - y) ** 2).mean()

    goal, w = 1.2 * loss((x * y).sum() / (x * x).sum()), 0.0
    arguments = [
        {"x": x[r], "y": y[r], "goal": goal, "rate": 0.1} for r in range(ranks)
    ]
    while loss(w) >= goal:
        w -= 0.1 * (2 * (w * x - y) * x).mean()
    outcome, _ = _treat(rig, "goal", "fit", arguments)
    return _near(np.array(w), outcome, "result")


def relay_cure(rig: Rig, *, ranks: int, length: int, seed: int = 1) -> Verdict:
    """shift() returns what the left neighbor has."""
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    outcome, _ = _treat(rig, "relay", "shift", [{"x": own} for own in x])
    return compare_all([x[rank - 1] for rank in range(ranks)], outcome, "result")


def prices_cure(rig: Rig, *, ranks: int, prices: str, seed: int = 1) -> Verdict:
    """share() returns rank 0's prices in float64.

    Args:
        prices: as in "3, 7"; to each a whole number is added.
    """
    draw = rig.draw(seed)
    expected = [p + int(draw.integers(100)) for p in ast.literal_eval(f"[{prices}]")]
    given: list[dict] = [{"prices": None, "count": len(expected)} for _ in range(ranks)]
    given[0]["prices"] = expected
    outcome, _ = _treat(rig, "prices", "share", given)
    return compare_all(np.array(expected, dtype=np.float64), outcome, "result")


def leaders_cure(
    rig: Rig, *, ranks: int, per_node: int, length: int, seed: int = 1
) -> Verdict:
    """from_leader() returns what the first rank of this node has."""
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    given = [{"x": own, "per_node": per_node} for own in x]
    outcome, _ = _treat(rig, "leaders", "from_leader", given)
    leaders = [x[rank // per_node * per_node] for rank in range(ranks)]
    return compare_all(leaders, outcome, "result")


def overlap_cure(rig: Rig, *, ranks: int, length: int, seed: int = 1) -> Verdict:
    """While the sum travels, mean_and_largest() looks for the largest number."""
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    given, names = [{"x": own} for own in x], ("mean", "largest")
    looked = Event()

    def reply(rank: int, asked: dict) -> None:
        """Let the others come late; rank 0 asks when it looks at a tensor."""
        if rank == 0:
            return looked.set()
        looked.wait(LOOKS_WITHIN)
        time.sleep(LATE)

    outcome, diary = _treat(rig, "overlap", "mean_and_largest", given, names, reply)
    verdict = _near(x.sum(0) / ranks, outcome, "mean")
    if verdict.state == "pass":
        verdict = _near([np.array(own.max()) for own in x], outcome, "largest")
    return verdict if verdict.state != "pass" else _overlapped(outcome, diary)


def _overlapped(outcome: Outcome, diary: list[dict]) -> Verdict:
    """See that rank 0 has done something while its call waited for the others."""
    first, *others = outcome.events
    came = [e["answered"] for told in others for e in told if "answered" in e]
    looks = [e["at"] for e in first if e.get("what") == "ask"]
    mine = [e["what"] for e in diary if e["rank"] == 0 and e.get("about") != "barrier"]
    begun = {"call", "send", "recv"} & {*mine[: mine.index("look")]} if looks else {}
    if begun and came and looks[0] < min(came):
        return PASS
    return fail("rank 0 does nothing while the sum travels")


def score_cure(rig: Rig, *, ranks: int, samples: str, seed: int = 1) -> Verdict:
    """accuracy() is the share of hits among all ranks' answers.

    Args:
        samples: by rank, as in "3 + 5".
    """
    draw = rig.draw(seed)
    counts = [int(count) for count in samples.split("+")]
    hits = [draw.integers(0, 2, count) for count in counts]
    expected = np.array(sum(own.sum() for own in hits) / sum(counts))
    outcome, _ = _treat(rig, "score", "accuracy", [{"hits": own} for own in hits])
    return _near(expected, outcome, "result")


CURES = (goal_cure, relay_cure, prices_cure, leaders_cure, overlap_cure, score_cure)
CRITERIA = {f"{name}_diagnosis": _diagnosis(name) for name in PATIENTS}
CRITERIA |= {cure.__name__: cure for cure in CURES}
# What a criterion looks at; the other programs need not have been written yet.
NEEDS = {name: [PROGRAMS[name.rpartition("_")[0]]] for name in CRITERIA}
NEEDS |= {f"{name}_diagnosis": [PROGRAMS["diagnosis"]] for name in PATIENTS}
