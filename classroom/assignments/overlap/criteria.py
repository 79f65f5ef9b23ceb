"""Assignment 10, Overlap: communication hidden behind computation.

What is judged is the diary of the harness's machine: in which order the ranks asked for
layers and made their calls, and how long these take on the machine, by its own clock.

Except in `mean`, a factor that all gradients have in common (a sum instead of the mean)
is forgiven: one mistake costs one criterion.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from classroom.assignments.overlap.harness import Net, fill, gradients, loss
from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Verdict, compare, fail, up_to_scale

PROGRAMS = {"program": "overlap.py"}
WORDS = {
    "sizes": "widths {}",
    "bucket_bytes": "buckets of {} bytes",
    "steps": "{} steps",
    "micro": "{} micro-batches",
    "registered": "parameters() of layers {}",
    "frozen": "layers {} frozen",
    "tied": "layers {} tied",
    "heads": "heads used by rank {}",
    "late": "rank {} late",
    "nap": "{} s for a layer",
    "wire": "{} s for a call",
}
SAMPLES, RATE = 5, 0.05
EVERYTHING = 1_000_000  # bytes: a bucket that holds any network here
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}
NAP, CALL, LAYER = 0.03, 0.005, 0.02  # seconds: see `hidden`, and the prediction
ROUNDS = 3  # how often the student's step and DDP's are timed, in turn
SLOWEST = 1.25  # times what DDP takes; see `hidden`
ORDINARY = {"ddp": False, "micro": 1, "late": None, "heads": None}


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        rig: draws them.
        ranks: how many.
        net: arguments of `Net`.
        plan: by step, what differs from the ordinary; see the harness.
        rate: of SGD. Where gradients are looked at, nobody steps: a wrong one would
            spoil what follows.
        nap: seconds that the backward of a layer takes.
        wire: seconds that a call takes, and seconds for each of its bytes.
    """

    def __init__(
        self,
        rig: Rig,
        ranks: int,
        seed: int,
        net: dict,
        plan: list[dict],
        bucket_bytes: int = EVERYTHING,
        rate: float = 0.0,
        nap: float = 0.0,
        wire: tuple[float, float] = (0.0, 0.0),
    ):
        draw = rig.draw(seed)
        self.ranks, self.net_arguments, self.bucket_bytes = ranks, net, bucket_bytes
        self.plan = [ORDINARY | {"heads": [[]] * ranks} | step for step in plan]
        self.rate, self.machine = rate, {"nap": nap, "wire": wire}
        micro = max(step["micro"] for step in self.plan)
        sizes, shape = net["sizes"], (ranks, len(plan), micro, SAMPLES)
        width = max(sizes[-1], net.get("heads", 0))
        self.x = draw.normal(size=(*shape, sizes[0])).astype(np.float32)
        self.y = draw.normal(size=(*shape, width)).astype(np.float32)
        layers = len(plan) * micro * (len(sizes) - 1)
        self.factors = draw.uniform(0.5, 1.5, (ranks, layers))
        self.net = self.make([])
        numbers = sum(p.numel() for p in self.net.parameters())
        self.params = draw.normal(scale=0.4, size=numbers).astype(np.float32)

    def make(self, factors: Sequence[float]) -> Net:
        """Return the network, whose accelerator tells `factors` at once."""
        told = iter(factors)
        return Net(**self.net_arguments, accelerator=lambda layer: next(told))

    def run(self, rig: Rig) -> Outcome:
        """Let the student's program do it; the machine is the last rank."""
        common = {"ranks": self.ranks, "net": self.net_arguments, "plan": self.plan}
        common |= {"params": self.params, "rate": self.rate}
        common |= {"bucket_bytes": self.bucket_bytes}
        given = [common | {"x": x, "y": y} for x, y in zip(self.x, self.y, strict=True)]
        machine = self.machine | {"ranks": self.ranks, "factors": self.factors}
        return rig.run(self.ranks + 1, [*given, machine], timeout=40)

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """One process: by rank and step its own gradients, and by step their mean."""
        nets = [self.make(factors) for factors in self.factors]
        rows: list[list[np.ndarray]] = [[] for _ in nets]
        params = torch.from_numpy(self.params.copy())
        for step, plan in enumerate(self.plan):
            for rank, net in enumerate(nets):
                fill(net, params.numpy())
                net.zero_grad()
                for micro in range(plan["micro"]):
                    x, y = self.x[rank, step, micro], self.y[rank, step, micro]
                    (loss(net, x, y, plan["heads"][rank]) / plan["micro"]).backward()
                rows[rank].append(gradients(net))
            if self.rate:  # then all parameters are trained
                mean = np.mean([row[-1] for row in rows], axis=0)
                params -= self.rate * torch.from_numpy(mean.astype(np.float32))
        own = np.array(rows)
        return own, own.mean(0)


class Diary:
    """What the machine was asked for, by step, and the calls among it."""

    def __init__(self, entries: list[dict]):
        self.entries = entries

    def of(self, step: int, rank: int | None = None, *words: str) -> list[dict]:
        """The entries of a step, of one rank, with one of `words`, in order."""
        return [
            entry
            for entry in self.entries
            if entry["step"] == step
            and (rank is None or entry["rank"] == rank)
            and (not words or entry["what"] in words)
        ]

    def sizes(self, step: int, rank: int, name: str = "all_reduce") -> list[int]:
        """How many bytes each all_reduce of a step carries."""
        calls = self.of(step, rank, "call")
        return [call["bytes"] for call in calls if call["about"] == name]

    def seconds(self, step: int) -> float:
        """From the first layer to the end of the last layer or call."""
        begin = min(entry["begin"] for entry in self.of(step, None, "layer"))
        ends = [entry["end"] for entry in self.of(step, None, "layer", "carried")]
        return max(ends) - begin


def looked_at(case: Case, outcome: Outcome) -> tuple[Outcome, Diary]:
    """Return the outcome of the student's ranks, and the machine's diary."""
    diary = Diary(outcome.events[case.ranks])
    return replace(outcome, outputs=outcome.outputs[:-1]), diary


def problem_of(case: Case, outcome: Outcome, diary: Diary) -> Verdict | None:
    """Why the training cannot be judged, if it cannot."""
    if problem := outcome.problem("grads"):
        return problem
    for step, plan in enumerate(case.plan):
        for rank in range(0 if plan["ddp"] else case.ranks):
            names = [entry["about"] for entry in diary.of(step, rank, "call")]
            if any("another hand" in name for name in names):
                return fail(f"rank {rank} lets a library average: write it yourself")
            if not names:
                return fail(f"rank {rank} makes no call of torch.distributed in a step")
    return None


def same_gradients(case: Case, outcome: Outcome, scaled: bool = True) -> Verdict:
    """Compare the gradients; if `scaled`, forgive one factor common to all."""
    for step, expected in enumerate(case.truth()[1]):
        if case.plan[step]["ddp"]:
            continue
        if scaled:
            expected = up_to_scale(expected, outcome.outputs[0]["grads"][step])
        for rank, given in enumerate(outcome.outputs):
            if words := compare(rank, expected, given["grads"][step], **TOLERANCE):
                return fail(f"gradients of step {step}: {words}")
    return PASS


# --- criteria ---


def mean(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    steps: int,
    bucket_bytes: int = EVERYTHING,
    seed: int = 0,
) -> Verdict:
    """After wait(), every .grad is the mean over the ranks, in every step."""
    case = Case(rig, ranks, seed, {"sizes": sizes}, [{}] * steps, bucket_bytes, RATE)
    outcome, diary = looked_at(case, case.run(rig))
    problem = problem_of(case, outcome, diary)
    return problem or same_gradients(case, outcome, scaled=False)


def buckets(
    rig: Rig, *, ranks: int, sizes: list[int], bucket_bytes: int, seed: int = 0
) -> Verdict:
    """From the second step on, no all_reduce is larger than a bucket, there are no more
    than needed, and nothing is sent twice.
    """
    case = Case(rig, ranks, seed, {"sizes": sizes}, [{}] * 3, bucket_bytes)
    outcome, diary = looked_at(case, case.run(rig))
    if problem := problem_of(case, outcome, diary):
        return problem
    params = [4 * p.numel() for p in case.net.parameters()]
    most, room = 0, 0
    for size in reversed(params):
        if not most or size > room:
            most, room = most + 1, bucket_bytes
        room -= size
    for step in (1, 2):
        for rank in range(ranks):
            got = diary.sizes(step, rank)
            told = f"rank {rank}, step {step}: all_reduces of {got} bytes, expected"
            if others := len(diary.of(step, rank, "call")) - len(got):
                return fail(f"{told} no other collective, got {others}")
            if sum(got) != sum(params):
                return fail(f"{told} {sum(params)} bytes in all, got {sum(got)}")
            if large := [n for n in got if n > bucket_bytes and n not in params]:
                return fail(f"{told} at most {bucket_bytes} in one, got {large[0]}")
            if len(got) > most:
                return fail(f"{told} at most {most} of them, got {len(got)}")
    return PASS


def hidden(
    rig: Rig, *, ranks: int, sizes: list[int], late: int, seed: int = 0
) -> Verdict:
    """A step takes at most 1.25 times as long as with torch's DDP: buckets are on the
    wire while backward() goes on, and backward() waits for nobody.

    Naps and wire are such that a step that hides nothing takes 1.6 times as long. Both
    kinds are timed in turn, in one run, by the machine's own clock. Hooks that send at
    once take exactly as long as DDP; a thread that sends may come a layer too late.
    """
    size, layers = 4 * sizes[0] ** 2, len(sizes) - 1
    plan: list[dict] = [{}, {"ddp": True}, {"late": late}, {"ddp": True}]
    plan += [{}, {"ddp": True}] * ROUNDS
    case = Case(
        rig,
        ranks,
        seed,
        {"sizes": sizes},
        plan,
        bucket_bytes=size,
        nap=NAP,
        wire=(CALL, LAYER / size),
    )
    outcome, diary = looked_at(case, case.run(rig))
    if problem := problem_of(case, outcome, diary):
        return problem
    if diary.of(2, late, "held up"):
        others = ", ".join(str(rank) for rank in range(ranks) if rank != late)
        told = f"did not come through backward() before rank {late} had begun its own"
        return fail(f"rank {others} {told}: backward() must wait for nobody")
    mine = [step for step, p in enumerate(case.plan) if step >= 4 and not p["ddp"]]
    verdict = same_gradients(case, outcome)
    if verdict.state != "pass":
        return verdict
    own = case.truth()[0]
    for rank in range(ranks):
        for step in range(len(plan)):
            if len(diary.of(step, rank, "layer")) != layers:
                told = f"computes the {layers} layers of step {step} at another time"
                return fail(f"rank {rank} {told}")
        for step in mine:
            if words := not_carried(diary, step, rank, own[rank, step]):
                return fail(f"rank {rank}: {words}")
    serial = layers * (NAP + CALL + LAYER)
    if words := too_slow(diary, mine, serial):
        why = (too_late(case, diary, mine[0], rank) for rank in range(ranks))
        return fail(": ".join([words, *filter(None, why)][:2]))
    return PASS


def too_slow(diary: Diary, steps: list[int], serial: float) -> str | None:
    """Say so if `steps` take longer than the steps of DDP, each of which comes next.

    One that hides nothing takes `serial` seconds. DDP's do not, unless they have been
    meddled with.
    """
    pairs = [(diary.seconds(step), diary.seconds(step + 1)) for step in steps]
    own, ddp = (1000 * median(column) for column in zip(*pairs, strict=True))
    if SLOWEST * ddp > 1000 * serial:
        return f"DDP's own steps took {ddp:.0f} ms; leave them alone"
    if own <= SLOWEST * ddp:
        return None
    limit = f"at most {SLOWEST} times as long as with torch's DDP, {ddp:.0f} ms"
    return f"expected a step to take {limit}, got {own:.0f} ms"


def too_late(case: Case, diary: Diary, step: int, rank: int) -> str | None:
    """Say what had not been sent when backward() was one layer further on."""
    layers, sent = len(case.net_arguments["sizes"]) - 1, 0
    sizes = [4 * p.numel() for p in case.net.parameters()]
    for entry in diary.of(step, rank, "layer", "call"):
        if entry["what"] == "call":
            sent += entry["bytes"]
        elif sent < (expected := sum(sizes[entry["about"] + 2 :])):
            when = f"when backward() began layer {entry['about']} of 0 to {layers - 1}"
            return f"rank {rank} had sent {sent} of {expected} bytes {when}"
    return None


def not_carried(diary: Diary, step: int, rank: int, own: np.ndarray) -> str | None:
    """Say so if what a rank sent was not its gradients, or a multiple of them."""
    calls = diary.of(step, rank, "call")
    squares = sum(call["squares"] for call in calls) / (own**2).sum()
    total, scale = sum(call["sum"] for call in calls), np.sqrt(squares)
    slack = 1e-3 * scale * np.abs(own).sum()
    size = sum(call["bytes"] for call in calls)
    if size == 4 * own.size and squares and abs(total - scale * own.sum()) <= slack:
        return None
    what = "its gradients, each number once"
    return f"expected {what}, on the wire; what it sent was something else"


def order(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    registered: list[int] | None = None,
    heads: list[list[int]] | None = None,
    seed: int = 0,
) -> Verdict:
    """From the second step on, buckets are sent in the order in which rank 0's first
    backward() had the gradients ready.
    """
    net: dict = {"sizes": sizes, "registered": registered}
    step: dict = {}
    if heads:
        net["heads"], step = 1 + max(map(max, heads)), {"heads": heads}
    case = Case(rig, ranks, seed, net, [step] * 3, bucket_bytes=1)
    outcome, diary = looked_at(case, case.run(rig))
    if problem := problem_of(case, outcome, diary):
        return problem
    names = {name: 4 * p.numel() for name, p in case.net.named_parameters()}
    # Autograd works backward: what was used last is ready first.
    used = [f"layer_{layer}" for layer in range(len(sizes) - 1)]
    used += [f"head_{head}" for head in (heads or [[]])[0]]
    expected = [names[name] for name in reversed(used)]
    for number in (1, 2):
        for rank in range(ranks):
            got = diary.sizes(number, rank)
            if got != expected:
                told = f"rank {rank} expected all_reduces of {expected} bytes"
                return fail(f"{told} in step {number}, got {got}")
    return same_gradients(case, outcome)


def waits(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    wire: float,
    bucket_bytes: int = EVERYTHING,
    seed: int = 0,
) -> Verdict:
    """However slow the wire, wait() returns when the means are there, not before."""
    net, slow = {"sizes": sizes}, (wire, 0.0)
    case = Case(rig, ranks, seed, net, [{}] * 2, bucket_bytes, wire=slow)
    outcome, diary = looked_at(case, case.run(rig))
    return problem_of(case, outcome, diary) or same_gradients(case, outcome)


def odd(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    heads: list[list[list[int]]] | None = None,
    frozen: tuple[int, ...] = (),
    tied: tuple = (),
    seed: int = 0,
) -> Verdict:
    """What is frozen is not sent, what is used twice is sent once, and what a rank has
    not used counts as zeros.
    """
    net: dict = {"sizes": sizes, "frozen": frozen, "tied": tied}
    plan: list[dict] = [{}, {}]
    if heads:
        flat = [head for step in heads for row in step for head in row]
        net["heads"], plan = 1 + max(flat), [{"heads": step} for step in heads]
    case = Case(rig, ranks, seed, net, plan, bucket_bytes=1)
    outcome, diary = looked_at(case, case.run(rig))
    if problem := problem_of(case, outcome, diary):
        return problem
    expected = sum(4 * p.numel() for p in case.net.parameters() if p.requires_grad)
    for rank in range(ranks):
        for step in range(len(plan)):
            if (
                (got := sum(diary.sizes(step, rank))) < expected
                or step
                and (got > expected)
            ):
                told = f"{expected} bytes sent in step {step}"
                return fail(f"rank {rank} expected {told}, got {got}")
    return same_gradients(case, outcome)


def accumulate(
    rig: Rig,
    *,
    ranks: int,
    sizes: list[int],
    micro: int,
    steps: int = 2,
    heads: list[list[int]] | None = None,
    seed: int = 0,
) -> Verdict:
    """In no_sync() nothing is sent; the next backward() sends the whole sum."""
    case = Case(
        rig, ranks, seed, {"sizes": sizes}, [{"micro": micro}] * steps, bucket_bytes=1
    )
    outcome, diary = looked_at(case, case.run(rig))
    if problem := problem_of(case, outcome, diary):
        return problem
    for rank in range(ranks):
        for step in range(steps):
            done = 0
            for entry in diary.of(step, rank, "backward", "call"):
                done += entry["what"] == "backward"
                if entry["what"] == "call" and done < micro - 1:
                    where = f"in no_sync(), micro-batch {done} of step {step}"
                    return fail(f"rank {rank} calls {entry['about']} {where}")
    return same_gradients(case, outcome)


CRITERIA: Criteria = {
    "mean": mean,
    "buckets": buckets,
    "hidden": hidden,
    "order": order,
    "waits": waits,
    "odd": odd,
    "accumulate": accumulate,
}
NEEDS: dict[str, list[str]] = {}
