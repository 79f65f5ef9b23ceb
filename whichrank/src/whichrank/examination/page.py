"""The page of an examination: the sizes of a step, then what was asked and found."""

import json
from dataclasses import asdict, dataclass

from whichrank.examination.facts import Digest, Optimizer
from whichrank.examination.questions import QUESTIONS, answers
from whichrank.examination.questions.answer import (
    NO,
    NOT_SEEN,
    YES,
    Answer,
    Ranks,
    counted,
)
from whichrank.examination.questions.overlap import same_data
from whichrank.examination.questions.seen import (
    all_trained_passes,
    first_loader,
    trained_passes,
)


@dataclass(frozen=True)
class Page:
    """What is told of a script."""

    script: str
    ranks: int
    numbers: str
    """The sizes of a step, and what else is worth a look."""
    found: list[Answer]
    """First what is wrong, then what is well, then what nothing tells."""
    missing: str
    """What this run did not show; "" if it has shown all."""

    @property
    def well(self) -> bool:
        """Whether something was compared, and nothing is wrong."""
        marks = {each.mark for each in self.found}
        return YES in marks and NO not in marks

    def __str__(self) -> str:
        head = [f"examined: {self.script} on {self.ranks} ranks", self.numbers]
        told = [str(each) for each in self.found]
        told += [f"{NOT_SEEN} {self.missing}"] * bool(self.missing)
        return "\n".join([*head, "", *told] if told else head)

    def as_json(self) -> str:
        """Return all of it, with whether it is `well`."""
        return json.dumps(asdict(self) | {"well": self.well}, ensure_ascii=False)


def page(script: str, ranks: Ranks) -> Page:
    """Ask all questions of what the ranks have left."""
    asked = answers(ranks)
    if why := alone(ranks):
        asked = [_alone(why, len(ranks))]
    told = [each for each in asked if each.evidence]
    found = [each for mark in (NO, YES, NOT_SEEN) for each in told if each.mark == mark]
    numbers_ = numbers(ranks)
    return Page(script, len(ranks), numbers_, found, _missing(ranks, asked))


def _alone(why: str, n: int) -> Answer:
    return Answer(
        NO,
        f"This script {why}: {n} trainings ran side by side, and shared nothing.",
        "To share, it needs `init_process_group`, `DistributedDataParallel` and a\n"
        "    `DistributedSampler`.",
    )


def _missing(ranks: Ranks, asked: list[Answer]) -> str:
    """Return what has to be seen for the questions that have no answer."""
    nothing = {each.question for each in asked if not each.evidence}
    needs = dict.fromkeys(n for words, (_, n) in QUESTIONS.items() if words in nothing)
    steps = max(len(o.steps) for o in ranks[0].optimizers) if ranks[0].optimizers else 0
    if not needs or not steps and any(each.failed for each in ranks):
        return ""
    passes = len(all_trained_passes(ranks[0]))
    seen = f" in {counted(steps, 'step')}" if steps else ""
    if steps and passes:
        seen += " of one pass" if passes == 1 else f" of {passes} passes"
    more = " `--steps N` sees more." if any(each.left for each in ranks) else ""
    return f"not seen{seen}: {', '.join(needs)}.{more}"


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
    if all_trained_passes(facts) and facts.training:
        share = max(each.waited / (each.training or 1) for each in ranks)
        sentences.append(f"waiting for the loader: {share:.0%} of the time")
    sentences = sentences or ["no step of an optimizer was seen"]
    if failed := [rank for rank, each in enumerate(ranks) if each.failed]:
        until = f"the script failed on rank {failed[0]}, and was seen until then"
        sentences.append(until)
    prints = [each.prints for each in ranks]
    alike = [line for line in prints[0] if len({p.get(line) for p in prints}) == 1]
    if alike and len(ranks) > 1:
        sentences.append(f"all ranks print the same at {', '.join(alike)}")
    return "; ".join(sentences) + "."


def _batch(ranks: Ranks, backwards: int) -> list[str]:
    """Return the samples of a step, if they were seen."""
    known = [each for each in map(first_loader, ranks) if each]
    first = [trained_passes(each)[0].batches[0] for each in known]
    together = sum(each.trained for each in all_trained_passes(ranks[0]))
    if not backwards or len(known) < len(ranks) or together > ranks[0].trained:
        return []  # or several loaders give a part of it each
    of, n = len(ranks), len(first[0].samples)
    by_index = same_data(known) and all(batch.drawn for batch in first)
    held = [batch.drawn if by_index else batch.samples for batch in first]
    step = f"a step: {n} samples × {backwards} backward × {of} ranks"
    if not n or not all(map(all, held)) and not by_index:
        return [step] * (n > 0)
    differ = len({str(each) for each in held})
    batches = "1 batch" if differ == 1 else f"{differ} batches"
    shared = "" if differ == of else f" that share {batches}"
    return [f"{step}{shared}, a global batch of {n * backwards * differ}"]


def alone(ranks: Ranks) -> str:
    """Return why nothing is shared by the ranks; "" if something may be."""
    every = [step for each in ranks for o in each.optimizers for step in o.steps]
    steps = [step for step in every if any(g is not None for g in step.gradients)]
    if len(ranks) == 1 or not steps or any(each.failed for each in ranks):
        return ""
    if not any(each.backend or each.sends for each in ranks):  # RPC sends
        return "joins no process group"
    shards = any(None in step.weights for step in steps)
    ties = any(each.ties or each.sends or each.past > 0 for each in ranks)
    averages = any(o.averaged for each in ranks for o in each.optimizers)
    last = {str([_last_gradients(o) for o in each.optimizers]) for each in ranks}
    first = {str([p.batches[:1] for p in all_trained_passes(e)[:1]]) for e in ranks}
    alike = len(last) == 1 < len(first)  # one gradient from many batches
    if shards or ties or averages or alike:
        return ""
    return "joins a process group, and sends no gradient over it"


def _last_gradients(optimizer: Optimizer) -> list[Digest]:
    """Return the gradients of the last step; nothing before the first."""
    return optimizer.steps[-1].gradients if optimizer.steps else []
