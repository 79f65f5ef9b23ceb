"""What ranks do beside training: they draw, write and send."""

from pathlib import Path

from whichrank.examination.facts import Drawn, Witnessed
from whichrank.examination.questions import advice
from whichrank.examination.questions.answer import (
    NO,
    Answer,
    Ranks,
    counted,
    no,
    unseen,
    unsure,
    yes,
)
from whichrank.examination.questions.together import groups

TIMES = 2  # that a line has to draw before ranks are compared


def noise(ranks: Ranks) -> Answer:
    """Do ranks that train together draw other random numbers?"""
    doubts, drawn = list[Answer](), 0
    for group in groups(ranks):
        own = [ranks[r].drawn for r in group.members]
        for line in own[0].keys() & set.intersection(*(set(each) for each in own)):
            here = [each[line] for each in own]
            if min(each.times for each in here) < TIMES:
                continue
            drawn += here[0].times
            if len({(each.times, each.digest) for each in here}) == 1:
                answer = _alike(ranks[0], here[0], line, bool(group.by))
                if answer.mark == NO:
                    return answer
                doubts.append(answer)
    if doubts:
        return doubts[0]
    return yes(f"{drawn} draws in training.") if drawn else unseen()


def _alike(facts: Witnessed, drawn: Drawn, line: str, tied: bool) -> Answer:
    """Tell that a line draws the same on all ranks, which may be meant."""
    seed = f"`{drawn.seeds}(seed + rank)` after the model is built."
    cure = advice.of(facts, advice.SEED, seed)
    alike = f"the generators are in one state at each of {drawn.times} draws"
    if tied and not facts.framework and (drawn.inside or drawn.drops):
        what = "Dropout drops" if drawn.drops else "A forward draws"
        return no(f"{what} the same on all ranks: {alike}.", cure, line)
    if facts.framework:
        whose = f"{facts.framework} seeds all ranks alike, which many live with"
        return unsure(f"{alike}: {whose}.", line, cure)
    choice = "right where ranks choose together, wrong for noise"
    return unsure(f"{alike}: {choice}.", line, cure if tied else "")


def files(ranks: Ranks) -> Answer:
    """Does one rank only write to each path?"""
    writers: dict[str, list[int]] = {}
    for rank, facts in enumerate(ranks):
        for path in facts.files:
            writers.setdefault(path, []).append(rank)
    for path, by in writers.items():
        if len(by) > 1:
            here = path.removeprefix(f"{Path.cwd()}/")
            who = f"{here}, by ranks {', '.join(map(str, by))}."
            rank_0 = "Let rank 0 write, or put the rank into the name."
            cure = advice.of(ranks[0], advice.WRITE, rank_0)
            line = ranks[by[0]].files[path]
            return no(f"Several ranks write one file: {who}", cure, line)
    if writers:
        by_rank = [f"{Path(path).name} by rank {by[0]}" for path, by in writers.items()]
        return yes(f"{', '.join(by_rank)}.")
    return unseen()


def columns(ranks: Ranks) -> Answer:
    """Is what was sent laid out as the backend needs it?"""
    for facts in ranks:
        if facts.columns and "gloo" in facts.backend:
            column = facts.columns[0]
            return no(
                f"A {column.name} over gloo carries a tensor that is not contiguous: "
                "its neighbors in memory are sent instead.",
                "Send `tensor.contiguous()`, and copy the result back.",
                column.line,
            )
    if calls := ranks[0].calls:
        return yes(f"{counted(calls, 'call')} of broadcast or reduce on rank 0.")
    return unseen()
