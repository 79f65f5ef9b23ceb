"""Assignment 2, DDP from scratch: a DataParallel with buckets, overlap and no_sync.

Except in `steps`, all ranks begin with the same weights, and a factor that all
gradients have in common (a sum instead of the mean) is forgiven: one mistake costs one
criterion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from classroom.assignments.ddp.harness import Net, fill, flat, gradients, loss, trained
from classroom.engine import sandbox
from classroom.engine.assignment import Criteria
from classroom.engine.recorder import calls
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Verdict, compare, fail, up_to_scale

PROGRAMS = {"program": "ddp.py"}
WORDS = {
    "sizes": "widths {}",
    "dtype": "{}",
    "bucket_bytes": "buckets of {} bytes",
    "steps": "{} steps",
    "late": "rank {} late",
    "micro": "{} micro-batches",
    "raises": "micro-batch {} raises",
    "frozen": "layers {} frozen",
    "tied": "layers {} tied",
    "heads": "heads used by rank {}",
}
SAMPLES, RATE = 6, 0.1
EVERYTHING = 1_000_000  # bytes: a bucket that holds any network here
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        ranks: how many.
        net: arguments of `Net`.
        plan: by step and micro-batch, what differs from the ordinary; see the harness.
        apart: "all" if the ranks begin with different weights, "frozen" if that is so
            for the frozen ones only, "" if they begin with the same.
        patient: whether the ranks wait, not for ever, until a layer's gradients have
            been sent that are due; a thread that sends them may need a moment.
        rate: of SGD. Where gradients are looked at, nobody steps: a wrong one would
            spoil what follows.
    """

    def __init__(
        self,
        rig: Rig,
        ranks: int,
        seed: int,
        net: dict,
        plan: list[list[dict]],
        bucket_bytes: int = EVERYTHING,
        apart: str = "",
        patient: bool = False,
        rate: float = 0.0,
    ):
        draw = rig.draw(seed)
        self.rate = rate
        self.ranks, self.net_arguments, self.bucket_bytes = ranks, net, bucket_bytes
        ordinary = {"heads": [[]] * ranks, "raises": False, "late": None}
        self.plan = [[ordinary | micro for micro in step] for step in plan]
        self.net, self.patient = Net(**net), patient
        dtype = net.get("dtype", "float32")
        shape = (ranks, len(plan), max(map(len, plan), default=0), SAMPLES)
        width = max(net["sizes"][-1], net.get("heads", 0))
        self.x = draw.normal(size=(*shape, net["sizes"][0])).astype(dtype)
        self.y = draw.normal(size=(*shape, width)).astype(dtype)
        params, everywhere = list(self.net.parameters()), apart == "all"
        differs = [everywhere or apart and not p.requires_grad for p in params]
        own = np.repeat(np.array(differs, dtype=bool), [p.numel() for p in params])
        buffers = sum(b.numel() for b in self.net.buffers())
        first = draw.normal(scale=0.5, size=own.size).astype(np.float32)
        self.starts = []  # by rank: all parameters and all buffers, each in a row
        for rank in range(ranks):
            others = draw.normal(scale=0.5, size=own.size).astype(np.float32)
            values = draw.integers(1, 100, size=buffers).astype(np.float32)
            mine = np.where(own, others, first) if rank else first
            self.starts.append((mine, values))

    def run(self, rig: Rig) -> Outcome:
        """Let the student's program do it."""
        common = {"net": self.net_arguments, "plan": self.plan, "rate": self.rate}
        given = [
            common | {"params": params, "buffers": buffers, "x": x, "y": y}
            for (params, buffers), x, y in zip(self.starts, self.x, self.y, strict=True)
        ]
        for values in given:
            values["bucket_bytes"] = self.bucket_bytes
            values["due"] = self.due() if self.patient else []
        return rig.run(self.ranks, given)

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """One process: the gradients and the weights at every step, in rows."""
        params, buffers = self.starts[0]
        fill(self.net.parameters(), params)
        fill(self.net.buffers(), buffers)
        optimizer = torch.optim.SGD(trained(self.net), lr=self.rate)
        all_grads, all_params = [], []
        for step, micro_batches in enumerate(self.plan):
            optimizer.zero_grad()
            for micro, plan in enumerate(micro_batches):
                for rank in range(0 if plan["raises"] else self.ranks):
                    x = torch.from_numpy(self.x[rank, step, micro])
                    y = torch.from_numpy(self.y[rank, step, micro])
                    error = loss(self.net, x, y, plan["heads"][rank])
                    (error / self.ranks / len(micro_batches)).backward()
            all_grads.append(flat(gradients(self.net)))
            optimizer.step()
            all_params.append(flat(self.net.parameters()))
        return np.array(all_grads), np.array(all_params)

    def bytes_by_bucket(self) -> list[int]:
        """How many bytes the all_reduces of one step carry."""
        sizes = [p.numel() * p.element_size() for p in reversed(trained(self.net))]
        ends = np.cumsum(sizes)
        totals: list[int] = []
        while (done := sum(totals)) < ends[-1]:
            fit = ends[(ends > done) & (ends <= done + self.bucket_bytes)]
            # What is larger than a bucket has one to itself.
            totals.append(int(fit[-1] if len(fit) else ends[ends > done][0]) - done)
        return totals

    def due(self) -> list[int]:
        """How many bytes must have been sent when backward() has passed a layer."""
        size = [sum(p.nbytes for p in layer.parameters()) for layer in self.net.layers]
        # An unfinished bucket may stay behind; one that holds a single number may not.
        slack = 0 if self.bucket_bytes == 1 else 4 * self.bucket_bytes
        return [sum(size), *(sum(size[i:]) - slack for i in range(1, len(size)))]


@dataclass
class Said:
    """What one rank has said from the constructor of its DataParallel on."""

    collectives: list[tuple[str, int]] = field(default_factory=list)
    """Name and bytes of each."""
    messages: int = 0
    events: list[tuple[str, int, int]] = field(default_factory=list)
    """A word, a number, and how many collectives there were by then."""

    def at(self, word: str) -> list[int]:
        """Return how many collectives there were at each event `word`."""
        return [calls for name, _, calls in self.events if name == word]

    def begin(self) -> int:
        """Return how many collectives the constructor has called."""
        return self.at("constructed")[0]

    def by_step(self) -> list[list[tuple[str, int]]]:
        """Return the collectives of each step."""
        ends = [self.begin(), *self.at("finish")]
        return [self.collectives[a:b] for a, b in pairwise(ends)]


def heard(outcome: Outcome) -> list[Said]:
    """Return by rank what it has said."""
    by_rank = []
    for events in outcome.events:
        said = Said()
        calls(events, "construct", "constructed")  # raises if that makes no sense
        words = [event["what"] for event in events]
        for event in events[words.index("construct") :]:
            if event["what"] != "call":
                number, count = event.get("number", 0), len(said.collectives)
                said.events.append((event["what"], number, count))
            elif event["name"].startswith(("send", "recv")):
                said.messages += 1
            else:
                said.collectives.append((event["name"], event["bytes"]))
        by_rank.append(said)
    return by_rank


def problem_of(outcome: Outcome) -> Verdict | None:
    """Why the training cannot be judged, if it cannot."""
    if problem := outcome.problem("grads", "params"):
        return problem
    for rank, said in enumerate(heard(outcome)):
        if problem := ready_made(rank, said):
            return problem
        if not said.collectives[said.begin() :]:
            return fail(
                f"rank {rank} calls no collective of torch.distributed in a step"
            )
        # What PyTorch's own log has kept, below all that Python can reach; NCCL's may
        # be switched off.
        known = [n for n in outcome.calls[rank] if n in ("all_reduce", "allreduce")]
        told = [e for e in outcome.events[rank] if e.get("name") == "allreduce"]
        kept = outcome.calls[rank] or sandbox.gpus() < len(outcome.outputs)
        if kept and len(known) != len(told):
            numbers = f"{len(known)} all_reduces, and {len(told)} were heard"
            return fail(f"PyTorch's flight recorder has kept {numbers} of rank {rank}")
    return None


def ready_made(rank: int, said: Said) -> Verdict | None:
    """Refuse PyTorch's own DDP."""
    if any(name == "reducer" for name, _ in said.collectives):
        words = "uses the library's DistributedDataParallel: write your own"
        return fail(f"rank {rank} {words}")
    return None


def same_gradients(case: Case, outcome: Outcome) -> Verdict:
    """Compare the gradients, forgiving one factor that all of them have in common."""
    for step, expected in enumerate(case.truth()[0]):
        expected = up_to_scale(expected, outcome.outputs[0]["grads"][step])
        for rank, given in enumerate(outcome.outputs):
            if words := compare(rank, expected, given["grads"][step], **TOLERANCE):
                return fail(f"gradients of step {step}: {words}")
    return PASS


# --- criteria ---


def start(rig: Rig, *, ranks: int, sizes: list[int], seed: int = 0) -> Verdict:
    """Every rank begins with rank 0's parameters and buffers."""
    net = {"sizes": sizes, "norm": True}
    case = Case(rig, ranks, seed, net, plan=[], apart="all")
    outcome = case.run(rig)
    expected = np.concatenate(case.starts[0]).astype(np.float64)
    unfinished = "NotImplementedError" in (outcome.failure or "")
    begun = all("start" in given for given in outcome.outputs)
    if not (unfinished and begun):  # elsewhere than in what is judged here
        if problem := outcome.problem("start"):
            return problem
    for rank, said in enumerate(heard(outcome)):
        if problem := ready_made(rank, said):
            return problem
        if not (said.collectives or said.messages or unfinished):
            return fail(f"rank {rank} calls nothing of torch.distributed in __init__")
    verdict = compare_all(expected, outcome, "start")
    if verdict.state == "fail" and unfinished:
        return outcome.problem() or verdict
    return verdict


def steps(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    steps: int,
    bucket_bytes: int = EVERYTHING,
    seed: int = 0,
) -> Verdict:
    """From different weights, the weights after every step are those of one process."""
    plan: list[list[dict]] = [[{}]] * steps
    case = Case(
        rig, ranks, seed, {"sizes": sizes}, plan, bucket_bytes, apart="all", rate=RATE
    )
    outcome = case.run(rig)
    if problem := problem_of(outcome):
        return problem
    _, expected = case.truth()
    for step, truth in enumerate(expected):
        for rank, given in enumerate(outcome.outputs):
            if words := compare(rank, truth, given["params"][step], **TOLERANCE):
                return fail(f"weights after step {step}: {words}")
    return PASS


def buckets(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    bucket_bytes: int,
    dtype: str = "float32",
    seed: int = 0,
) -> Verdict:
    """One all_reduce for each bucket, of the right size, in each step."""
    net = {"sizes": sizes, "dtype": dtype}
    case = Case(rig, ranks, seed, net, [[{}]] * 2, bucket_bytes)
    outcome = case.run(rig)
    return problem_of(outcome) or right_calls(case, outcome)


def right_calls(case: Case, outcome: Outcome) -> Verdict:
    """Compare what was sent in each step with what should have been."""
    expected = case.bytes_by_bucket()
    for rank, said in enumerate(heard(outcome)):
        for step, called in enumerate(said.by_step()):
            if others := sorted({name for name, _ in called if name != "allreduce"}):
                what = ", ".join(others)
                return fail(f"rank {rank} calls {what} in step {step}, not all_reduce")
            if (got := [size for _, size in called]) != expected:
                wanted = f"all_reduces of {expected} bytes in step {step}"
                return fail(f"rank {rank} expected {wanted}, got {got}")
    return PASS


def overlap(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    late: int,
    bucket_bytes: int = 1,
    seed: int = 0,
) -> Verdict:
    """A bucket is sent as soon as it is full, and backward() goes on meanwhile.

    Both by the order of events and by no clock: in step 0, what has been sent when
    backward has passed a layer; in step 1, whether a rank comes through although
    another one has not begun.
    """
    plan: list[list[dict]] = [[{}], [{"late": late}]]
    net = {"sizes": sizes}
    case = Case(rig, ranks, seed, net, plan, bucket_bytes, patient=True)
    outcome = case.run(rig)
    if problem := problem_of(outcome):
        return problem
    for rank, said in enumerate(heard(outcome)):
        if words := too_late(case, said):
            return fail(f"rank {rank} {words}")
    if any(event["what"] == "held up" for event in outcome.events[late]):
        others = ", ".join(str(rank) for rank in range(ranks) if rank != late)
        what = "no rank is waited for before finish()"
        told = f"did not come through backward() before rank {late} had begun its own"
        return fail(f"rank {others} {told}: expected that {what}")
    return PASS


def too_late(case: Case, said: Said) -> str | None:
    """Say which layer's gradients had not been sent in step 0, if there is one."""
    words = [word for word, _, _ in said.events]
    for word, layer, count in said.events[: words.index("finish")]:
        if word in ("layer", "backward"):  # the latter has passed layer 0
            sent = sum(nbytes for _, nbytes in said.collectives[said.begin() : count])
            if sent < (due := case.due()[layer]):
                when = f"when backward() had passed layer {layer}"
                return f"expected {due} bytes sent {when}, got {sent}"
    return None


def no_sync(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    micro: int,
    raises: int | None = None,
    seed: int = 0,
) -> Verdict:
    """In no_sync() nothing is sent; afterwards the whole sum is, also after a raise."""
    ordinary: list[dict] = [{}] * micro
    second = [{"raises": number == raises} for number in range(micro)]
    plan = [ordinary, second]
    net = {"sizes": sizes}
    case = Case(rig, ranks, seed, net, plan, bucket_bytes=1, patient=True)
    outcome = case.run(rig)
    if problem := problem_of(outcome):
        return problem
    for rank, said in enumerate(heard(outcome)):
        begins = [said.begin(), *said.at("finish")]
        ends = np.reshape(said.at("backward"), (2, micro))
        for step in range(2):
            if sent := ends[step, -2] - begins[step]:
                return fail(f"rank {rank} calls {sent} collectives within no_sync()")
        # A rank that sends in backward() must do so after a raise in no_sync(), too.
        first, second = (ends[step, -1] - ends[step, -2] for step in range(2))
        if first != second:
            when = "in the backward() after a no_sync() whose body raised"
            return fail(
                f"rank {rank} expected {first} all_reduces {when}, got {second}"
            )
    return same_gradients(case, outcome)


def frozen_tied(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    frozen: Sequence[int] = (),
    tied: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> Verdict:
    """What is frozen is the same from the start, and not sent; what is used twice is
    sent once.
    """
    net = {"sizes": sizes, "frozen": frozen, "tied": tied}
    case = Case(rig, ranks, seed, net, [[{}]] * 2, apart="frozen")
    outcome = case.run(rig)
    if problem := problem_of(outcome):
        return problem
    expected = sum(p.nbytes for p in trained(case.net))
    for rank, said in enumerate(heard(outcome)):
        for step, called in enumerate(said.by_step()):
            if (got := sum(nbytes for _, nbytes in called)) != expected:
                wanted = f"{expected} bytes sent in step {step}"
                return fail(f"rank {rank} expected {wanted}, got {got}")
        if said.at("stray"):
            return fail(f"rank {rank} has a .grad at a frozen parameter")
    return same_gradients(case, outcome)


def unused(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    heads: list[list[int]],
    micro: int = 1,
    seed: int = 0,
) -> Verdict:
    """Parameters that a rank, or all ranks, have not used count as zeros."""
    count = 1 + max(head for row in heads for head in row)
    net = {"sizes": sizes, "heads": count}
    # Every rank moves on to its neighbour's heads with each micro-batch and step.
    turns = [heads[turn % ranks :] + heads[: turn % ranks] for turn in range(micro + 1)]
    plan = [[{"heads": turns[s + m]} for m in range(micro)] for s in range(2)]
    case = Case(rig, ranks, seed, net, plan, bucket_bytes=1)
    outcome = case.run(rig)
    return problem_of(outcome) or same_gradients(case, outcome)


CRITERIA: Criteria = {
    "start": start,
    "steps": steps,
    "buckets": buckets,
    "overlap": overlap,
    "no_sync": no_sync,
    "frozen_tied": frozen_tied,
    "unused": unused,
}
NEEDS: dict[str, list[str]] = {}
