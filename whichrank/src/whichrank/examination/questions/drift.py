"""Do the ranks hold the same weights, and if not, why?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whichrank.examination.facts import Forwards, Optimizer, Wrapped
from whichrank.examination.questions.answer import (
    YES,
    Answer,
    Ranks,
    counted,
    no,
    of_ranks,
    unseen,
    unsure,
    yes,
)
from whichrank.examination.questions.seen import side_by_side

HEAD = "The ranks do not hold the same weights:"
Why = tuple[str, str, str]
"""What has made weights differ, the cure, and a line."""


def same_weights(ranks: Ranks) -> Answer:
    """Do all ranks hold the same weights after every step?"""
    compared, told = Compared(), set[int]()
    optimizers = side_by_side([each.optimizers for each in ranks])
    for number, every in enumerate(optimizers):
        if len({tuple(each.weights) for each in every}) > 1:
            continue  # a part of the model on each
        mistake, equal = _drift(ranks, every)
        if mistake:
            return mistake
        if equal.steps:
            compared = compared.and_those(equal)
            told.add(number)
    if told and any(each.sends for each in ranks):
        return yes(str(compared))
    rest = _as_it_is(ranks, [o for n, o in enumerate(optimizers) if n not in told])
    more = rest.evidence and rest.mark != YES
    return rest if more or not told else yes(str(compared))


def _as_it_is(ranks: Ranks, optimizers: list[tuple[Optimizer, ...]]) -> Answer:
    """Say whether weights are equal that nothing shows must be."""
    compared = Compared()
    if any(tie.by == "FSDP" for each in ranks for tie in each.ties):
        return unseen()  # these are shards
    for every in optimizers:
        if len({tuple(each.weights) for each in every}) == 1:
            names = every[0].weights
            if place := _first_difference(every, None, {*range(len(names))}):
                after = f"{names[place[1]]} differs after step {place[0] + 1}"
                if _past_shards(ranks, every):
                    return no(
                        f"{HEAD} {after}: fully_shard was given other parts of the "
                        "model, and nothing averages the gradient of this one.",
                        "Call `fully_shard(model)` on the whole model, last.",
                        ranks[0].ties[0].line,
                    )
                return unsure(f"{after}, and nothing tells whether that is meant.")
            compared = compared.and_those(_equal(every, range(len(ranks))))
    return yes(str(compared)) if compared.steps else unseen()


def _past_shards(ranks: Ranks, every: Sequence[Optimizer]) -> bool:
    """Return whether all ranks train by fully_shard, and send nothing beside it."""
    tied = all(any(t.by == "fully_shard" for t in each.ties) for each in ranks)
    shards = any(None in step.weights for each in every for step in each.steps[:1])
    sent = any(each.sends for each in ranks) or any(each.averaged for each in every)
    return tied and shards and not sent


@dataclass(frozen=True, order=True)
class Compared:
    """How many weights were equal, after how many steps."""

    steps: int = 0
    weights: int = 0
    members: tuple[int, ...] = ()

    def __str__(self) -> str:
        who = of_ranks(self.members)
        return f"{counted(self.weights, 'weight')} of {who} after {self.steps} steps."

    def and_those(self, other: "Compared") -> "Compared":
        """Return both, if they are of the same ranks; else the larger one."""
        if self.members != other.members:
            return max(self, other)
        steps = max(self.steps, other.steps)
        return Compared(steps, self.weights + other.weights, self.members)


def _equal(
    own: Sequence[Optimizer], members: Iterable[int], weights: set[int] | None = None
) -> Compared:
    """Return how much of what these ranks hold was compared."""
    steps = min(len(each.steps) for each in own)
    held = own[0].steps[0].weights if steps else []
    whole = {n for n, digest in enumerate(held) if digest is not None}
    count = len(whole if weights is None else whole & weights)
    return Compared(steps if count else 0, count, tuple(members))


def _drift(
    ranks: Ranks, every: tuple[Optimizer, ...]
) -> tuple[Answer | None, Compared]:
    """Return what differs in an optimizer's weights, or how much was equal."""
    compared = Compared()
    for members, model, weights in _groups(ranks, every):
        own = [every[r] for r in members]
        if not (place := _first_difference(own, model, weights)):
            compared = compared.and_those(_equal(own, members, weights))
            continue
        step, n = place
        why: Why | None = None
        if model is None:
            why = _unwrapped(every, step, n)
        elif not (made := ranks[members[0]].models[model]).hooked:
            meant = any(each.sends for each in ranks)  # sent by the script
            why = _cause(own, made, model, step, n, meant)
        if why is None:
            return None, Compared()
        cause, cure, line = why
        differs = f"{own[0].weights[n]} differs after step {step + 1}: {cause}."
        return no(f"{HEAD} {differs}", cure, line), Compared()
    return None, compared


def _groups(
    ranks: Ranks, every: tuple[Optimizer, ...]
) -> Iterator[tuple[list[int], int | None, set[int]]]:
    """Yield ranks, the DDP that they share, and the weights that must be equal."""
    own = every[0]
    members = [*range(len(ranks))]
    apart = {name for model in ranks[0].models for name in model.ignored}
    rest = {n for n, name in enumerate(own.weights) if name not in apart}
    for model, has in enumerate(own.within):
        weights = {n for n in rest if has[n]}
        if weights and all(model < len(each.models) for each in ranks):
            for group in {tuple(each.models[model].ranks) for each in ranks}:
                members = [*group]
                yield members, model, weights
    wrapped = {n for has in own.within for n in rest if has[n]}
    averaged = [a for each in every for a in each.averaged]
    sent = any(each.sends for each in ranks)
    for group in {tuple(each.ranks) for each in averaged}:
        alike = {n for a in averaged if tuple(a.ranks) == group for n in a.lines}
        part = sent or len(group) < len(ranks)
        yield [*group], None, (alike if part else rest) - wrapped
    if wrapped and not sent and not averaged:
        yield members, None, rest - wrapped


def _first_difference(
    own: Sequence[Optimizer], model: int | None, weights: set[int]
) -> tuple[int, int] | None:
    """Return the first step and weight that differ among ranks, if there are any."""
    for number, steps in enumerate(zip(*(each.steps for each in own), strict=False)):
        if model is not None and len(steps[0].forwards) <= model:
            continue  # before DDP
        for n, values in enumerate(zip(*(s.weights for s in steps), strict=False)):
            if n in weights and None not in values and len({*values}) > 1:
                return number, n
    return None


def _unwrapped(every: tuple[Optimizer, ...], step: int, n: int) -> Why:
    """Return why a weight that no DDP has differs."""
    gradients = {each.steps[step].gradients[n] for each in every}
    lines = (a.lines.get(n, "") for each in every for a in each.averaged)
    if line := next(filter(None, lines), ""):
        if len(gradients) > 1:
            cause = "the script averages its gradient, and not just before this step"
            return cause, "Average between `backward` and `step`.", line
        cause = "the script averages by itself, and they were not equal before"
        return cause, "Send rank 0's weights to all before the first step.", line
    cause = "no DDP has it, and nothing averages its gradient"
    cure = "Wrap the whole model in DDP, or average this gradient too."
    return cause, cure, every[0].line


def _cause(
    own: list[Optimizer], model: Wrapped, at: int, step: int, n: int, meant: bool
) -> Why | None:
    """Return what was not synchronized; None if it may be meant."""
    line, name = own[0].line, own[0].weights[n]
    steps = [each.steps[step] for each in own]
    rates = {tuple(each.rates) for each in steps}
    until = steps[0].forwards[at]
    earlier = own[0].steps[step - 1].forwards[at:] if step else []
    before = earlier[0] if earlier else Forwards()
    forwards, synced = until.ran - before.ran, until.synced - before.synced
    ran = [each.forwards[at].ran for each in steps]
    if len(rates) > 1:
        differ = sorted(float(f"{rate[0]:.3g}") for rate in rates)
        cause = f"the learning rates differ, {' and '.join(map(str, differ))}"
        cure = "Compute the rate from values that all ranks share."
    elif name in model.weights and name not in model.trainable:
        cause = "it was frozen when DDP wrapped the model, and unfrozen later"
        cure, line = "Unfreeze first, then wrap again.", model.line
    elif len({*ran}) > 1:
        counts = " and ".join(map(str, ran))
        cause = f"until then the ranks ran {counts} forwards of DDP"
        cure = "All ranks take a step, or skip it, together."
    elif not forwards:
        cause = "gradients came without a forward of DDP, as through `model.module(x)`"
        cure = "Call the DDP object itself: `model(x)`."
    elif not synced and meant:
        return None  # the script may average by itself, now and then
    elif not (synced and until.last_synced):
        which = "the last" if synced else "every"
        cause = f"{which} forward of this step stood in `no_sync`"
        cure = "Leave `no_sync` for the last micro-batch of a step, forward included."
    elif len({each.gradients[n] for each in steps}) > 1:
        cause = "its gradient was changed after DDP had averaged it, or came past DDP"
        cure = "Change gradients on all ranks alike, and call DDP for each loss."
    else:
        changed = "the weight itself, or the optimizer's state, was not"
        cause = f"gradients were equal; {changed}"
        cure = "Load and change weights and state on all ranks alike."
    return cause, cure, line
