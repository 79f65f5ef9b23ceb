"""Eleven questions to what the witnesses of all ranks have left.

An answer is yes, no, or not seen; nothing is guessed. "No" names the first rank, step
and line that show it, what it usually means, and the cure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

Facts = list[dict[str, Any]]
"""What each rank has left, in the order of ranks."""
YES, NO, NOT_SEEN = "✓", "✗", "?"


@dataclass(frozen=True)
class Answer:
    """What was found on one question."""

    mark: str
    question: str
    evidence: str
    cure: str = ""
    line: str = ""
    """Of the script, as `train.py:12`."""

    def __str__(self) -> str:
        text = f"{self.mark} {self.question} {self.evidence}"
        if self.line:
            text += f" ({self.line})"
        return f"{text}\n    {self.cure}" if self.cure else text


def answers(ranks: Facts) -> list[Answer]:
    """Return an answer to each question."""
    training = [same_weights, samples, orders, splits, counts, gradients]
    beside = [loads, buffers, noise, files, columns]
    return [question(ranks) for question in training + beside]


def numbers(ranks: Facts) -> str:
    """Return the sizes of a step, what the loader cost, and what comes n times."""
    facts = ranks[0]
    told = []
    steps = [each for each in facts["optimizers"] if each["digests"]]
    if steps:
        busiest = max(steps, key=lambda each: len(each["digests"]))
        count, rates = len(busiest["digests"]), [r[0] for r in busiest["rates"]]
        at = busiest["batches"]
        backwards = round((at[-1] - at[0]) / (count - 1)) if count > 1 else at[0]
        first = [tuple(p["batches"][0][0]) for r in ranks for p in _trained(r)[:1]]
        if backwards and first and (n := len(first[0])):
            differ, of = len({*first}), len(ranks)
            batches = "1 batch" if differ == 1 else f"{differ} batches"
            shared = "" if differ == of else f" that share {batches}"
            told.append(
                f"a step: {n} samples × {backwards} backward × {of} ranks{shared}, "
                f"a global batch of {n * backwards * differ}"
            )
        rate = " to ".join(f"{r:.3g}" for r in dict.fromkeys((rates[0], rates[-1])))
        told.append(f"{count} steps of {busiest['kind']}; learning rate {rate}")
    if _trained(facts) and facts["training"]:
        share = max(each["waited"] / (each["training"] or 1) for each in ranks)
        told.append(f"waiting for the loader: {share:.0%} of the time")
    if not told:
        told.append("no step of an optimizer was seen")
    alike = [
        line
        for line, printed in facts["prints"].items()
        if len(ranks) > 1 and all(each["prints"].get(line) == printed for each in ranks)
    ]
    if alike:
        told.append(f"all ranks print the same at {', '.join(alike)}")
    return "; ".join(told) + "."


def alone(ranks: Facts) -> str:
    """Return why nothing is shared by the ranks; "" if something may be."""
    if len(ranks) == 1:
        return ""
    if not any(each["group"] or each["others"] for each in ranks):  # others: RPC
        return "joins no process group"
    steps = [
        step for each in ranks for o in each["optimizers"] for step in o["digests"]
    ]
    shards = any(None in step for step in steps)
    shares = any(e["models"] or e["averaged"] or e["others"] for e in ranks)
    last = {str([o["grads"][-1:] for o in each["optimizers"]]) for each in ranks}
    first = {str([p["batches"][:1] for p in _trained(each)[:1]]) for each in ranks}
    shares = shares or len(last) == 1 < len(first)  # one gradient from many batches
    if steps and not shards and not shares:
        return "joins a process group, and sends no gradient over it"
    return ""


def same_weights(ranks: Facts) -> Answer:
    """Do all ranks hold the same weights after every step?"""
    question = "The ranks hold the same weights after every step:"
    steps, known = 0, {len(each["optimizers"]) for each in ranks}
    for number in range(known.pop() if len(known) == 1 else 0):
        found, seen = _optimizer(ranks, number)
        if found:
            return Answer(NO, "The ranks do not hold the same weights:", *found)
        steps = max(steps, seen)
    if not steps:
        return Answer(NOT_SEEN, question, "no weights that must be equal were stepped.")
    return Answer(YES, question, f"{steps} steps.")


def _optimizer(ranks: Facts, number: int) -> tuple[tuple | None, int]:
    """Return what differs in an optimizer's weights, and how many steps were seen."""
    every = [each["optimizers"][number] for each in ranks]
    if len({tuple(each["weights"]) for each in every}) > 1:
        return None, 0  # a part of the model on each
    groups = [*_groups(ranks, number)]
    for members, model, weights in groups:
        own = [every[r] for r in members]
        if found := _first_difference(own, model, weights):
            step, n = found
            if model is None:
                cause, *rest = _unwrapped(ranks, number, n)
            else:
                made = [ranks[r]["models"][model] for r in members]
                meant = any(each["others"] for each in ranks)  # sent by the script
                cause, *rest = _cause(own, made[0], model, step, n, meant)
                if made[0]["hooked"] or not cause:
                    return None, 0
            name = own[0]["weights"][n]
            return (f"{name} differs after step {step + 1}: {cause}.", *rest), 0
    return None, min(len(each["digests"]) for each in every) if groups else 0


def _groups(
    ranks: Facts, number: int
) -> Iterator[tuple[list[int], int | None, set[int]]]:
    """Yield ranks, the DDP that they share, and the weights that must be equal."""
    own = ranks[0]["optimizers"][number]
    members, rest = [*range(len(ranks))], {*range(len(own["weights"]))}
    for key, has in own["within"].items():
        model, weights = int(key), {n for n in rest if has[n]}
        if weights and all(model < len(each["models"]) for each in ranks):
            for group in {tuple(each["models"][model]["ranks"]) for each in ranks}:
                members = [*group]
                yield members, model, weights
    wrapped = {n for has in own["within"].values() for n in rest if has[n]}
    kinds = {tuple(key.split(" ")) for each in ranks for key in each["averaged"]}
    averaged = {int(n) for optimizer, n in kinds if int(optimizer) == number}
    sent = any(each["others"] for each in ranks)
    if averaged - wrapped or (wrapped and not sent):
        yield members, None, (averaged if sent else rest) - wrapped


def _first_difference(
    own: list[dict], model: int | None, weights: set[int]
) -> tuple[int, int] | None:
    """Return the first step and weight that differ among ranks, if there are any."""
    for step, at in enumerate(zip(*(each["digests"] for each in own), strict=False)):
        if model is not None and len(own[0]["since"][step]) <= model:
            continue  # before DDP
        for n, values in enumerate(zip(*at, strict=False)):
            if n in weights and None not in values and len({*values}) > 1:
                return step, n
    return None


def _unwrapped(ranks: Facts, number: int, n: int) -> tuple[str, str, str]:
    """Return why a weight that no DDP has differs, the cure, and a line."""
    line = next((e["averaged"].get(f"{number} {n}", "") for e in ranks), "")
    if line:
        return (
            "the script averages by itself, and they were not equal before",
            "Send rank 0's weights to all before the first step.",
            line,
        )
    return (
        "no DDP has it, and nothing averages its gradient",
        "Wrap the whole model in DDP, or average this gradient too.",
        ranks[0]["optimizers"][number]["line"],
    )


def _cause(
    own: list[dict], model: dict, at: int, step: int, n: int, meant: bool
) -> tuple[str, str, str]:
    """Return what was not synchronized, the cure, and a line; "" if it may be meant."""
    line, name = own[0]["line"], own[0]["weights"][n]
    rates = {tuple(each["rates"][step]) for each in own}
    counted = [each["since"][step][at] for each in own]
    earlier = own[0]["since"][step - 1][at:] if step else []
    before = earlier[0] if earlier else [0, 0]
    forwards, synced = (x - y for x, y in zip(counted[0], before, strict=True))
    if len(rates) > 1:
        return (
            f"the learning rates differ, {sorted(float(f'{r[0]:.3g}') for r in rates)}",
            "Compute the rate from values that all ranks share.",
            line,
        )
    if name in model["weights"] and name not in model["trained"]:
        return (
            "it was frozen when DDP wrapped the model, and unfrozen later",
            "Unfreeze first, then wrap again.",
            model["line"],
        )
    if len({x for x, _ in counted}) > 1:
        return (
            f"until then the ranks ran {[x for x, _ in counted]} forwards of DDP",
            "All ranks take a step, or skip it, together.",
            line,
        )
    if not forwards:
        return (
            "gradients came without a forward of DDP, as through `model.module(x)`",
            "Call the DDP object itself: `model(x)`.",
            line,
        )
    if not synced and meant:
        return "", "", ""  # the script may average by itself, now and then
    if not synced:
        return (
            "every forward of this step stood in `no_sync`",
            "Leave `no_sync` for the last micro-batch of a step, forward included.",
            line,
        )
    if len({each["grads"][step][n] for each in own}) > 1:
        return (
            "its gradient was changed after DDP had averaged it, or came past DDP",
            "Change gradients on all ranks alike, and call DDP for each loss.",
            line,
        )
    return (
        "gradients were equal; the weight itself, or the optimizer's state, was not",
        "Load and change weights and state on all ranks alike.",
        line,
    )


def samples(ranks: Facts) -> Answer:
    """Does every sample reach one rank only?"""
    question = "Each sample reaches one rank:"
    for found in (_same_batches(ranks), _workers(ranks), _shared(ranks)):
        if found and any(model["cuts"] for each in ranks for model in each["models"]):
            cut = "ranks got the same, and may cut it, as the model itself sends."
            return Answer(NOT_SEEN, question, cut)
        if found:
            return found
    passes = [p for each in ranks for p in _trained(each)]
    if any(batch[0] for p in passes for batch in p["batches"]):
        count = sum(len(batch[0]) for p in passes for batch in p["batches"])
        return Answer(YES, question, f"{count} samples, no rank repeats another's.")
    if any(model["inputs"] for each in ranks for model in each["models"]):
        return Answer(YES, question, "no two ranks trained on the same batch.")
    return Answer(NOT_SEEN, question, "no batches were seen.")


def _passes(loader: dict) -> list[dict]:
    return [each for each in loader["passes"] if each["trained"]]


def _trained(facts: dict) -> list[dict]:
    return [each for loader in facts["loaders"] for each in _passes(loader)]


def _first_loader(facts: dict) -> dict | None:
    """Return the first loader whose batches were trained on."""
    return next((each for each in facts["loaders"] if _passes(each)), None)


def _same_batches(ranks: Facts) -> Answer | None:
    """Tell that ranks of one DDP train on equal batches."""
    for number in range(min(len(each["models"]) for each in ranks)):
        models = [each["models"][number] for each in ranks]
        for a, b in combinations(models[0]["ranks"], 2):
            inputs = [*zip(models[a]["inputs"], models[b]["inputs"], strict=False)]
            equal = [step for step, (x, y) in enumerate(inputs) if x == y is not None]
            alike = len({x for x, _ in inputs}) == 1
            if len(inputs) > 1 and len(equal) > len(inputs) / 2 and not alike:
                loader = _first_loader(ranks[0]) or {}
                return Answer(
                    NO,
                    "Ranks train on the same samples:",
                    f"ranks {a} and {b} got the same batch in {len(equal)} of "
                    f"{len(inputs)} forwards.",
                    _split_cure(ranks[0]),
                    loader.get("line") or models[0]["line"],
                )
    return None


def _split_cure(facts: dict) -> str:
    loader = _first_loader(facts)
    if loader and loader["size"] is None:
        return (
            "Split an IterableDataset by rank, and in each rank by worker: "
            "`itertools.islice(data, n, None, ranks * workers)`."
        )
    return "Give the loader a sampler of its rank: `DistributedSampler(dataset)`."


def _workers(ranks: Facts) -> Answer | None:
    """Tell that each worker of a loader reads all of an IterableDataset."""
    for rank, facts in enumerate(ranks):
        for loader in facts["loaders"]:
            if loader["size"] is not None or loader["workers"] < 2:
                continue
            for each in _passes(loader):
                seen = [batch[1] for batch in each["batches"]]
                again = len(seen) - len({*seen})
                if again >= len(seen) / 2 and len({*seen}) > 1:
                    return Answer(
                        NO,
                        "Workers read the same samples:",
                        f"on rank {rank}, {again} of {len(seen)} batches came again: "
                        f"each of {loader['workers']} workers reads everything.",
                        "Split by worker: `torch.utils.data.get_worker_info()`.",
                        loader["line"],
                    )
    return None


def _shared(ranks: Facts) -> Answer | None:
    """Tell that samples of one pass reach two ranks of a DDP."""
    if not any(each["models"] for each in ranks):
        return None
    members = ranks[0]["models"][0]["ranks"] if ranks[0]["models"] else []
    for number in range(min(len(each["loaders"]) for each in ranks)):
        loaders = [ranks[r]["loaders"][number] for r in members]
        for passes in zip(*(_passes(each) for each in loaders), strict=False):
            taken = [[i for batch in p["batches"] for i in batch[0]] for p in passes]
            alike = len({*map(tuple, taken)}) == 1 < len(taken)
            if not alike and any(len({*each}) < len(each) for each in taken):
                continue  # drawn with replacement
            twice = sum(map(len, taken)) - len(set().union(*taken))
            twice = len(taken[0]) if alike else twice
            if twice < len(members):
                continue  # the sampler's padding
            whole = loaders[0]["draws"] == loaders[0]["size"]
            if whole and not alike and not all(p["whole"] for p in passes):
                return Answer(
                    NOT_SEEN,
                    "Each sample reaches one rank:",
                    f"{twice} reached two, as each rank draws from all "
                    f"{loaders[0]['size']} in an order of its own.",
                    line=loaders[0]["line"],
                )
            return Answer(
                NO,
                "Samples reach more than one rank:",
                f"{twice} of {sum(map(len, taken))} in one pass.",
                _split_cure(ranks[0]),
                loaders[0]["line"],
            )
    return None


def orders(ranks: Facts) -> Answer:
    """Does a sampler that shuffles give another order in each epoch?"""
    question, seen = "Each epoch has another order:", 0
    runs: dict[tuple, list[tuple[dict, list]]] = {}
    for number, loader in enumerate(ranks[0]["loaders"]):
        for each in _passes(loader) if loader["shuffles"] else ():
            drawn = [batch[0] for batch in each["batches"]]
            if len(drawn) > 1 and drawn[0]:  # of one training, as far as DDP tells
                same = (loader["line"], loader["base"]) if each["models"] else (number,)
                runs.setdefault((*same, each["models"]), []).append((loader, drawn))
    for passes in runs.values():
        for (loader, before), (_, after) in pairwise(passes):
            size = min(len(before), len(after))
            if before[:size] == after[:size] != sorted(before[:size]):
                return Answer(
                    NO,
                    "Two epochs have the same order:",
                    f"{size} batches of two passes are alike.",
                    "Call `sampler.set_epoch(epoch)` before each epoch.",
                    loader["line"],
                )
            seen = max(seen, len(passes))
    if seen:
        return Answer(YES, question, f"{seen} passes.")
    return Answer(NOT_SEEN, question, "fewer than two passes over shuffled data.")


def splits(ranks: Facts) -> Answer:
    """Is the data split alike on all ranks?"""
    question = "All ranks split the data alike:"
    for drawn in zip(*(each["splits"] for each in ranks), strict=False):
        if len({number for _, number in drawn}) > 1:
            return Answer(
                NO,
                "Each rank splits the data in another way:",
                "what one rank validates on, another trains on.",
                "`random_split(..., generator=torch.Generator().manual_seed(0))`.",
                drawn[0][0],
            )
    if ranks[0]["splits"]:
        return Answer(YES, question, f"{len(ranks[0]['splits'])} random_split.")
    return Answer(NOT_SEEN, question, "no random_split.")


def counts(ranks: Facts) -> Answer:
    """Do all ranks take as many steps, with as many forwards of DDP?"""
    question = "All ranks take as many steps:"
    steps = [sum(len(o["digests"]) for o in _tied(each)) for each in ranks]
    if not any(steps):
        return Answer(NOT_SEEN, question, "no step.")
    forwards = [sum(model["forwards"] for model in each["models"]) for each in ranks]
    done = [*zip(steps, forwards, strict=True)]
    models = [model for each in ranks for model in each["models"]]
    if any(len({done[r] for r in model["ranks"]}) > 1 for model in models):
        if any(model["join"] for model in models):
            return Answer(NOT_SEEN, question, "they differ, under `Join`.")
        return Answer(
            NO,
            "The ranks take different numbers of steps:",
            f"steps by rank {steps}, forwards of DDP {forwards}.",
            "Give each rank as many batches, or use `Join`.",
        )
    if len({*steps}) > 1:
        return Answer(NOT_SEEN, question, "they differ, and no DDP ties them.")
    backwards = ranks[0]["backwards"]
    return Answer(YES, question, f"{steps[0]}, and {backwards} backward passes.")


def _tied(facts: dict) -> list[dict]:
    """Return the optimizers of a DDP, or all where there is none."""
    every = facts["optimizers"]
    if not facts["models"]:
        return every
    return [each for each in every if any(map(any, each["within"].values()))]


def gradients(ranks: Facts) -> Answer:
    """Does each trainable weight get a gradient, and does the optimizer have it?"""
    question = "Each weight gets a gradient, and is stepped:"
    stepped = [o for o in ranks[0]["optimizers"] if o["digests"]]
    for each in stepped:
        if each["without"] and len({*each["without"]}) == len({*each["weights"]}):
            return Answer(
                NO,
                "An optimizer steps weights that nobody trains:",
                f"none of the {len(each['weights'])} weights of this {each['kind']} "
                "ever got a gradient.",
                "Make the optimizer last, from the model that is trained.",
                each["line"],
            )
    for model in ranks[0]["models"] if stepped else ():
        if model["orphans"]:
            names = ", ".join(model["orphans"][:3])
            return Answer(
                NO,
                "Weights get gradients, and no optimizer steps them:",
                f"{len(model['orphans'])}, such as {names}.",
                "Give the optimizer `model.parameters()` of the model that is trained.",
                model["line"],
            )
    idle = [n for o in stepped for n in _idle(o)]
    if idle:
        found = f"{len(idle)} never got one, such as {idle[0]}."
        return Answer(NOT_SEEN, question, found)
    if not stepped:
        return Answer(NOT_SEEN, question, "no step.")
    return Answer(YES, question, f"{sum(len(o['weights']) for o in stepped)} weights.")


def _idle(optimizer: dict) -> list[str]:
    frozen = dict(zip(optimizer["weights"], optimizer["frozen"], strict=False))
    return [name for name in optimizer["without"] if not frozen.get(name)]


def loads(ranks: Facts) -> Answer:
    """Did each load restore what it should?"""
    question = "What was loaded was restored:"
    for load in ranks[0]["loads"]:
        if "left" in load:
            return Answer(
                NO,
                "A load left the optimizer's state in the checkpoint:",
                f"{len(load['left'])} entries were not asked for, such as "
                f"{load['left'][0]}.",
                "`get_state_dict` before `dcp.load`, `set_state_dict` after it.",
                load["line"],
            )
        if "nothing" in load:
            return Answer(
                NO,
                "A load restored no weight:",
                f"the file has {load['nothing'][0]}, the model "
                f"{load['nothing'][-1]}, and `strict=False` skipped all.",
                "Strip the prefix, and leave `strict` alone.",
                load["line"],
            )
    return Answer(NOT_SEEN, question, "nothing that fell short.")


def buffers(ranks: Facts) -> Answer:
    """Does DDP pair the same buffers and weights on all ranks?"""
    question = "DDP pairs the same weights and buffers:"
    for models in zip(*(each["models"] for each in ranks), strict=False):
        if len({tuple(models[r]["ranks"]) for r in range(len(models))}) > 1:
            continue
        for kind in ("weights", "buffers"):
            by_rank = [tuple(model[kind]) for model in models]
            if len({*by_rank}) > 1 and len({frozenset(each) for each in by_rank}) == 1:
                at = next(n for n, x in enumerate(zip(*by_rank)) if len({*x}) > 1)  # noqa: B905
                return Answer(
                    NO,
                    f"DDP pairs different {kind}, by their places:",
                    f"number {at + 1} is {by_rank[0][at]} on rank 0, and another one "
                    "elsewhere.",
                    "Register them in a fixed order: `sorted(...)`, not a set.",
                    models[0]["line"],
                )
    if any(each["models"] for each in ranks):
        return Answer(YES, question, f"{len(ranks[0]['models'])} DDP.")
    return Answer(NOT_SEEN, question, "no DDP.")


def noise(ranks: Facts) -> Answer:
    """Does dropout differ between ranks?"""
    question = "Dropout differs between ranks:"
    for models in zip(*(each["models"] for each in ranks), strict=False):
        members = models[0]["ranks"]
        states = [*zip(*(models[r]["noise"] for r in members), strict=False)]
        if len(states) > 1 and len(members) > 1:
            if all(len({*each}) == 1 for each in states):
                return Answer(
                    NO,
                    "Dropout drops the same on all ranks:",
                    "their generators are in one state at each forward.",
                    "`torch.manual_seed(seed + rank)` after the model is built.",
                    models[0]["line"],
                )
            return Answer(YES, question, f"{len(states)} forwards.")
    return Answer(NOT_SEEN, question, "no `nn.Dropout` in training.")


def files(ranks: Facts) -> Answer:
    """Does one rank only write to each path?"""
    question = "Each file has one writer:"
    writers: dict[str, list[int]] = {}
    for rank, facts in enumerate(ranks):
        for path in facts["files"]:
            writers.setdefault(path, []).append(rank)
    for path, by in writers.items():
        if len(by) > 1:
            return Answer(
                NO,
                "Several ranks write one file:",
                f"{path}, by ranks {', '.join(map(str, by))}.",
                "Let rank 0 write, or put the rank into the name.",
                ranks[by[0]]["files"][path],
            )
    if writers:
        by_rank = [f"{Path(path).name} by rank {by[0]}" for path, by in writers.items()]
        return Answer(YES, question, f"{', '.join(by_rank)}.")
    return Answer(NOT_SEEN, question, "no file was written.")


def columns(ranks: Facts) -> Answer:
    """Is what was sent laid out as the backend needs it?"""
    question = "Tensors that are sent are contiguous:"
    for facts in ranks:
        if facts["columns"] and "gloo" in (facts["group"] or ""):
            name, line = facts["columns"][0]
            return Answer(
                NO,
                f"A {name} over gloo carries a tensor that is not contiguous:",
                "its neighbors in memory are sent instead.",
                "Send `tensor.contiguous()`, and copy the result back.",
                line,
            )
    if any(each["calls"] for each in ranks):
        return Answer(YES, question, "as far as the script sends by itself.")
    return Answer(NOT_SEEN, question, "the script sends nothing by itself.")
