"""Do the epochs differ, and is the data split alike?"""

from itertools import pairwise

from whichrank.examination.facts import Loader, Pass
from whichrank.examination.questions.answer import (
    NO,
    NOT_SEEN,
    YES,
    Answer,
    Ranks,
    no,
    unseen,
    unsure,
    yes,
)
from whichrank.examination.questions.seen import trained_passes

GRAVE = (NO, NOT_SEEN, YES)
Drawn = tuple[Loader, list[list[int]]]
"""A pass over a loader, and the indices of each of its batches."""


def orders(ranks: Ranks) -> Answer:
    """Does a sampler that shuffles give another order in each epoch?"""
    runs = dict[tuple, list[Drawn]]()
    for number, loader in enumerate(ranks[0].loaders):
        for each in trained_passes(loader) if loader.shuffles is not False else ():
            drawn = [batch.drawn for batch in each.batches]
            if len(drawn) > 1 and drawn[0]:  # of one training, as far as DDP tells
                same = (loader.line, loader.base) if each.models else (number,)
                runs.setdefault((*same, each.models), []).append((loader, drawn))
    longest = sorted(runs.values(), key=len, reverse=True)
    answers = [a for a in map(_of_training, longest) if a.evidence]
    gravest = min(answers, key=lambda a: GRAVE.index(a.mark), default=unseen())
    return gravest if gravest.mark == NO else _streams(ranks) or gravest


def _of_training(passes: list[Drawn]) -> Answer:
    """Say whether the passes of one training have other orders."""
    differ, again = 0, list[tuple[Loader, str]]()
    for (loader, before), (_, after) in pairwise(passes):
        size = min(len(before), len(after))
        if before[:size] != after[:size]:
            differ += 1
        elif before[:size] != sorted(before[:size]):
            again.append((loader, f"{size} batches of two passes are alike"))
    if not again:
        return yes(f"{len(passes)} passes, on rank 0.") if differ else unseen()
    loader, alike = again[0]
    cure = "Call `sampler.set_epoch(epoch)` before each epoch."
    if loader.shuffles and not differ:
        return no(f"Two epochs have the same order: {alike}.", cure, loader.line)
    may = "right if it sorts, by length say, wrong if it shuffles"
    if loader.shuffles:
        may = "others differ; right after a trial run, wrong of two epochs"
    else:
        cure = "Let the epoch seed what shuffles."
    return unsure(f"{alike}: {may}.", loader.line, cure)


def _streams(ranks: Ranks) -> Answer | None:
    """Tell that a stream delivers the same once more."""
    streams: dict[str, list[Pass]] = {}
    for loader in ranks[0].loaders:
        if loader.size is None:
            streams.setdefault(loader.line, []).extend(trained_passes(loader))
    for line, passes in streams.items():
        for before, after in pairwise(passes):
            if not (size := _repeated(before, after)):
                continue
            moved = [n for n, v in after.numbers.items() if v != before.numbers.get(n)]
            found = f"{size} batches of two passes over a stream are alike"
            if not moved:
                return unsure(f"{found}: right if nothing shuffles it.", line)
            return no(
                f"Two epochs have the same order: {found}, though its {moved[0]} is "
                f"{after.numbers[moved[0]]}, no longer {before.numbers[moved[0]]}.",
                "Workers that persist have a copy: let a tensor in shared memory hold "
                "the epoch, or set `persistent_workers=False`.",
                line,
            )
    return None


def _repeated(before: Pass, after: Pass) -> int:
    """Return how many batches of two passes are alike; 0 if one differs."""
    pairs = [*zip(before.batches, after.batches, strict=False)]
    told = len({one.digest for one, _ in pairs}) > 1
    same = all(a.digest == b.digest and a.samples == b.samples for a, b in pairs)
    return len(pairs) * (told and same)


def splits(ranks: Ranks) -> Answer:
    """Is the data split alike on all ranks?"""
    for drawn in zip(*(each.splits for each in ranks), strict=False):
        if len({split.digest for split in drawn}) > 1:
            trains = "what one rank validates on, another trains on."
            cure = "`random_split(..., generator=torch.Generator().manual_seed(0))`."
            mistake = f"Each rank splits the data in another way: {trains}"
            return no(mistake, cure, drawn[0].line)
    if ranks[0].splits:
        return yes(f"{len(ranks[0].splits)} random_split on {len(ranks)} ranks.")
    return unseen()
