"""Assignment 5, Clinic: six sick programs, to be diagnosed and cured.

A diagnosis is read, never executed. A cure is judged by its work: one function of the
cured program is called with other data and other ranks than the sick one ever saw.
"""

import ast
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from classroom.engine.modules import parsed
from classroom.engine.recorder import Reply
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Decided, Verdict, fail

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
LATE = 2.0  # seconds, longer than any nap

# --- diagnoses ---


def diagnoses(text: str) -> dict[Any, ast.expr]:
    """Return by patient the expression that `text` assigns to DIAGNOSES[patient], or
    has in a dictionary of all patients.
    """
    found: dict[Any, ast.expr] = {}
    for statement in parsed(text).body:
        match statement:
            case ast.Assign([ast.Subscript(slice=ast.Constant(patient))], value):
                found[patient] = value
            case ast.Assign(_, ast.Dict(keys, values)):
                pairs = zip(keys, values, strict=True)
                found |= {k.value: v for k, v in pairs if isinstance(k, ast.Constant)}
    return found


def plain(expression: ast.expr) -> Any:
    """Return the value of a literal, or of dict(name=literal, ...), unexecuted."""
    match expression:
        case ast.Call(ast.Name("dict"), [], keywords):
            return {each.arg: ast.literal_eval(each.value) for each in keywords}
    return ast.literal_eval(expression)


def _malformed(given: Any) -> str | None:
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
            written = diagnoses(rig.programs[PROGRAMS["diagnosis"]]).get(patient)
        except (SyntaxError, RecursionError, MemoryError) as error:
            told = f"{type(error).__name__}: {error}"
            if isinstance(error, SyntaxError):
                told = f"line {error.lineno}: {error.msg}"
            if patient != PATIENTS[0]:  # once is enough
                told = f"see {PATIENTS[0]}_diagnosis"
            return fail(f"diagnosis.py is no Python: {told}")
        if written is None:
            return Verdict("not yet", f"there is no DIAGNOSES[{patient!r}] = {{...}}")
        try:
            given = plain(written)
        except (ValueError, TypeError, RecursionError, MemoryError):
            told = "it is not written in plain numbers and strings"
            return fail(f"line {written.lineno}: {told}")
        if words := _malformed(given):
            return fail(words)
        if not cause:
            return Verdict("pass", "its form is right; grading says whether it is true")
        right = (given["rank"], given["cause"]) == (rank, cause)
        # Which part is wrong would be worth a try for each, where students see this.
        return PASS if right and given["line"] in lines else fail("not right yet")

    return diagnosis


# --- cures ---


def _treat(
    rig: Rig,
    patient: str,
    call: str,
    arguments: list[dict],
    results: tuple = ("result",),
    order: Reply | None = None,
) -> Outcome:
    """Call the cured program's function with `arguments` by rank; see that it returns.

    Args:
        results: names for what it returns.
        order: says when the ranks go on, if they also get a `search`.
    """
    about: dict = {"program": PROGRAMS[patient], "call": call}
    about |= {"results": [*results], "searches": order is not None}
    given = [{**about, "takes": [*values], **values} for values in arguments]
    outcome = rig.run(len(given), given, reply=order)
    outcome.must_give(*results)
    return outcome


def _near(expected: Any, outcome: Outcome, name: str) -> Verdict:
    """Compare float64s with what each rank gave as `name`, in whichever float."""
    for given in outcome.outputs:
        got = given.get(name)
        if isinstance(got, np.ndarray) and got.dtype.kind == "f":
            given[name] = got.astype(np.float64)
    return compare_all(expected, outcome, name, rtol=ROUNDING)


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
    outcome = _treat(rig, "goal", "fit", arguments)
    return _near(np.array(w), outcome, "result")


def relay_cure(rig: Rig, *, ranks: int, length: int, seed: int = 1) -> Verdict:
    """shift() returns what the left neighbor has."""
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    outcome = _treat(rig, "relay", "shift", [{"x": own} for own in x])
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
    outcome = _treat(rig, "prices", "share", given)
    return compare_all(np.array(expected, dtype=np.float64), outcome, "result")


def leaders_cure(
    rig: Rig, *, ranks: int, per_node: int, length: int, seed: int = 1
) -> Verdict:
    """from_leader() returns what the first rank of this node has."""
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    given = [{"x": own, "per_node": per_node} for own in x]
    outcome = _treat(rig, "leaders", "from_leader", given)
    leaders = [x[rank // per_node * per_node] for rank in range(ranks)]
    return compare_all(leaders, outcome, "result")


class Meanwhile:
    """Lets the ranks go on in an order that overlapping ones can keep.

    The other ranks begin when rank 0 searches: it has not waited for the sum before.
    Its search ends when they have the sum: it has sent its share before. Whoever has to
    wait asks again, so that only the run's own limit ends a standstill.

    Args:
        late: seconds by which the others come later; then the search waits for nobody.
    """

    def __init__(self, ranks: int, late: float):
        self.others, self.late, self.searching = ranks - 1, late, False

    def __call__(self, rank: int, asked: dict) -> bool:
        """Return whether a rank may go on."""
        if asked["step"] == "start":  # of a run, which may be tried twice
            self.searching, self.sums = False, set[int]()
        elif asked["step"] == "search":
            self.searching = True
            return self.met()
        elif asked["step"] == "begin":
            time.sleep(self.late if self.searching else 0)
            return self.searching
        else:
            self.sums.add(rank)
        return True

    def met(self) -> bool:
        """Tell whether rank 0 has searched while the sum traveled."""
        return self.searching and (self.late > 0 or len(self.sums) == self.others)


def overlap_cure(rig: Rig, *, ranks: int, length: int, seed: int = 1) -> Verdict:
    """While the sum travels, mean_and_largest() searches for the largest number.

    Which is a matter of order, not of time. Once more, the sum comes after the search.
    """
    draw = rig.draw(seed)
    x = draw.integers(0, 100, (ranks, length)).astype(np.float32)
    given, names = [{"x": own} for own in x], ("mean", "largest")
    for late in (0.0, LATE):
        order = Meanwhile(ranks, late)
        try:
            outcome = _treat(rig, "overlap", "mean_and_largest", given, names, order)
        except Decided as decided:
            if order.met() or decided.verdict.state != "fail":
                raise
            words = "rank 0 does not search while the sum travels"
            return fail(f"{words}\n{decided.verdict.words}")
        verdict = _near(x.mean(0, dtype=np.float64), outcome, "mean")
        if verdict.state == "pass":
            largest = [np.array(own.max(), np.float64) for own in x]
            verdict = _near(largest, outcome, "largest")
        if verdict.state != "pass":
            break
    return verdict


def score_cure(rig: Rig, *, ranks: int, samples: str, seed: int = 1) -> Verdict:
    """accuracy() is the share of hits among all ranks' answers."""
    draw = rig.draw(seed)
    counts = [int(count) for count in samples.split("+")]
    hits = [draw.integers(0, 2, count) for count in counts]
    expected = np.array(sum(own.sum() for own in hits) / sum(counts))
    outcome = _treat(rig, "score", "accuracy", [{"hits": own} for own in hits])
    return _near(expected, outcome, "result")


CURES = (goal_cure, relay_cure, prices_cure, leaders_cure, overlap_cure, score_cure)
CRITERIA = {f"{name}_diagnosis": _diagnosis(name) for name in PATIENTS}
HELD_BACK = [*CRITERIA]  # few answers are possible: they could be tried one by one
CRITERIA |= {cure.__name__: cure for cure in CURES}
# What a criterion looks at; the other programs need not have been written yet.
NEEDS = {name: [PROGRAMS[name.rpartition("_")[0]]] for name in CRITERIA}
NEEDS |= {f"{name}_diagnosis": [PROGRAMS["diagnosis"]] for name in PATIENTS}
