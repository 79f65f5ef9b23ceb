"""Assignment 4, Split: a pipeline over ranks with micro-batches."""

from itertools import accumulate, pairwise
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F

from classroom.assignments.split.harness import fill, flat, gradients, network
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
NAPS = 0.03, 0.06  # seconds of a forward and a backward, where time is measured
SLOWEST = 1.2  # times what lesson 6's schedule takes; good ones take 0.98 to 1.02
TOLERANCE = {"rtol": 1e-3, "atol": 1e-6}


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        stages: by rank, how many layers it holds.
        widths: of the input and of each layer's output.
        rows: how many samples each micro-batch has.
        plan: by step, the numbers of the batches whose gradients add up for it.
    """

    def __init__(
        self,
        stages: list[int],
        widths: list[int],
        rows: list[int],
        plan: list[list[int]],
        seed: int,
    ):
        draw = np.random.default_rng(seed)
        self.ranks, self.widths, self.rows, self.plan = len(stages), widths, rows, plan
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

    def stage(self, rank: int) -> torch.nn.Sequential:
        """This rank's layers of the whole network."""
        return self.whole[self.bounds[rank] : self.bounds[rank + 1]]

    def run(
        self, rig: Rig, task: str = "train", naps: tuple[float, float] = (0.0, 0.0)
    ) -> Outcome:
        """Let the student's program do it."""
        given = []
        for rank, (first, end) in enumerate(pairwise(self.bounds)):
            values = {"task": task, "rate": RATE, "plan": self.plan, "naps": naps}
            values |= {"width": self.widths[first], "rows": self.rows}
            values |= {"widths": self.widths[first : end + 1]}
            values |= {"params": flat(self.stage(rank).parameters()).astype(np.float32)}
            given.append(values)
        given[0]["x"], given[-1]["target"] = self.x, self.target
        return rig.run(self.ranks, given)

    def truth(self) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """One process: all outputs, and by rank the gradients and weights by step."""
        fill(self.whole, self.params)
        optimizer = torch.optim.SGD(self.whole.parameters(), lr=RATE)
        ranks, outputs = range(self.ranks), []
        grads: list[list] = [[] for _ in ranks]
        params: list[list] = [[] for _ in ranks]
        for batches in self.plan:
            optimizer.zero_grad()
            for number in batches:
                out = self.whole(torch.from_numpy(self.x[number]))
                F.mse_loss(out, torch.from_numpy(self.target[number])).backward()
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


def problem_of(outcome: Outcome) -> Verdict | None:
    """Why the run cannot be judged, if it cannot."""
    if problem := outcome.problem("grads", "params", "diaries", "held"):
        return problem
    for rank, given in enumerate(outcome.outputs):
        if any(
            {what for what, *_ in diary} != {"F", "B"} for diary in given["diaries"]
        ):
            return fail(f"rank {rank} does not take a batch through its stage and back")
    return None


def told(diary: list[list]) -> str:
    """A stage's schedule, as in `F0 F1 B0 B1`."""
    return " ".join(f"{what}{number}" for what, number, *_ in diary)


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
    case = Case(stages, widths, rows, [[0]], seed)
    outcome = case.run(rig)
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
    case = Case(stages, widths, rows, [[0]], seed)
    outcome = case.run(rig)
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
    case = Case(stages, widths, rows, plan, seed)
    outcome = case.run(rig)
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
    case = Case(stages, widths, rows, [[0]], seed)
    outcome = case.run(rig)
    if problem := problem_of(outcome):
        return problem
    for rank, given in enumerate(outcome.outputs):
        (diary,) = given["diaries"]
        alive = max(accumulate(1 if what == "F" else -1 for what, *_ in diary))
        limit = case.ranks - rank
        if alive > limit:
            held = f"expected at most {limit} micro-batches between F and B"
            return fail(f"rank {rank} {held}, got {alive}: {told(diary)}")
        # The first rank's are parts of the batch, which its caller holds. A variable
        # may still point to the last one that came back.
        (kept,) = given["held"]
        if rank and kept > limit:
            most = f"expected at most {limit} micro-batches in memory"
            return fail(f"rank {rank} {most} when the next one came, got {kept}")
    return PASS


def bubble(rig: Rig, *, stages: list[int], micro: int, seed: int = 0) -> Verdict:
    """With m micro-batches the p ranks idle for (p - 1) / (m + p - 1) of the time.

    Stages that sleep show that on any machine, but not to the millisecond. So the time
    is compared with that of lesson 6's schedule, which has this bubble: both run in
    turn, in one session, and the median of the quotients is what counts.
    """
    case = Case(stages, [4] * (sum(stages) + 1), [2] * micro, [[0]], seed)
    outcome = case.run(rig, "race", NAPS)
    if problem := outcome.problem("mine", "theirs"):
        return problem
    for rank, given in enumerate(outcome.outputs):
        diary = given["mine"][0]
        if sorted(told(diary).split()) != sorted(told(given["theirs"][0]).split()):
            whole = f"each of {micro} micro-batches once forward, once back"
            return fail(f"rank {rank} expected {whole}, got {told(diary)}")
    mine, theirs = (spans(outcome, name) for name in ("mine", "theirs"))
    quotient = median(a / b for a, b in zip(mine, theirs, strict=True))
    if quotient <= SLOWEST:
        return PASS
    theory = (case.ranks - 1) / (micro + case.ranks - 1)
    got = 1 - (1 - theory) / quotient
    first = told(outcome.outputs[0]["mine"][0])
    what = f"a bubble of {theory:.0%} = (p - 1) / (m + p - 1), got {got:.0%}"
    return fail(f"expected {what}; the schedule of rank 0 is {first}")


def spans(outcome: Outcome, name: str) -> list[float]:
    """Seconds from the first begin to the last end on any rank, by round."""
    rounds = zip(*(given[name] for given in outcome.outputs), strict=True)
    return [
        max(end for diary in diaries for *_, end in diary)
        - min(begin for diary in diaries for _, _, begin, _ in diary)
        for diaries in rounds
    ]


CRITERIA: Criteria = {
    "cut": cut,
    "outputs": outputs,
    "grads": grads,
    "steps": steps,
    "memory": memory,
    "bubble": bubble,
}
NEEDS: dict[str, list[str]] = {}
