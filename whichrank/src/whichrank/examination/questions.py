"""Eleven questions to what the witnesses of all ranks have left.

An answer is yes, no, or not seen; nothing is guessed. "No" names the first rank, step
and line that show it, what it usually means, and the cure.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

from whichrank.examination.facts import (
    Batch,
    Digest,
    Forwards,
    Loader,
    Optimizer,
    Pass,
    Witnessed,
    Wrapped,
)

Ranks = list[Witnessed]
"""What each rank has left, in the order of ranks."""
YES, NO, NOT_SEEN = "✓", "✗", "?"


@dataclass(frozen=True)
class Answer:
    """What was found on one question."""

    mark: str
    evidence: str
    """With the question in front, but for a mistake, which speaks for itself."""
    cure: str = ""
    line: str = ""
    """Of the script, as `train.py:12`."""

    def __str__(self) -> str:
        line = f" ({self.line})" if self.line else ""
        cure = f"\n    {self.cure}" if self.cure else ""
        return f"{self.mark} {self.evidence}{line}{cure}"


def no(mistake: str, cure: str, line: str = "") -> Answer:
    """Return the answer that tells a mistake."""
    return Answer(NO, mistake, cure, line)


def yes(evidence: str) -> Answer:
    """Return the answer that all is well."""
    return Answer(YES, evidence)


def unseen(evidence: str, line: str = "") -> Answer:
    """Return the answer that nothing shows whether all is well."""
    return Answer(NOT_SEEN, evidence, line=line)


def answers(ranks: Ranks) -> list[Answer]:
    """Return an answer to each question."""
    asked = {question: ask(ranks) for question, ask in QUESTIONS.items()}
    return [
        a if a.mark == NO else replace(a, evidence=f"{question} {a.evidence}")
        for question, a in asked.items()
    ]


# --- the head of the page ---


def numbers(ranks: Ranks) -> str:
    """Return the sizes of a step, what the loader cost, and what comes n times."""
    facts, sentences = ranks[0], list[str]()
    if stepped := [each for each in facts.optimizers if each.steps]:
        busiest = max(stepped, key=lambda each: len(each.steps))
        count, first, last = len(busiest.steps), busiest.steps[0], busiest.steps[-1]
        batches = last.trained - first.trained if count > 1 else first.trained
        sentences += _batch(ranks, round(batches / max(1, count - 1)))
        rates = dict.fromkeys((first.rates[0], last.rates[0]))
        rate = " to ".join(f"{rate:.3g}" for rate in rates)
        sentences.append(f"{count} steps of {busiest.kind}; learning rate {rate}")
    if _trained(facts) and facts.training:
        share = max(each.waited / (each.training or 1) for each in ranks)
        sentences.append(f"waiting for the loader: {share:.0%} of the time")
    sentences = sentences or ["no step of an optimizer was seen"]
    prints = [each.prints for each in ranks]
    alike = [line for line in prints[0] if len({p.get(line) for p in prints}) == 1]
    if alike and len(ranks) > 1:
        sentences.append(f"all ranks print the same at {', '.join(alike)}")
    return "; ".join(sentences) + "."


def _batch(ranks: Ranks, backwards: int) -> list[str]:
    """Return the samples of a step, if they were seen."""
    taken = [p.batches[0] for each in ranks for p in _trained(each)[:1]]
    first = [tuple(batch.drawn) for batch in taken]
    if not (backwards and first and first[0]):
        return []
    of, alike = len(ranks), _same_data([_held([batch]) for batch in taken])
    n, differ = len(first[0]), len({*first}) if alike else of
    batches = "1 batch" if differ == 1 else f"{differ} batches"
    shared = "" if differ == of else f" that share {batches}"
    step = f"a step: {n} samples × {backwards} backward × {of} ranks{shared}"
    return [f"{step}, a global batch of {n * backwards * differ}"]


def alone(ranks: Ranks) -> str:
    """Return why nothing is shared by the ranks; "" if something may be."""
    if len(ranks) == 1:
        return ""
    if not any(each.backend or each.sends for each in ranks):  # RPC sends
        return "joins no process group"
    steps = [step for each in ranks for o in each.optimizers for step in o.steps]
    shards = any(None in step.weights for step in steps)
    shares = any(each.models or each.sends or _averages(each) for each in ranks)
    last = {str([_last_gradients(o) for o in each.optimizers]) for each in ranks}
    first = {str([p.batches[:1] for p in _trained(each)[:1]]) for each in ranks}
    shares = shares or len(last) == 1 < len(first)  # one gradient from many batches
    if steps and not shards and not shares:
        return "joins a process group, and sends no gradient over it"
    return ""


def _averages(facts: Witnessed) -> bool:
    """Return whether a rank has averaged gradients by itself."""
    return any(each.averaged for each in facts.optimizers)


def _last_gradients(optimizer: Optimizer) -> list[Digest]:
    """Return the gradients of the last step; nothing before the first."""
    return optimizer.steps[-1].gradients if optimizer.steps else []


# --- weights ---


def same_weights(ranks: Ranks) -> Answer:
    """Do all ranks hold the same weights after every step?"""
    steps, known = 0, {len(each.optimizers) for each in ranks}
    for number in range(known.pop() if len(known) == 1 else 0):
        every = [each.optimizers[number] for each in ranks]
        if len({tuple(each.weights) for each in every}) > 1:
            continue  # a part of the model on each
        mistake, compared = _drift(ranks, number)
        if mistake:
            return mistake
        steps = max(steps, compared)
    return yes(f"{steps} steps.") if steps else _as_it_is(ranks)


def _as_it_is(ranks: Ranks) -> Answer:
    """Say whether weights are equal that nothing shows must be."""
    steps = 0
    for every in zip(*(each.optimizers for each in ranks), strict=False):
        if len({tuple(each.weights) for each in every}) == 1:
            names = every[0].weights
            if place := _first_difference([*every], None, {*range(len(names))}):
                after = f"{names[place[1]]} differs after step {place[0] + 1}"
                return unseen(f"{after}, and nothing tells whether it may.")
            compared = zip(*(each.steps for each in every), strict=False)
            steps = max(steps, sum(None not in own.weights for own, *_ in compared))
    none = "no weights were stepped that several ranks hold."
    return yes(f"{steps} steps.") if steps else unseen(none)


def _drift(ranks: Ranks, number: int) -> tuple[Answer | None, int]:
    """Return what differs in an optimizer's weights, or how many steps were equal."""
    every = [each.optimizers[number] for each in ranks]
    groups = [*_groups(ranks, number)]
    for members, model, weights in groups:
        own = [every[r] for r in members]
        if not (place := _first_difference(own, model, weights)):
            continue
        step, n = place
        why: Why | None = None
        if model is None:
            why = _unwrapped(ranks, number, step, n)
        elif not (made := ranks[members[0]].models[model]).hooked:
            meant = any(each.sends for each in ranks)  # sent by the script
            why = _cause(own, made, model, step, n, meant)
        if why is None:
            return None, 0
        cause, cure, line = why
        differs = f"{own[0].weights[n]} differs after step {step + 1}: {cause}."
        head = "The ranks do not hold the same weights:"
        return no(f"{head} {differs}", cure, line), 0
    return None, min(len(each.steps) for each in every) if groups else 0


def _groups(
    ranks: Ranks, number: int
) -> Iterator[tuple[list[int], int | None, set[int]]]:
    """Yield ranks, the DDP that they share, and the weights that must be equal."""
    own = ranks[0].optimizers[number]
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
    averaged = {n for each in ranks for n in each.optimizers[number].averaged}
    sent = any(each.sends for each in ranks)
    if averaged - wrapped or (wrapped and not sent):
        yield members, None, (averaged if sent else rest) - wrapped


def _first_difference(
    own: list[Optimizer], model: int | None, weights: set[int]
) -> tuple[int, int] | None:
    """Return the first step and weight that differ among ranks, if there are any."""
    for number, steps in enumerate(zip(*(each.steps for each in own), strict=False)):
        if model is not None and len(steps[0].forwards) <= model:
            continue  # before DDP
        for n, values in enumerate(zip(*(s.weights for s in steps), strict=False)):
            if n in weights and None not in values and len({*values}) > 1:
                return number, n
    return None


Why = tuple[str, str, str]
"""What has made weights differ, the cure, and a line."""


def _unwrapped(ranks: Ranks, number: int, step: int, n: int) -> Why:
    """Return why a weight that no DDP has differs."""
    every = [each.optimizers[number] for each in ranks]
    gradients = {each.steps[step].gradients[n] for each in every}
    if line := next((each.averaged.get(n, "") for each in every), ""):
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
        cause = f"the learning rates differ, {differ}"
        cure = "Compute the rate from values that all ranks share."
    elif name in model.weights and name not in model.trainable:
        cause = "it was frozen when DDP wrapped the model, and unfrozen later"
        cure, line = "Unfreeze first, then wrap again.", model.line
    elif len({*ran}) > 1:
        cause = f"until then the ranks ran {ran} forwards of DDP"
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


# --- samples ---


def samples(ranks: Ranks) -> Answer:
    """Does every sample reach one rank only?"""
    for find in (_same_batches, _workers, _shared):
        answer = find(ranks)
        if answer and any(model.sends for each in ranks for model in each.models):
            return unseen(
                "ranks got the same, and may cut it, as the model itself sends."
            )
        if answer:
            return answer
    passes = [p for each in ranks for p in _trained(each)]
    if count := sum(len(p.drawn) for p in passes):
        return yes(f"{count} samples, no rank repeats another's.")
    if any(model.inputs for each in ranks for model in each.models):
        return yes("no two ranks trained on the same batch.")
    return unseen("no batches were seen.")


def _passes(loader: Loader) -> list[Pass]:
    """Return the passes over a loader whose batches were trained on."""
    return [each for each in loader.passes if each.trained]


def _trained(facts: Witnessed) -> list[Pass]:
    """Return such passes over all loaders of a rank."""
    return [each for loader in facts.loaders for each in _passes(loader)]


def _first_loader(facts: Witnessed) -> Loader | None:
    """Return the first loader whose batches were trained on, or None."""
    return next((each for each in facts.loaders if _passes(each)), None)


def _same_batches(ranks: Ranks) -> Answer | None:
    """Tell that ranks of one DDP train on equal batches."""
    for models in zip(*(each.models for each in ranks), strict=False):
        for a, b in combinations(models[0].ranks, 2):
            inputs = [*zip(models[a].inputs, models[b].inputs, strict=False)]
            equal = sum(x == y != () for x, y in inputs)
            alike = len({x for x, _ in inputs}) == 1
            if len(inputs) > 1 and equal > len(inputs) / 2 and not alike:
                loader = _first_loader(ranks[0])
                got = f"ranks {a} and {b} got the same batch in {equal} of"
                return no(
                    f"Ranks train on the same samples: {got} {len(inputs)} forwards.",
                    _split_cure(ranks[0]),
                    (loader.line if loader else "") or models[0].line,
                )
    return None


def _split_cure(facts: Witnessed) -> str:
    """Return how each rank gets samples of its own."""
    loader = _first_loader(facts)
    if loader and loader.size is None:
        by_both = "by rank, and in each rank by worker"
        cure = "`itertools.islice(data, n, None, ranks * workers)`"
        return f"Split an IterableDataset {by_both}: {cure}."
    return "Give the loader a sampler of its rank: `DistributedSampler(dataset)`."


def _workers(ranks: Ranks) -> Answer | None:
    """Tell that each worker of a loader reads all of an IterableDataset."""
    for rank, facts in enumerate(ranks):
        streams = [each for each in facts.loaders if each.size is None]
        for loader, each in (
            (stream, p) for stream in streams for p in _passes(stream)
        ):
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


def _shared(ranks: Ranks) -> Answer | None:
    """Tell that samples of one pass reach two ranks of a DDP."""
    members = ranks[0].models[0].ranks if ranks[0].models else []
    for number in range(min(len(each.loaders) for each in ranks)):
        loaders = [ranks[r].loaders[number] for r in members]
        for passes in zip(*(_passes(each) for each in loaders), strict=False):
            taken = [p.drawn for p in passes]
            alike = len({*map(tuple, taken)}) == 1 < len(taken)
            if not alike and any(len({*each}) < len(each) for each in taken):
                continue  # drawn with replacement
            count, twice = sum(map(len, taken)), _in_several(taken)
            if twice < len(members):
                continue  # the sampler's padding
            line, size = loaders[0].line, loaders[0].size
            whole = loaders[0].draws == size
            held = [_held(p.batches) for p in passes]
            if not (same := _same_data(held)):
                twice = _in_several([[*map(str, each.values())] for each in held])
                if twice < len(members):
                    return unseen("by the same index, ranks get other data.", line)
            if whole and not alike and not all(p.whole for p in passes):
                draws = f"as each rank draws from all {size} in an order of its own"
                return unseen(f"{twice} reached two, {draws}.", line)
            mistake = (
                f"Samples reach more than one rank: {twice} of {count} in one pass."
            )
            cure = "Shuffle and split the data with one seed on all ranks."
            return no(mistake, _split_cure(ranks[0]) if same and whole else cure, line)
    return None


def _in_several(groups: list[list]) -> int:
    """Return how many things are in more than one of `groups`."""
    counts = Counter(each for group in groups for each in {*group})
    return sum(count > 1 for count in counts.values())


def _held(batches: list[Batch]) -> dict[int, list[int]]:
    """Return what each sample holds, by its index: a digest of each of its tensors."""
    pairs = (zip(batch.drawn, batch.samples, strict=True) for batch in batches)
    return {i: each for batch in pairs for i, each in batch}


def _same_data(held: list[dict[int, list[int]]]) -> bool:
    """Return whether equal indices mean equal samples on all ranks.

    One tensor that tells samples apart, such as the label, is enough: another one may
    be changed at random.
    """
    for a, b in combinations(held, 2):
        both = [i for i in a if i in b]
        theirs = [[*zip(*(each[i] for i in both), strict=False)] for each in (a, b)]
        alike = [x == y and len({*x}) > 1 for x, y in zip(*theirs, strict=False)]
        if alike and not any(alike):
            return False
    return True


def orders(ranks: Ranks) -> Answer:
    """Does a sampler that shuffles give another order in each epoch?"""
    seen, runs = 0, dict[tuple, list[tuple[str, list[list[int]]]]]()
    for number, loader in enumerate(ranks[0].loaders):
        for each in _passes(loader) if loader.shuffles else ():
            drawn = [batch.drawn for batch in each.batches]
            if len(drawn) > 1 and drawn[0]:  # of one training, as far as DDP tells
                same = (loader.line, loader.base) if each.models else (number,)
                of_one = runs.setdefault((*same, each.models), [])
                of_one.append((loader.line, drawn))
    for passes in runs.values():
        for (line, before), (_, after) in pairwise(passes):
            size = min(len(before), len(after))
            if before[:size] == after[:size] != sorted(before[:size]):
                alike = f"{size} batches of two passes are alike."
                cure = "Call `sampler.set_epoch(epoch)` before each epoch."
                return no(f"Two epochs have the same order: {alike}", cure, line)
            seen = max(seen, len(passes))
    if seen:
        return yes(f"{seen} passes.")
    return unseen("fewer than two passes over shuffled data.")


def splits(ranks: Ranks) -> Answer:
    """Is the data split alike on all ranks?"""
    for drawn in zip(*(each.splits for each in ranks), strict=False):
        if len({split.digest for split in drawn}) > 1:
            trains = "what one rank validates on, another trains on."
            cure = "`random_split(..., generator=torch.Generator().manual_seed(0))`."
            mistake = f"Each rank splits the data in another way: {trains}"
            return no(mistake, cure, drawn[0].line)
    if ranks[0].splits:
        return yes(f"{len(ranks[0].splits)} random_split.")
    return unseen("no random_split.")


# --- steps, gradients, state ---


def counts(ranks: Ranks) -> Answer:
    """Do all ranks take as many steps, with as many forwards of DDP?"""
    steps = [sum(len(o.steps) for o in _tied(each)) for each in ranks]
    if not any(steps):
        return unseen("no step.")
    forwards = [sum(model.forwards.ran for model in each.models) for each in ranks]
    done = [*zip(steps, forwards, strict=True)]
    models = [model for each in ranks for model in each.models]
    if any(len({done[r] for r in model.ranks}) > 1 for model in models):
        if any(model.joins for model in models):
            return unseen("they differ, under `Join`.")
        if any(each.failed and done[r] == min(done) for r, each in enumerate(ranks)):
            return unseen("they differ where the script has failed.")
        by_rank = f"steps by rank {steps}, forwards of DDP {forwards}."
        cure = "Give each rank as many batches, or use `Join`."
        return no(f"The ranks take different numbers of steps: {by_rank}", cure)
    if len({*steps}) > 1:
        return unseen("they differ, and no DDP ties them.")
    return yes(f"{steps[0]}, and {ranks[0].backwards} backward passes.")


def _tied(facts: Witnessed) -> list[Optimizer]:
    """Return the optimizers of a DDP, or all where there is none."""
    if not facts.models:
        return facts.optimizers
    return [each for each in facts.optimizers if any(map(any, each.within))]


def gradients(ranks: Ranks) -> Answer:
    """Does each trainable weight get a gradient, and does the optimizer have it?"""
    stepped = [each for each in ranks[0].optimizers if each.steps]
    for each in stepped:
        if each.idle and len({*each.idle}) == len({*each.weights}):
            never = f"none of the {len(each.weights)} weights of this {each.kind}"
            head = "An optimizer steps weights that nobody trains:"
            cure = "Make the optimizer last, from the model that is trained."
            return no(f"{head} {never} ever got a gradient.", cure, each.line)
    for model in ranks[0].models if stepped else ():
        if orphans := model.orphans:
            such = f"{len(orphans)}, such as {', '.join(orphans[:3])}."
            return no(
                f"Weights get gradients, and no optimizer steps them: {such}",
                "Give the optimizer `model.parameters()` of the model that is trained.",
                model.line,
            )
    if line := ranks[0].gathered:
        return unseen("a call takes values that have one, and gives none back", line)
    if idle := [name for each in stepped for name in _idle(each)]:
        return unseen(f"{len(idle)} never got one, such as {idle[0]}.")
    if not stepped:
        return unseen("no step.")
    return yes(f"{sum(len(each.weights) for each in stepped)} weights.")


def _idle(optimizer: Optimizer) -> list[str]:
    """Return the weights that never had a gradient, and are not frozen."""
    frozen = dict(zip(optimizer.weights, optimizer.frozen, strict=False))
    return [name for name in optimizer.idle if not frozen.get(name)]


def loads(ranks: Ranks) -> Answer:
    """Did each load restore what it should?"""
    for load in ranks[0].loads:
        if left := load.left:
            head = "A load left the optimizer's state in the checkpoint:"
            asked = f"{len(left)} entries were not asked for, such as {left[0]}."
            cure = "`get_state_dict` before `dcp.load`, `set_state_dict` after it."
            return no(f"{head} {asked}", cure, load.line)
        names = f"the file has {load.theirs}, the model {load.own}"
        has = f"{names}, and `strict=False` skipped all."
        cure = "Strip the prefix, and leave `strict` alone."
        return no(f"A load restored no weight: {has}", cure, load.line)
    return unseen("no load left anything out.")


# --- what DDP pairs, and what ranks do beside it ---


def buffers(ranks: Ranks) -> Answer:
    """Does DDP pair the same buffers and weights on all ranks?"""
    for models in zip(*(each.models for each in ranks), strict=False):
        if len({tuple(model.ranks) for model in models}) > 1:
            continue
        for kind, names in (
            ("weights", [model.weights for model in models]),
            ("buffers", [model.buffers for model in models]),
        ):
            if len({*map(frozenset, names)}) > 1:
                continue  # not the same model
            places = enumerate(zip(*names, strict=True), 1)
            for at in (at for at, here in places if len({*here}) > 1):
                first = f"number {at} is {names[0][at - 1]} on rank 0"
                return no(
                    f"DDP pairs different {kind}, by their places: {first}, and "
                    "another one elsewhere.",
                    "Register them in a fixed order: `sorted(...)`, not a set.",
                    models[0].line,
                )
    if any(each.models for each in ranks):
        return yes(f"{len(ranks[0].models)} DDP.")
    return unseen("no DDP.")


def noise(ranks: Ranks) -> Answer:
    """Does dropout differ between ranks?"""
    for models in zip(*(each.models for each in ranks), strict=False):
        members = [models[r] for r in models[0].ranks]
        states = [*zip(*(model.noise for model in members), strict=False)]
        drops = all(model.drops for model in members)
        if not drops or len(states) < 2 or len(members) < 2:
            continue
        if all(len({*each}) == 1 for each in states):
            alike = "their generators are in one state at each forward."
            cure = "`torch.manual_seed(seed + rank)` after the model is built."
            mistake = f"Dropout drops the same on all ranks: {alike}"
            return no(mistake, cure, models[0].line)
        return yes(f"{len(states)} forwards.")
    return unseen("no dropout in training.")


def files(ranks: Ranks) -> Answer:
    """Does one rank only write to each path?"""
    writers: dict[str, list[int]] = {}
    for rank, facts in enumerate(ranks):
        for path in facts.files:
            writers.setdefault(path, []).append(rank)
    for path, by in writers.items():
        if len(by) > 1:
            who = f"{path}, by ranks {', '.join(map(str, by))}."
            cure = "Let rank 0 write, or put the rank into the name."
            line = ranks[by[0]].files[path]
            return no(f"Several ranks write one file: {who}", cure, line)
    if writers:
        by_rank = [f"{Path(path).name} by rank {by[0]}" for path, by in writers.items()]
        return yes(f"{', '.join(by_rank)}.")
    return unseen("no file was written.")


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
    if any(each.calls for each in ranks):
        return yes("as far as the script sends by itself.")
    return unseen("the script sends nothing by itself.")


QUESTIONS = {
    "The ranks hold the same weights after every step:": same_weights,
    "Each sample reaches one rank:": samples,
    "Each epoch has another order:": orders,
    "All ranks split the data alike:": splits,
    "All ranks take as many steps:": counts,
    "Each weight gets a gradient, and is stepped:": gradients,
    "What was loaded was restored:": loads,
    "DDP pairs the same weights and buffers:": buffers,
    "Dropout differs between ranks:": noise,
    "Each file has one writer:": files,
    "Tensors that are sent are contiguous:": columns,
}
