"""Try programs against a criterion: in a notebook, and when they are graded."""

from collections.abc import Callable
from pathlib import Path

from classroom.engine.assignment import Assignment, load, needed, worded
from classroom.engine.rig import Busy, Rig, SandboxError
from classroom.engine.verdict import Decided, Verdict, blocked, fail
from ddp_lab import workplace

LONGEST_VERDICT = 1200  # characters


def try_case(rig: Rig, criterion: str, case: dict) -> Verdict:
    """Return the verdict of one case; a program that is missing is "not yet"."""
    files = needed(rig.assignment, criterion)
    if missing := [name for name in files if name not in rig.programs]:
        return Verdict("not yet", f"{', '.join(missing)} has not been written")
    try:
        verdict = rig.assignment.CRITERIA[criterion](rig, **case)
    except SandboxError:
        raise
    except Decided as decided:
        verdict = decided.verdict
    except Busy as error:
        return blocked(f"the machine is too busy: {error}; judge it again")
    except Exception as error:
        # What the ranks gave may be anything, if the program has meddled with it.
        verdict = fail(f"its results cannot be judged: {type(error).__name__}: {error}")
    # Half a character cannot be written anywhere.
    words = verdict.words.strip().encode(errors="replace").decode()
    if len(words) > LONGEST_VERDICT:
        words = f"{words[:LONGEST_VERDICT]}…"
    return Verdict(verdict.state, words)


def line(assignment: Assignment, criterion: str, case: dict, verdict: Verdict) -> str:
    """Return what the student reads, in the notebook and in the feedback alike."""
    words = worded(assignment, case)
    return f"{criterion}, {words}: {verdict}" if words else f"{criterion}: {verdict}"


def make_check(name: str) -> Callable[..., None]:
    """Return the `check` of an assignment, for its notebook."""
    assignment = load(name)
    # Where the notebook works, and its cells write.
    written = workplace(Path.cwd()) / "build" / "classroom"
    written.mkdir(parents=True, exist_ok=True)

    def check(criterion: str, *cases: dict) -> None:
        """Try the program on each case, and print what came of it. Never raises."""
        paths = {name: written / name for name in assignment.PROGRAMS.values()}
        programs = {n: path.read_text() for n, path in paths.items() if path.exists()}
        rig = Rig(assignment, programs)
        for case in cases:
            try:
                verdict = try_case(rig, criterion, case)
            except KeyboardInterrupt:
                print(f"{criterion}: stopped")
                return
            print(line(assignment, criterion, case, verdict), flush=True)

    return check
