"""Assignment 4, Split: a pipeline over ranks with micro-batches.

The end of every stage is the judge's: it multiplies what has come by a number that is
drawn here, and nobody knows before the judge has been asked. So who was asked when, and
for what, is the schedule.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from classroom.assignments.beside.averaging import Factor, fill, flat, gradients
from classroom.assignments.split.harness import network
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail

PROGRAMS = {"program": "split.py"}
WORDS = {
    "stages": "stages of {} layers",
    "widths": "widths {}",
    "rows": "micro-batches of {} samples",
    "questions": "[layers, ranks] {}",
    "steps": "{} steps",
    "batches": "{} batches each",
    "micro": "{} micro-batches",
}
RATE = 0.1
TAKES = {"F": 1, "B": 2}  # what a step costs
IDLE_SLACK = 0.02  # of the time
TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        stages: by rank, how many layers it holds.
        widths: of the input and of each layer's output.
        rows: how many samples each micro-batch has.
        plan: by step, the numbers of the batches whose gradients add up for it.
        schedule: whether it is judged in which order the micro-batches come.
    """

    def __init__(
        self,
        rig: Rig,
        *,
        stages: list[int],
        widths: list[int],
        rows: list[int],
        plan: Sequence[list[int]] = ([0],),
        seed: int = 0,
        schedule: bool = False,
    ):
        draw = rig.draw(seed)
        self.rig, self.ranks, self.plan = rig, len(stages), plan
        self.widths, self.rows = widths, rows
        self.bounds = [0, *accumulate(stages)]
        self.whole = network(widths)
        size = sum(p.numel() for p in self.whole.parameters())
        self.params = draw.normal(scale=0.5, size=size).astype(np.float32)
        fill(self.whole.parameters(), self.params)
        shape = 1 + max(number for batches in plan for number in batches), sum(rows)
        self.x = draw.normal(size=(*shape, widths[0])).astype(np.float32)
        self.target = draw.normal(size=(*shape, widths[-1])).astype(np.float32)

        # By rank, batch and micro-batch: what the judge's piece does ahead and back.
        # Where no schedule is asked for, micro-batches may come in any order.
        count = sum(map(len, plan))
        self.factors = draw.uniform(0.5, 1.5, (self.ranks, count, len(rows), 2))
        if not schedule:
            self.factors[:] = self.factors[:, :, :1]

    def stage(self, rank: int) -> torch.nn.Sequential:
        """This rank's layers of the whole network."""
        return self.whole[self.bounds[rank] : self.bounds[rank + 1]]

    def reply(self, rank: int, asked: dict) -> float:
        """Do the judge's piece of a step."""
        number, back = asked["number"] % len(self.rows), asked["step"] == "B"
        return self.factors[rank, asked["batch"], number, int(back)]

    def run(self) -> Outcome:
        """Let the student's program do it; decide the case if it does not."""
        given = []
        for rank, (first, end) in enumerate(pairwise(self.bounds)):
            values: dict = {"task": "train", "rate": RATE, "plan": self.plan}
            values |= {"width": self.widths[first], "rows": self.rows}
            values |= {"widths": self.widths[first : end + 1]}
            values |= {"params": flat(self.stage(rank).parameters()).astype(np.float32)}
            given.append(values)
        given[0]["x"], given[-1]["target"] = self.x, self.target
        outcome = self.rig.run(self.ranks, given, reply=self.reply)
        outcome.must_give("grads", "params")
        for rank, events in enumerate(outcome.events):
            if not {"F", "B"} <= {event.get("step") for event in events}:
                told = "does not take a batch through its stage and back"
                raise Decided(fail(f"rank {rank} {told}"))
        return outcome

    def loss(self, batch: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One process's outputs and loss of batch `number`, which comes as `batch`."""
        total, loss = sum(self.rows), torch.zeros(())
        outputs: list[torch.Tensor] = []
        xs = torch.from_numpy(self.x[number]).split(self.rows)
        targets = torch.from_numpy(self.target[number]).split(self.rows)
        for i, (x, target) in enumerate(zip(xs, targets, strict=True)):
            for rank in range(self.ranks):
                ahead, back = self.factors[rank, batch, i]
                numbers = (lambda _, number=number: number for number in (ahead, back))
                x = Factor.apply(self.stage(rank)(x), *numbers)
            loss = loss + len(x) / total * F.mse_loss(x, target)
            outputs.append(x)
        return torch.cat(outputs), loss

    def truth(self) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """One process: all outputs, and by rank the gradients and weights by step."""
        fill(self.whole.parameters(), self.params)
        optimizer = torch.optim.SGD(self.whole.parameters(), lr=RATE)
        ranks = range(self.ranks)
        outputs: list[np.ndarray] = []
        grads: list[list] = [[] for _ in ranks]
        params: list[list] = [[] for _ in ranks]
        for batches in self.plan:
            optimizer.zero_grad()
            for number in batches:
                out, loss = self.loss(len(outputs), number)
                loss.backward()
                outputs.append(flat([out]))
            for rank in ranks:
                grads[rank].append(gradients(self.stage(rank)))
            optimizer.step()
            for rank in ranks:
                params[rank].append(flat(self.stage(rank).parameters()))
        return np.array(outputs), [*map(np.array, grads)], [*map(np.array, params)]

    def diaries(self) -> list[list[dict]]:
        """By rank what it asked for, in order, each forward once: who saves memory asks
        again before the backward.

        Every micro-batch has to come once, and through all stages: the gradients are
        right but for a factor, which is another criterion's.
        """
        outcome, truth, found = self.run(), self.truth()[1], []
        for rank, events in enumerate(outcome.events):
            asked = [event for event in events if event.get("what") == "ask"]
            begun = {e["number"]: e for e in reversed(asked) if e["step"] == "F"}
            diary = [e for e in asked if e["step"] != "F" or e is begun[e["number"]]]
            steps = sorted((event["step"], event["number"]) for event in diary)
            if steps != [(step, i) for step in "BF" for i in range(len(self.rows))]:
                whole = f"{len(self.rows)} micro-batches once forward, once back"
                words = f"rank {rank} expected each of {whole}, got {told(diary)}"
                raise Decided(fail(words))
            got = outcome.outputs[rank]["grads"]
            if wrong := compare(rank, unit(truth[rank]), unit(got), **TOLERANCE):
                raise Decided(fail(f"gradients, divided by their norm: {wrong}"))
            found.append(diary)
        return found


def unit(numbers: np.ndarray) -> np.ndarray:
    """Divide them by their norm."""
    return numbers / (np.linalg.norm(numbers) or 1.0)


def told(diary: list[dict]) -> str:
    """A stage's schedule, as in `F0 F1 B0 B1`."""
    return " ".join(f"{event['step']}{event['number']}" for event in diary) or "nothing"


# --- criteria ---


def cut(rig: Rig, *, questions: list[list[int]]) -> Verdict:
    """Layers are dealt out in a row; two ranks' shares differ by one at most."""
    outcome = rig.run(2, {"task": "cut", "questions": questions})
    outcome.must_give("bounds")
    bounds = outcome.outputs[0]["bounds"]
    for (layers, ranks), got in zip(questions, bounds, strict=True):
        each, more = divmod(layers, ranks)
        sizes = [each + 1] * more + [each] * (ranks - more)
        expected = [0, *accumulate(sizes)]
        if got != expected:
            return fail(f"cut({layers}, {ranks}): expected {expected}, got {got}")
    return PASS


def outputs(rig: Rig, **given: Any) -> Verdict:
    """The last rank returns what the unsplit network makes of the batch."""
    case = Case(rig, **given)
    outcome = case.run()
    expected, last = case.truth()[0], case.ranks - 1
    got = outcome.outputs[last].get("outputs", "nothing")
    words = compare(last, expected, got, **TOLERANCE)
    return fail(words) if words else PASS


def grads(rig: Rig, **given: Any) -> Verdict:
    """Every rank ends with the unsplit network's gradients, for any micro-batches."""
    case = Case(rig, **given)
    outcome = case.run()
    return compare_all(case.truth()[1], outcome, "grads", **TOLERANCE)


def steps(rig: Rig, *, steps: int, batches: int = 1, **given: Any) -> Verdict:
    """The weights are those of the unsplit network after every step of a training, and
    no step leaves more in memory than the first: one number a sample, such as losses.
    """
    numbers = iter(range(steps * batches))
    plan = [[next(numbers) for _ in range(batches)] for _ in range(steps)]
    case = Case(rig, plan=plan, **given)
    outcome = case.run()
    expected = case.truth()[2]
    for step in range(steps):
        for rank, given in enumerate(outcome.outputs):
            truth, got = expected[rank][step], given["params"][step]
            if words := compare(rank, truth, got, **TOLERANCE):
                return fail(f"weights after step {step}: {words}")
    for rank, given in enumerate(outcome.outputs):
        first, *_, last = given["held"]
        if last - first > 4 * case.x[1:, :, 0].size:
            told = f"{last:,} bytes after step {steps - 1}, {first:,} after the first"
            return fail(f"rank {rank} holds tensors of {told}")
    return PASS


def memory(rig: Rig, **given: Any) -> Verdict:
    """Rank r of p never has more than p - r micro-batches under way, however many come,
    and all but the last one more than one: they go on while the first is further on.
    """
    case = Case(rig, schedule=True, **given)
    diaries = case.diaries()
    for rank, diary in enumerate(diaries):
        alive, limit = under_way(diary), case.ranks - rank
        if alive > limit:
            held = f"expected at most {limit} micro-batches between F and B"
            return fail(f"rank {rank} {held}, got {alive}: {told(diary)}")
    for rank, diary in enumerate(diaries[:-1]):
        if under_way(diary) == 1 < len(case.rows):
            words = f"rank {rank} waits for each micro-batch to come back"
            return fail(f"{words} before the next one: {told(diary)}")
    return PASS


def freed(rig: Rig, **given: Any) -> Verdict:
    """When its gradient has left, rank r keeps nothing of a micro-batch, nor a copy: of
    those that have come, p - r are in its memory.
    """
    case = Case(rig, schedule=True, **given)
    for rank, diary in enumerate(case.diaries()):
        # The first rank's are parts of the batch, which its caller holds. A variable
        # may still point to the last one that came back.
        kept, limit = max(event["held"] for event in diary), case.ranks - rank
        if rank and kept > limit:
            most = f"expected at most {limit} micro-batches in memory"
            return fail(f"rank {rank} {most} when the next one came, got {kept}")
    return PASS


def bubble(rig: Rig, *, stages: list[int], micro: int, seed: int = 0) -> Verdict:
    """With m micro-batches the p ranks idle for (p - 1) / (m + p - 1) of the time, and
    no rank holds more than 2 p of them.

    The time is that of the order in which each rank has taken its steps.
    """
    given: dict = {"widths": [4] * (sum(stages) + 1), "rows": [2] * micro}
    case = Case(rig, stages=stages, seed=seed, schedule=True, **given)
    diaries, ranks = case.diaries(), case.ranks
    first = f"the schedule of rank 0 is {told(diaries[0])}"
    theory, work = (ranks - 1) / (micro + ranks - 1), micro * sum(TAKES.values())
    if (got := 1 - work / span(diaries)) > theory + IDLE_SLACK:
        what = f"a bubble of {theory:.0%} = (p - 1) / (m + p - 1), got {got:.0%}"
        return fail(f"expected {what}; {first}")
    for rank, diary in enumerate(diaries):
        if (alive := under_way(diary)) > 2 * ranks:
            held = f"at most 2 p = {2 * ranks} micro-batches between F and B"
            return fail(f"rank {rank} expected {held}, got {alive}; {first}")
    return PASS


def under_way(diary: list[dict]) -> int:
    """Return how many micro-batches a stage holds at most."""
    return max(accumulate(1 if event["step"] == "F" else -1 for event in diary))


def span(diaries: list[list[dict]]) -> float:
    """Return how long the ranks' schedules take together.

    A step begins when its rank is free and what it needs is there: forward what the
    rank on the left has made, backward what the rank on the right has. That is so on
    every machine, and costs nobody anything where a machine is busy.
    """
    last, ends = len(diaries) - 1, dict[tuple, int]()
    clock, todo = [0] * len(diaries), [[*diary] for diary in diaries]
    while any(todo):
        before = len(ends)
        for rank, own in enumerate(todo):
            while own:
                step, number = own[0]["step"], own[0]["number"]
                at = rank - 1 if step == "F" else rank + 1
                needs = (step, at, number) if 0 <= at <= last else None
                if needs and needs not in ends:
                    break
                begin = max(clock[rank], ends[needs] if needs else 0)
                clock[rank] = ends[step, rank, number] = begin + TAKES[step]
                own.pop(0)
        if len(ends) == before:
            return float("inf")  # no order in which anybody can have worked
    return max(clock)


CRITERIA = named(cut, outputs, grads, steps, memory, freed, bubble)
