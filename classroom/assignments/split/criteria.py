"""Assignment 4, Split: a pipeline over ranks with micro-batches.

The end of every stage is the judge's: it multiplies what has come by a number that is
drawn here, and nobody knows before the judge has been asked. So who was asked when, and
for what, is the schedule, by the judge's own clock.
"""

import time
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import torch
import torch.nn.functional as F

from classroom.assignments.split.harness import (
    ROUNDS,
    TOLD,
    Factor,
    fill,
    flat,
    gradients,
    network,
)
from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, compare, fail

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
NAPS = {"F": 0.03, "B": 0.06}  # seconds of a step, where time is measured
TRIES = 3  # of which the best counts
OVER_LESSON = 1.2  # times what lesson 11's schedule takes; good ones take 0.98 to 1.02
TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        stages: by rank, how many layers it holds.
        widths: of the input and of each layer's output.
        rows: how many samples each micro-batch has.
        plan: by step, the numbers of the batches whose gradients add up for it.
        schedules: how many batches are judged by when which micro-batch came.
    """

    def __init__(
        self,
        rig: Rig,
        stages: list[int],
        widths: list[int],
        rows: list[int],
        plan: list[list[int]],
        seed: int,
        schedules: int = 0,
    ):
        draw = rig.draw(seed)
        self.rig, self.ranks, self.plan = rig, len(stages), plan
        self.widths, self.rows = widths, rows
        self.bounds = [0, *accumulate(stages)]
        if self.bounds[-1] != len(widths) - 1:
            raise ValueError(f"{self.bounds[-1]} layers, {len(widths)} widths")
        self.whole = network(widths)
        size = sum(p.numel() for p in self.whole.parameters())
        self.params = draw.normal(scale=0.5, size=size).astype(np.float32)
        fill(self.whole, self.params)
        shape = 1 + max(number for batches in plan for number in batches), sum(rows)
        self.x = draw.normal(size=(*shape, widths[0])).astype(np.float32)
        self.target = draw.normal(size=(*shape, widths[-1])).astype(np.float32)

        # By rank, batch and micro-batch: what the judge's piece does ahead and back.
        # Where no schedule is asked for, micro-batches may come in any order.
        count = schedules or sum(map(len, plan))
        self.factors = draw.uniform(0.5, 1.5, (self.ranks, count, len(rows), 2))
        if not schedules:
            self.factors[:] = self.factors[:, :, :1]
        self.came: dict[tuple, np.ndarray] = {}  # what should come, as `Watched` tells

    def stage(self, rank: int) -> torch.nn.Sequential:
        """This rank's layers of the whole network."""
        return self.whole[self.bounds[rank] : self.bounds[rank + 1]]

    def reply(self, rank: int, asked: dict) -> float:
        """Do the judge's piece of a step."""
        back = asked["step"] == "B"
        return self.factors[rank, asked["batch"], asked["number"], int(back)]

    def nap(self, rank: int, asked: dict) -> float:
        """The same, in the time that a large stage would take."""
        time.sleep(NAPS[asked["step"]])
        return self.reply(rank, asked)

    def run(self, task: str = "train") -> Outcome:
        """Let the student's program do it."""
        given = []
        for rank, (first, end) in enumerate(pairwise(self.bounds)):
            values = {"task": task, "rate": RATE, "plan": self.plan}
            values |= {"width": self.widths[first], "rows": self.rows}
            values |= {"widths": self.widths[first : end + 1]}
            values |= {"params": flat(self.stage(rank).parameters()).astype(np.float32)}
            given.append(values)
        given[0]["x"], given[-1]["target"] = self.x, self.target
        reply = self.nap if task == "race" else self.reply
        quiet = task == "race"
        return self.rig.run(self.ranks, given, reply=reply, quiet=quiet)

    def loss(self, batch: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One process's outputs and loss of batch `number`, which comes as `batch`."""
        total, loss = sum(self.rows), torch.zeros(())
        outputs: list[torch.Tensor] = []
        xs = torch.from_numpy(self.x[number]).split(self.rows)
        targets = torch.from_numpy(self.target[number]).split(self.rows)
        for i, (x, target) in enumerate(zip(xs, targets, strict=True)):
            for rank in range(self.ranks):
                self._keep("F", rank, batch, i, x)
                ahead, back = self.factors[rank, batch, i]
                keep = partial(self._keep, "B", rank, batch, i)
                x = Factor.apply(
                    self.stage(rank)(x),
                    lambda _, ahead=ahead: ahead,
                    lambda g, back=back, keep=keep: (keep(g), back)[1],
                )
            loss = loss + len(x) / total * F.mse_loss(x, target)
            outputs.append(x)
        return torch.cat(outputs), loss

    def _keep(self, step: str, rank: int, batch: int, i: int, x: torch.Tensor) -> None:
        self.came[step, rank, batch, i] = flat([x])[:TOLD]

    def truth(self) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """One process: all outputs, and by rank the gradients and weights by step."""
        fill(self.whole, self.params)
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
                grads[rank].append(flat(gradients(self.stage(rank))))
            optimizer.step()
            for rank in ranks:
                params[rank].append(flat(self.stage(rank).parameters()))
        return (
            np.array(outputs),
            list(map(np.array, grads)),
            list(map(np.array, params)),
        )

    def diaries(self, outcome: Outcome, batch: int) -> Verdict | list[list[dict]]:
        """By rank what it asked for in `batch`, in order; or what is wrong with it.

        Every micro-batch has to come once, and as the stages beside it have left it.
        """
        self.loss(batch, 0)[1].backward()
        found = []
        for rank, events in enumerate(outcome.events):
            asked = [event for event in events if event.get("what") == "ask"]
            diary = [event for event in asked if event["batch"] == batch]
            steps = {(event["step"], event["number"]) for event in diary}
            if not len(diary) == len(steps) == 2 * len(self.rows):
                whole = (
                    f"each of {len(self.rows)} micro-batches once forward, once back"
                )
                return fail(f"rank {rank} expected {whole}, got {told(diary)}")
            for event in diary:
                key = event["step"], rank, batch, event["number"]
                came, expected = np.array(event["came"]), self.came[key]
                if key[0] == "B":  # its size is asked for by `grads`
                    came, expected = came / norm(came), expected / norm(expected)
                if came.shape != expected.shape or not np.allclose(
                    came, expected, rtol=1e-2, atol=1e-4
                ):
                    what = "output" if key[0] == "F" else "gradient"
                    words = f"which is not what the unsplit network's {what} would be"
                    return fail(f"rank {rank} at {told([event])} gets a tensor {words}")
            found.append(diary)
        return found


def norm(numbers: np.ndarray) -> float:
    """Their length, or 1 if they are all 0."""
    return float(np.linalg.norm(numbers)) or 1.0


def problem_of(outcome: Outcome) -> Verdict | None:
    """Why the run cannot be judged, if it cannot."""
    if problem := outcome.problem("grads", "params"):
        return problem
    for rank, events in enumerate(outcome.events):
        if not {"F", "B"} <= {event.get("step") for event in events}:
            return fail(f"rank {rank} does not take a batch through its stage and back")
    return None


def told(diary: list[dict]) -> str:
    """A stage's schedule, as in `F0 F1 B0 B1`."""
    return " ".join(f"{event['step']}{event['number']}" for event in diary) or "nothing"


# --- criteria ---


def cut(rig: Rig, *, questions: list[list[int]]) -> Verdict:
    """Layers are dealt out in a row; two ranks' shares differ by one at most."""
    outcome = rig.run(2, {"task": "cut", "questions": questions})
    if problem := outcome.problem("bounds"):
        return problem
    for (layers, ranks), got in zip(
        questions, outcome.outputs[0]["bounds"], strict=True
    ):
        each, more = divmod(layers, ranks)
        sizes = [each + 1] * more + [each] * (ranks - more)
        expected = [0, *accumulate(sizes)]
        if got != expected:
            return fail(f"cut({layers}, {ranks}): expected {expected}, got {got}")
    return PASS


def outputs(
    rig: Rig, *, stages: list[int], widths: list[int], rows: list[int], seed: int = 0
) -> Verdict:
    """The last rank returns what the unsplit network makes of the batch."""
    case = Case(rig, stages, widths, rows, [[0]], seed)
    outcome = case.run()
    if problem := problem_of(outcome):
        return problem
    expected, last = case.truth()[0], case.ranks - 1
    got = outcome.outputs[last].get("outputs", "nothing")
    words = compare(last, expected, got, **TOLERANCE)
    return fail(words) if words else PASS


def grads(
    rig: Rig, *, stages: list[int], widths: list[int], rows: list[int], seed: int = 0
) -> Verdict:
    """Every rank ends with the unsplit network's gradients, for any micro-batches."""
    case = Case(rig, stages, widths, rows, [[0]], seed)
    outcome = case.run()
    if problem := problem_of(outcome):
        return problem
    return compare_all(case.truth()[1], outcome, "grads", **TOLERANCE)


def steps(
    rig: Rig,
    *,
    stages: list[int],
    widths: list[int],
    rows: list[int],
    steps: int,
    batches: int = 1,
    seed: int = 0,
) -> Verdict:
    """The weights are those of the unsplit network after every step of a training."""
    numbers = iter(range(steps * batches))
    plan = [[next(numbers) for _ in range(batches)] for _ in range(steps)]
    case = Case(rig, stages, widths, rows, plan, seed)
    outcome = case.run()
    if problem := problem_of(outcome):
        return problem
    expected = case.truth()[2]
    for step in range(steps):
        for rank, given in enumerate(outcome.outputs):
            truth, got = expected[rank][step], given["params"][step]
            if words := compare(rank, truth, got, **TOLERANCE):
                return fail(f"weights after step {step}: {words}")
    return PASS


def memory(
    rig: Rig, *, stages: list[int], widths: list[int], rows: list[int], seed: int = 0
) -> Verdict:
    """Rank r of p never holds more than p - r micro-batches, however many come."""
    case = Case(rig, stages, widths, rows, [[0]], seed, schedules=1)
    outcome = case.run()
    if problem := problem_of(outcome):
        return problem
    diaries = case.diaries(outcome, 0)
    if isinstance(diaries, Verdict):
        return diaries
    for rank, diary in enumerate(diaries):
        alive = max(accumulate(1 if e["step"] == "F" else -1 for e in diary))
        limit = case.ranks - rank
        if alive > limit:
            held = f"expected at most {limit} micro-batches between F and B"
            return fail(f"rank {rank} {held}, got {alive}: {told(diary)}")
        # The first rank's are parts of the batch, which its caller holds. A variable
        # may still point to the last one that came back.
        kept = max(event["held"] for event in diary)
        if rank and kept > limit:
            most = f"expected at most {limit} micro-batches in memory"
            return fail(f"rank {rank} {most} when the next one came, got {kept}")
    return PASS


def bubble(rig: Rig, *, stages: list[int], micro: int, seed: int = 0) -> Verdict:
    """With m micro-batches the p ranks idle for (p - 1) / (m + p - 1) of the time.

    Stages that sleep show that on any machine, but not to the millisecond. So the time
    is compared with that of lesson 11's schedule, which has this bubble and runs first:
    the quickest of some rounds with the quickest of as many.
    """
    widths, rows = [4] * (sum(stages) + 1), [2] * micro
    for _ in range(TRIES):  # a machine may be busy; a bubble stays
        case = Case(rig, stages, widths, rows, [[0]], seed, schedules=2 * ROUNDS)
        outcome = case.run("race")
        if problem := outcome.problem("done"):
            return problem
        for batch in range(ROUNDS, 2 * ROUNDS):
            diaries = case.diaries(outcome, batch)
            if isinstance(diaries, Verdict):
                return diaries
            first = told(diaries[0])
        spans = [span(outcome.events, batch, micro) for batch in range(2 * ROUNDS)]
        theirs, mine = min(spans[:ROUNDS]), min(spans[ROUNDS:])
        if mine <= OVER_LESSON * theirs:
            return PASS
    theory = (case.ranks - 1) / (micro + case.ranks - 1)
    got = 1 - (1 - theory) * theirs / mine
    what = f"a bubble of {theory:.0%} = (p - 1) / (m + p - 1), got {got:.0%}"
    return fail(f"expected {what}; the schedule of rank 0 is {first}")


def span(events: list[list[dict]], batch: int, micro: int) -> float:
    """Seconds from the first begin to the last end of a batch, on any rank.

    What a rank says of it later, when the batch has come through, does not count.
    """
    asked = [[e for e in told if e["what"] == "ask"] for told in events]
    by_rank = [[e for e in own if e["batch"] == batch][: 2 * micro] for own in asked]
    of_all = [event for own in by_rank for event in own]
    return max(e["answered"] for e in of_all) - min(e["at"] for e in of_all)


CRITERIA: Criteria = {
    "cut": cut,
    "outputs": outputs,
    "grads": grads,
    "steps": steps,
    "memory": memory,
    "bubble": bubble,
}
NEEDS: dict[str, list[str]] = {}
