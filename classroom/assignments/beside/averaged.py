"""The judge's side of averaging.py: inputs, truth, and the machine's diary.

What is judged is in which order the ranks asked for layers and made their calls, and
how long these take on the machine, by its own clock. In most criteria a factor that all
gradients have in common (a sum instead of the mean) is forgiven: one mistake costs one
criterion.
"""

from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from classroom.assignments.beside.averaging import Net, fill, gradients, loss
from classroom.assignments.beside.wired import wired
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail, up_to_scale

SAMPLES, RATE = 5, 0.05
EVERYTHING = 1_000_000  # bytes: a bucket that holds any network here
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}
NAP, CALL, LAYER = 0.03, 0.005, 0.02  # seconds: see `hidden`, and Overlap's prediction
BRIEF = 0.02  # seconds of a layer, where a thread that sends shall have its moment
ROUNDS = 3  # how many steps are timed
SLOWEST = 1.25  # times the shortest possible step; see `hidden`
WORDS = {
    "sizes": "widths {}",
    "dtype": "{}",
    "bucket_bytes": "buckets of {} bytes",
    "steps": "{} steps",
    "micro": "{} micro-batches",
    "raises": "micro-batch {} raises",
    "registered": "parameters() of layers {}",
    "frozen": "layers {} frozen",
    "tied": "layers {} tied",
    "heads": "heads used by rank {}",
    "late": "rank {} late",
    "wire": "{} s for a call",
}


class Diary:
    """What the machine was asked for, by step, and the calls among it."""

    def __init__(self, entries: list[dict]):
        self.entries = [e for e in entries if e.get("about") != "barrier"]  # harmless

    def of(self, step: int, rank: int | None = None, *words: str) -> list[dict]:
        """The entries of a step, of one rank, with one of `words`, in order."""
        return [
            entry
            for entry in self.entries
            if entry.get("step") == step
            and (rank is None or entry["rank"] == rank)
            and (not words or entry["what"] in words)
        ]

    def sizes(self, step: int, rank: int, name: str = "all_reduce") -> list[int]:
        """How many bytes each all_reduce of a step carries."""
        calls = self.of(step, rank, "call")
        return [call["bytes"] for call in calls if call["about"] == name]

    def early(self, step: int, rank: int) -> int:
        """How many calls a rank has made before its backward() was through."""
        words = [entry["what"] for entry in self.of(step, rank, "call", "settled")]
        return words.index("settled")

    def seconds(self, step: int) -> float:
        """From the first layer to that of the next step, or else to the very end."""
        begin, *later = (
            min(entry["begin"] for entry in layers)
            for number in (step, step + 1)
            if (layers := self.of(number, None, "layer"))
        )
        ends = [e["end"] for e in self.entries if e["what"] in ("layer", "carried")]
        return min(later, default=max(ends)) - begin


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        rig: draws them, and runs them.
        net: arguments of `Net`.
        plan: by step, what differs from the ordinary; see averaging.py. "micro" may be
            a number.
        ranks: how many.
        apart: "all" if the ranks begin with different weights, "frozen" if that is so
            for the frozen ones only, "" if they begin with the same.
        rate: of SGD. Where gradients are looked at, nobody steps: a wrong one would
            spoil what follows.
        nap: seconds that the backward of a layer takes.
        wire: seconds that a call takes, and seconds for each of its bytes.
    """

    def __init__(
        self,
        rig: Rig,
        net: dict,
        plan: list[dict],
        *,
        ranks: int,
        seed: int = 0,
        bucket_bytes: int = EVERYTHING,
        apart: str = "",
        rate: float = 0.0,
        nap: float = 0.0,
        wire: tuple[float, float] = (0.0, 0.0),
    ):
        draw = rig.draw(seed)
        self.rig, self.ranks, self.net_arguments, self.rate = rig, ranks, net, rate
        self.bucket_bytes, self.plan = bucket_bytes, []
        for step in plan:
            micro = step.get("micro", 1)
            rows = [{}] * micro if isinstance(micro, int) else micro
            usual = {"heads": step.get("heads", [[]] * ranks), "raises": False}
            micros = {"micro": [usual | row for row in rows]}
            self.plan.append({"late": None} | step | micros)
        most = max((len(step["micro"]) for step in self.plan), default=0)
        sizes, shape = net["sizes"], (ranks, len(plan), most, SAMPLES)
        width, dtype = max(sizes[-1], net.get("heads", 0)), net.get("dtype", "float32")
        self.x = draw.normal(size=(*shape, sizes[0])).astype(dtype)
        self.y = draw.normal(size=(*shape, width)).astype(dtype)
        layers = len(plan) * most * (len(sizes) - 1)
        self.factors = draw.uniform(0.5, 1.5, (ranks, layers))
        self.machine = {"nap": nap, "wire": wire, "factors": self.factors}
        self.net = self.make([])
        params = [*self.net.parameters()]
        differs = [apart == "all" or apart and not p.requires_grad for p in params]
        own = np.repeat(np.array(differs, bool), [p.numel() for p in params])
        buffers = sum(b.numel() for b in self.net.buffers())
        first = draw.normal(scale=0.4, size=own.size)
        self.starts = []  # by rank: all parameters and all buffers, each in a row
        for rank in range(ranks):
            others = draw.normal(scale=0.4, size=own.size)
            mine = (np.where(own, others, first) if rank else first).astype(np.float32)
            values = draw.integers(1, 100, size=buffers).astype(np.float32)
            self.starts.append((mine, values))

    def make(self, factors: Sequence[float]) -> Net:
        """Return the network, whose accelerator tells `factors` at once."""
        told = iter(factors)
        return Net(**self.net_arguments, accelerator=lambda layer: next(told))

    def run(self) -> tuple[Outcome, Diary]:
        """Let the student's program do it; the machine is the last rank."""
        common = {"net": self.net_arguments, "rate": self.rate, "plan": self.plan}
        common |= {"bucket_bytes": self.bucket_bytes}
        given = [
            common | {"params": params, "buffers": buffers, "x": x, "y": y}
            for (params, buffers), x, y in zip(self.starts, self.x, self.y, strict=True)
        ]
        outcome, diary = wired(self.rig, given, 40, machine=self.machine)
        return outcome, Diary(diary)

    def truth(self) -> np.ndarray:
        """One process: by rank and step the gradients of this rank's samples."""
        nets = [self.make(factors) for factors in self.factors]
        grads: list[list[np.ndarray]] = [[] for _ in nets]
        now = self.starts[0][0].astype(np.float64)
        for step, plan in enumerate(self.plan):
            for rank, net in enumerate(nets):
                fill(net.parameters(), now)
                net.zero_grad()
                for micro, about in enumerate(plan["micro"]):
                    if not about["raises"]:
                        x, y = self.x[rank, step, micro], self.y[rank, step, micro]
                        error = loss(net, x, y, about["heads"][rank])
                        (error / len(plan["micro"])).backward()
                grads[rank].append(gradients(net))
            if self.rate:  # then all parameters are trained
                now = now - self.rate * np.mean([row[-1] for row in grads], axis=0)
        return np.array(grads)

    def sizes(self) -> list[int]:
        """Bytes of each trained parameter, in the order of parameters()."""
        trained = [p for p in self.net.parameters() if p.requires_grad]
        return [p.numel() * p.element_size() for p in trained]

    def buckets(self) -> list[int]:
        """Return how many bytes each bucket of a step holds."""
        totals: list[int] = []
        room = 0
        for size in reversed(self.sizes()):
            if not totals or size > room:
                totals, room = [*totals, 0], self.bucket_bytes
            totals[-1] += size
            room -= size
        return totals

    def judged(self) -> tuple[Outcome, Diary]:
        """Let the student's program do it; decide the case if that is no training."""
        outcome, diary = self.run()
        outcome.must_give("grads")
        for step in range(len(self.plan)):
            for rank in range(self.ranks):
                if not diary.of(step, rank, "call"):
                    told = f"makes no collective call in step {step}"
                    raise Decided(fail(f"rank {rank} {told}"))
        return outcome, diary

    def same_gradients(self, outcome: Outcome, scaled: bool = True) -> Verdict:
        """Compare the gradients; if `scaled`, forgive one factor common to all."""
        for step, expected in enumerate(self.truth().mean(0)):
            if scaled:
                expected = up_to_scale(expected, outcome.outputs[0]["grads"][step])
            for rank, given in enumerate(outcome.outputs):
                if words := compare(rank, expected, given["grads"][step], **TOLERANCE):
                    return fail(f"gradients of step {step}: {words}")
        return PASS

    def sent_once(self, diary: Diary) -> Verdict | None:
        """Say so if a rank sends more or less than each gradient once in a step; what
        it agrees on in the first one comes on top.
        """
        expected = sum(self.sizes())
        for rank, step in product(range(self.ranks), range(len(self.plan))):
            got = sum(call["bytes"] for call in diary.of(step, rank, "call"))
            if got < expected or step and got > expected:
                told = f"{expected} bytes sent in step {step}"
                return fail(f"rank {rank} expected {told}, got {got}")
        return None

    def sent_late(self, diary: Diary, steps: Sequence[int]) -> Verdict | None:
        """Say so if a rank made no call before its backward() was through."""
        for step in steps:
            for rank in range(self.ranks):
                if not diary.early(step, rank):
                    told = f"has sent nothing when backward() of step {step} is through"
                    return fail(f"rank {rank} {told}: send each bucket when it is full")
        return None


def accumulated(
    rig: Rig, net: dict, plan: list[dict], micro: int, **more: Any
) -> Verdict:
    """Judge steps of `micro` micro-batches, of which all but the last are in no_sync():
    no rank makes a call there, nor before all their layers have been computed.
    """
    case = Case(rig, net, plan, bucket_bytes=1, nap=BRIEF, **more)
    outcome, diary = case.judged()
    steps = range(len(case.plan))
    for rank, step in product(range(case.ranks), steps):
        whole = [not about["raises"] for about in case.plan[step]["micro"][:-1]]
        layers, done = sum(whole) * case.net.depth, 0
        for entry in diary.of(step, rank, "backward", "layer", "call"):
            done += entry["what"] == "backward"
            layers -= entry["what"] == "layer"
            if entry["what"] == "call" and (done < micro - 1 or layers > 0):
                at = min(done, micro - 2)
                where = f"in no_sync(), micro-batch {at} of step {step}"
                return fail(f"rank {rank} calls {entry['about']} {where}")
    return case.sent_late(diary, steps) or case.same_gradients(outcome)


# --- against the clock ---


def hidden(
    rig: Rig, *, ranks: int, sizes: list[int], late: int, **more: Any
) -> Verdict:
    """A step takes at most 1.25 times as long as the shortest possible, in which only
    the last bucket is on the wire when backward() ends; backward() waits for nobody.

    That is what hooks that send at once come to, and torch's DDP, by the machine's own
    clock; a thread that sends may come a layer too late. Naps and wire are such that a
    step that hides nothing takes 1.5 times as long.
    """
    size, layers = 4 * sizes[0] ** 2, len(sizes) - 1
    plan: list[dict] = [{}, {"late": late}, *[{}] * ROUNDS]
    net, wire = {"sizes": sizes}, (CALL, LAYER / size)
    more |= {"ranks": ranks, "bucket_bytes": size, "nap": NAP, "wire": wire}
    case = Case(rig, net, plan, **more)
    outcome, diary = case.judged()
    if diary.of(1, late, "held up"):
        others = ", ".join(str(rank) for rank in range(ranks) if rank != late)
        told = f"did not come through backward() before rank {late} had begun its own"
        return fail(f"rank {others} {told}: backward() must wait for nobody")
    timed = range(2, len(plan))
    verdict = case.same_gradients(outcome)
    if verdict.state != "pass":
        return verdict
    own = case.truth()
    for rank in range(ranks):
        for step in range(len(plan)):
            if len(diary.of(step, rank, "layer")) != layers:
                told = f"computes the {layers} layers of step {step} at another time"
                return fail(f"rank {rank} {told}")
        for step in timed:
            if words := not_carried(diary, step, rank, own[rank, step]):
                return fail(f"rank {rank}: {words}")
    if words := too_slow(diary, timed, layers * NAP + CALL + LAYER):
        why = (too_late(case, diary, timed[0], rank) for rank in range(ranks))
        return fail(": ".join([words, *filter(None, why)][:2]))
    return PASS


def too_slow(diary: Diary, steps: Sequence[int], best: float) -> str | None:
    """Say so if `steps` take too long; the shortest possible takes `best` seconds."""
    own = median(map(diary.seconds, steps))
    if own <= SLOWEST * best:
        return None
    limit = f"at most {SLOWEST} times the shortest possible, {1000 * best:.0f} ms"
    return f"expected a step to take {limit}, got {1000 * own:.0f} ms"


def too_late(case: Case, diary: Diary, step: int, rank: int) -> str | None:
    """Say what had not been sent when backward() was one layer further on."""
    sizes, sent = case.sizes(), 0
    for entry in diary.of(step, rank, "layer", "call"):
        if entry["what"] == "call":
            sent += entry["bytes"]
        elif sent < (expected := sum(sizes[entry["about"] + 2 :])):
            last = len(sizes) - 1
            when = f"when backward() began layer {entry['about']} of 0 to {last}"
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
