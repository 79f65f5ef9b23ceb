"""The judge's side of `weigh` (engine/ranks.py): by how much a process may grow."""

from classroom.engine.verdict import Verdict, fail


def grown(before: dict, after: dict) -> int:
    """Return by how many bytes a process has grown from one weighing to another, by the
    system's count; where there is none, by what the harness has told of its tensors.
    """
    what = "tensors" if before["memory"] is None else "memory"
    return after[what] - before[what]


def too_heavy(
    rank: int, weighed: list[dict], begins_with: float, keeps: float
) -> Verdict | None:
    """Say so if a process has grown by more than so many bytes.

    Args:
        rank: whose it is.
        weighed: the events: before the program is imported, before it begins, and
            between two steps.
        begins_with: which it may hold from its import on.
        keeps: which it may keep from step to step.
    """
    before, begun, after = weighed
    for told, grew, most in (
        ("holds {} MB before it begins", grown(before, begun), begins_with),
        ("keeps {} MB from step to step", grown(begun, after), keeps),
    ):
        if grew > most:
            words = told.format(f"{grew / 1e6:,.1f}")
            return fail(f"rank {rank} {words}, expected at most {most / 1e6:,.1f}")
    return None
