"""The judge's side of averaging.py: inputs, truth, and the machine's diary.

What is judged is in which order the ranks asked for layers and made their calls; no
time is measured. In most criteria a factor that all gradients have in common (a sum
instead of the mean) is forgiven: one mistake costs one criterion.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from classroom.assignments.beside.averaging import Net, fill, gradients, loss
from classroom.assignments.beside.wired import wired
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail, up_to_scale

SAMPLES, RATE = 5, 0.05
EVERYTHING = 1_000_000  # bytes: a bucket that holds any network here
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}
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
        needs: by step, what must have been sent when; see `Machine`.
        lazy: whether a result comes only to who waits for it.
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
        needs: Sequence[Sequence[int]] = (),
        lazy: bool = False,
    ):
        draw = rig.draw(seed)
        self.rig, self.ranks, self.net_arguments, self.rate = rig, ranks, net, rate
        self.bucket_bytes, self.needs, self.lazy = bucket_bytes, needs, lazy
        self.plan = []
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
        self.net = Net(**net, accelerator=lambda layer: 1.0)
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

    def run(self) -> tuple[Outcome, Diary]:
        """Let the student's program do it; the machine is the last rank."""
        common = {"net": self.net_arguments, "rate": self.rate, "plan": self.plan}
        common |= {"bucket_bytes": self.bucket_bytes}
        given = [
            common | {"params": params, "buffers": buffers, "x": x, "y": y}
            for (params, buffers), x, y in zip(self.starts, self.x, self.y, strict=True)
        ]
        machine = {"needs": self.needs, "lazy": self.lazy}
        outcome, diary = wired(self.rig, given, 40, machine=machine)
        return outcome, Diary(diary)

    def truth(self) -> list[np.ndarray]:
        """One process: by step the mean of the ranks' gradients."""
        means, now = [], self.starts[0][0].astype(np.float64)
        for step, plan in enumerate(self.plan):
            grads = []
            for rank in range(self.ranks):
                fill(self.net.parameters(), now)
                self.net.zero_grad()
                for micro, about in enumerate(plan["micro"]):
                    if not about["raises"]:
                        x, y = self.x[rank, step, micro], self.y[rank, step, micro]
                        error = loss(self.net, x, y, about["heads"][rank])
                        (error / len(plan["micro"])).backward()
                grads.append(gradients(self.net))
            means.append(np.mean(grads, axis=0))
            if self.rate:  # then all parameters are trained
                now = now - self.rate * means[-1]
        return means

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
        for step, rank in product(range(len(self.plan)), range(self.ranks)):
            if not diary.of(step, rank, "call"):
                told = f"makes no collective call in step {step}"
                raise Decided(fail(f"rank {rank} {told}"))
        return outcome, diary

    def same_gradients(self, outcome: Outcome, scaled: bool = True) -> Verdict:
        """Compare the gradients; if `scaled`, forgive one factor common to all."""
        for step, expected in enumerate(self.truth()):
            if scaled:
                expected = up_to_scale(expected, outcome.outputs[0]["grads"][step])
            for rank, given in enumerate(outcome.outputs):
                if words := compare(rank, expected, given["grads"][step], **TOLERANCE):
                    return fail(f"gradients of step {step}: {words}")
        return PASS

    def sent_once(self, diary: Diary) -> Verdict | None:
        """Say so if a rank sends more or less than each gradient once in a step."""
        expected = sum(self.sizes())
        for rank, step in product(range(self.ranks), range(len(self.plan))):
            if (got := sum(diary.sizes(step, rank))) != expected:
                told = f"{expected} bytes sent in step {step}"
                return fail(f"rank {rank} expected {told}, got {got}")
        return None

    def sent_late(self, diary: Diary) -> Verdict | None:
        """Say so if a rank had not sent what it should when backward() was so far."""
        for step, needs in enumerate(self.needs):
            for entry in diary.of(step, None, "held up: settle"):
                layer = entry["about"]
                when = f"began layer {layer} of 0 to {len(needs) - 2}"
                when = when if layer >= 0 else "was through"
                told = f"rank {entry['rank']} had sent {entry['brought']} of"
                told += f" {needs[layer]} bytes when backward() of step {step} {when}"
                return fail(f"{told}: send a bucket when it is full")
        return None

    def waited(self, diary: Diary) -> Verdict | None:
        """Say so if a rank's backward() has waited for a rank that was late."""
        for step, plan in enumerate(self.plan):
            if diary.of(step, None, "held up: late"):
                others = [str(r) for r in range(self.ranks) if r != plan["late"]]
                told = f"rank {', '.join(others)} did not come through backward()"
                told += f" before rank {plan['late']} had begun its own"
                return fail(f"{told}: backward() must wait for nobody")
        return None
