"""Do two ranks train on one sample, or count one twice?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from whichrank.examination.facts import Loader, Pass
from whichrank.examination.questions import advice
from whichrank.examination.questions.answer import (
    YES,
    Answer,
    Ranks,
    no,
    of_ranks,
    unseen,
    unsure,
    yes,
)
from whichrank.examination.questions.seen import (
    first_loader,
    side_by_side,
    trained_passes,
)
from whichrank.examination.questions.together import BY_HAND, Group, groups

TELLING = 0.9  # of a rank's samples: so many must differ in a tensor that tells them
MOST = 0.9  # of the batches are given to a model as they are, if nothing is cut
NATURAL = 4  # times as many in two ranks as twice in one: more than the data repeats
FEW = 8  # equal parts of samples, which may be chance where the rest differs
MAY = "right within a tensor-parallel group or a pipeline, wrong where gradients are"


def samples(ranks: Ranks) -> Answer:
    """Does every sample reach one rank only?"""
    if answer := _workers(ranks):
        return answer
    answers = [_of_group(ranks, group) for group in groups(ranks)]
    worst = [a for a in answers if a.mark != YES and a.evidence] or answers
    answer = worst[0] if worst else unseen()
    cut = any(model.sends for each in ranks for model in each.models)
    if cut and answer.mark != YES and answer.evidence:
        return unsure("ranks got the same, and may cut it, as the model itself sends.")
    return answer


def _of_group(ranks: Ranks, group: Group) -> Answer:
    """Say whether a sample reached two ranks of a group."""
    answers = [a for a in (_forwards(ranks, group), _loaders(ranks, group)) if a]
    wrong = [a for a in answers if a.mark != YES]
    answer = (wrong or answers[::-1] or [unseen()])[0]
    if answer.mark == YES or group.by or not answer.cure:
        return answer
    found = answer.evidence.partition(": ")[2].rstrip(".")
    return unsure(f"{found} reached several ranks: {MAY} averaged.", answer.line)


def _forwards(ranks: Ranks, group: Group) -> Answer | None:
    """Compare the whole batches that the ranks' models were given in training."""
    members = [*group.members]
    fed = ([f for f in ranks[r].fed if f.ranks == members] for r in members)
    compared = 0
    for models in zip(*fed, strict=False):
        for (a, one), (b, other) in combinations(zip(members, models, strict=True), 2):
            inputs = [*zip(one.inputs, other.inputs, strict=False)]
            equal = sum(x == y != () for x, y in inputs)
            told = len({x for x, _ in inputs if x}) > 1
            if told and equal > len(inputs) / 2:
                loader = first_loader(ranks[a])
                return no(
                    f"Ranks train on the same samples: ranks {a} and {b} got the same "
                    f"batch in {equal} of {len(inputs)} forwards.",
                    advice.split(ranks[a]),
                    (loader.line if loader else "") or one.line,
                )
            compared = max(compared, told * len(inputs))
    if not compared:
        return None
    who = of_ranks(members)
    return yes(f"no batch of {who} was the same in {compared} forwards.")


def _workers(ranks: Ranks) -> Answer | None:
    """Tell that each worker of a loader reads all of an IterableDataset."""
    for rank, facts in enumerate(ranks):
        streams = [each for each in facts.loaders if each.size is None]
        for loader, each in ((s, p) for s in streams for p in trained_passes(s)):
            seen, workers = [batch.digest for batch in each.batches], loader.workers
            again = len(seen) - len({*seen})
            if workers > 1 and again >= len(seen) / 2 and len({*seen}) > 1:
                came = f"on rank {rank}, {again} of {len(seen)} batches came again"
                reads = f"{came}: each of {workers} workers reads everything."
                return no(
                    f"Workers read the same samples: {reads}",
                    "Split by worker: `torch.utils.data.get_worker_info()`.",
                    loader.line,
                )
    return None


# --- samples of loaders ---


@dataclass(frozen=True)
class Twice:
    """Samples of one pass over a loader that reached two ranks."""

    count: int
    alike: bool
    """Whether all ranks drew the same in the same order."""
    by_index: bool


def _loaders(ranks: Ranks, group: Group) -> Answer | None:
    """Compare what the loaders of a group's ranks delivered."""
    count = passes_seen = 0
    doubt: Answer | None = None
    for loaders in side_by_side([ranks[r].loaders for r in group.members]):
        same, parts = same_data([*loaders]), _telling([*loaders])
        for passes in zip(*map(trained_passes, loaders), strict=False):
            if _again(passes):
                doubt = unsure(
                    "a rank drew some twice, and two ranks may draw one.",
                    loaders[0].line,
                )
                continue
            twice = _twice([*passes], same, parts)
            if twice:
                return _told(ranks, group, [*loaders], [*passes], twice)
            if parts or same:
                count += sum(len(b.samples) for p in passes for b in p.batches)
                passes_seen += 1
            else:
                doubt = unsure("nothing in them tells samples apart.", loaders[0].line)
    if doubt or not count:
        return doubt
    times = "one pass" if passes_seen == 1 else f"{passes_seen} passes"
    who, two = of_ranks(group.members), "both" if len(group.members) == 2 else "two"
    return yes(f"{count} samples of {who} in {times}; none reached {two}.")


def _again(passes: tuple[Pass, ...]) -> bool:
    """Return whether a rank drew some index twice, and not as all others did."""
    drawn = [p.drawn for p in passes]
    alike = len({*map(tuple, drawn)}) == 1
    return not alike and any(len({*each}) < len(each) for each in drawn)


def _told(
    ranks: Ranks, group: Group, loaders: list[Loader], passes: list[Pass], twice: Twice
) -> Answer:
    """Tell that samples reached two ranks; doubt it where each draws from all."""
    line, size = loaders[0].line, loaders[0].size
    reached = len({index for each in passes for index in each.drawn})
    whole = size is not None and loaders[0].draws == size >= reached
    if twice.by_index and whole and not twice.alike:
        if not all(p.whole for p in passes):
            draws = f"as each rank draws from all {size} in an order of its own"
            return unsure(f"{twice.count} reached two, {draws}.", line)
    count = sum(len(b.samples) for p in passes for b in p.batches)
    if twice.alike and _cut(ranks, group, passes):
        same = f"the loaders give all ranks the same {twice.count} samples"
        part = "right if each rank takes its part of a batch, or validates on it"
        differs = f"what each trains on differs: {part}; wrong if it only changes it"
        return unsure(f"{same}, and {differs}.", line)
    cure = "Shuffle and split the data with one seed on all ranks."
    if size is None or (twice.by_index and whole):
        cure = advice.split(ranks[group.members[0]])
    found = f"{twice.count} of {count} samples of one pass"
    return no(f"Samples reach more than one rank: {found}.", cure, line)


def _cut(ranks: Ranks, group: Group, passes: list[Pass]) -> bool:
    """Return whether loaders deliver the same, and each rank trains on other tensors.

    Its models are given others, or only some of these; or its gradients differ.
    """
    delivered = [[batch.digest for batch in each.batches] for each in passes]
    if not _alike(delivered) or None in delivered[0]:
        return False
    own = [ranks[r] for r in group.members]
    if group.by == BY_HAND:
        brings = [[a.own for o in each.optimizers for a in o.averaged] for each in own]
        return brings.count(brings[0]) < len(brings)
    given = [{d for f in e.fed for each in f.inputs for d in each} for e in own]
    whole = delivered[0][:-1]  # the last may not have been trained on
    as_they_are = (sum(digest in fed for digest in whole) for fed in given)
    return all(given) and min(as_they_are) < MOST * len(whole)


def _alike(of_each: Sequence[Sequence[Any]]) -> bool:
    """Return whether these lists are one, as far as the shortest goes."""
    shortest = min(map(len, of_each))
    return all(one[:shortest] == of_each[0][:shortest] for one in of_each)


def _twice(passes: list[Pass], same: bool | None, parts: list[int]) -> Twice | None:
    """Return which samples of a pass reached two ranks, but for a sampler's padding."""
    drawn = [p.drawn for p in passes]
    alike = _alike(drawn) and bool(drawn[0])
    if same is not False and (count := _in_several(drawn)) >= len(passes):
        return Twice(count, alike, by_index=True)
    rows = [[row for b in p.batches for row in b.samples] for p in passes]
    for keys in [parts] * (len(parts) > 1) + [[part] for part in parts]:
        held = [[tuple(row[k] for k in keys) for row in each] for each in rows]
        count, again = _in_several(held), sum(len(h) - len({*h}) for h in held)
        least = len(passes)
        if len(keys) < len(parts):  # the rest differs, as by a random change
            least = max(FEW, sum(map(len, held)) // 10)
        if count >= least and count >= NATURAL * again:
            return Twice(count, _alike(held), by_index=False)
    return None


def _in_several(of_each: list[list[Any]]) -> int:
    """Return how many things are in more than one of these lists."""
    counts = Counter(each for one in of_each for each in {*one})
    return sum(count > 1 for count in counts.values())


def _held(loader: Loader) -> dict[int, list[list[int]]]:
    """Return what the samples of each index held, each time that it was delivered."""
    held: dict[int, list[list[int]]] = {}
    for batch in (b for p in trained_passes(loader) for b in p.batches):
        for index, sample in zip(batch.drawn, batch.samples, strict=False):
            held.setdefault(index, []).append(sample)
    return held


def same_data(loaders: list[Loader]) -> bool | None:
    """Return whether an index means one sample on all ranks; None if nothing tells.

    One tensor that tells samples apart, such as the label, is enough: another one may
    be changed at random.
    """
    known = {each.holds for each in loaders}
    answer = True if len(known) == 1 and None not in known else None
    for one, other in combinations(map(_held, loaders), 2):
        both = [i for i in one if i in other]
        theirs = [[*zip(*(h[i][0] for i in both), strict=False)] for h in (one, other)]
        alike = [
            x == y
            for part, (x, y) in enumerate(zip(*theirs, strict=False))
            if len({*x}) > 1 and not any(_changes(h, part) for h in (one, other))
        ]
        if alike and len(both) > 1:
            answer = any(alike)
        if answer is False:
            return False
    return answer


def _telling(loaders: list[Loader]) -> list[int]:
    """Return which tensors of a batch tell its samples apart, and are not changed."""
    found: list[int] = []
    per_pass = [
        [row for batch in p.batches for row in batch.samples]
        for loader in loaders
        for p in trained_passes(loader)
    ]
    rows = [row for one in per_pass for row in one]
    for part in range(min(map(len, rows), default=0)):
        tells = all(
            len({row[part] for row in one}) >= TELLING * len(one) and len(one) > 1
            for one in per_pass
        )
        if tells and not any(_changes(_held(loader), part) for loader in loaders):
            found.append(part)
    return found


def _changes(held: dict[int, list[list[int]]], part: int) -> bool:
    """Return whether a tensor of one index differs from pass to pass."""
    return any(len({row[part] for row in rows}) > 1 for rows in held.values())


# --- validation ---


def validation(ranks: Ranks) -> Answer:
    """Is each sample counted once that is not trained on?"""
    counted = 0
    for loaders in side_by_side([each.loaders for each in ranks]):
        for passes in zip(*(each.passes for each in loaders), strict=False):
            drawn = [p.drawn for p in passes]
            if not all(p.idle for p in passes) or not all(drawn):
                continue
            taken, distinct = sum(map(len, drawn)), len({i for d in drawn for i in d})
            if len({*map(frozenset, drawn)}) == 1:
                continue  # each rank goes through all of it
            if same_data([*loaders]) is False:
                distinct = taken  # an index is another sample on each
            if taken > distinct:
                line = loaders[0].line
                pads = f"the ranks go through {taken} samples, and there are {distinct}"
                return unsure(
                    f"{pads}; a sum over the ranks counts some of them twice.",
                    line,
                    "Count each once: `range(rank, len(data), world_size)`.",
                )
            counted = max(counted, distinct)
    return yes(f"{counted} samples.") if counted else unseen()
