"""How long it takes to grade a submission: assignment 1's solution, in all its cases.

The first way is how a submission was graded on its own: torch is imported for it, and
its runs come one after the other.
"""

from collections.abc import Iterator
from contextlib import closing

from bench import Result, interleaved
from classroom.engine import judge, sandbox
from classroom.engine.assignment import criteria, load, notebook
from classroom.engine.submission import answers

NAME = "ring"


def measure(rounds: int) -> Iterator[Result]:
    """Yield one result; none where there can be no sandbox."""
    if trouble := sandbox.available():
        print(trouble)
        return
    programs, _ = answers(notebook("source", NAME), load(NAME).PROGRAMS)

    def grade(at_once: int, warm: bool) -> None:
        if not warm:
            sandbox.WARM.close()
        with closing(sandbox.Sandbox(load(NAME), programs)) as rig:
            rig.at_once = at_once
            found = judge.try_all(rig, criteria(NAME))
        if any(judged["state"] != "pass" for judged in found.values()):
            raise RuntimeError(f"the solution does not pass: {found}")

    at_once = min(sandbox.SLOTS, sandbox.SIDE_BY_SIDE)
    timings = interleaved(
        {
            "torch imported, one run at a time": lambda: grade(1, warm=False),
            f"warm, {at_once} runs at a time": lambda: grade(at_once, warm=True),
        },
        rounds,
    )
    runs = sum(len(cell.cases) for cell in criteria(NAME))
    yield Result("classroom", f"a submission of {runs} cases", timings)
