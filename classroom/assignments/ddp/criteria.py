"""Assignment 2, DDP from scratch: a DataParallel with buckets, overlap and no_sync.

What is judged is in which order the ranks asked for layers and made their calls; no
time is measured. Except in `start` and `steps`, all ranks begin with the same weights,
and a factor that all gradients have in common (a sum instead of the mean) is forgiven:
one mistake costs one criterion.
"""

from collections.abc import Sequence
from itertools import accumulate, product
from typing import Any

import numpy as np

from classroom.assignments.beside.averaging import Net, fill, gradients, loss
from classroom.assignments.beside.wired import wired
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail

PROGRAMS = {"program": "ddp.py"}
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
SAMPLES, RATE = 5, 0.05
EVERYTHING = 1_000_000  # bytes: a bucket that holds any network here
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}
COARSE, MOST = 0.01, 0.8  # relative, twice what bfloat16 may be off; of the numbers


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

    def sizes(self, step: int, rank: int) -> list[int]:
        """How many bytes each all_reduce of a step carries."""
        calls = self.of(step, rank, "call")
        return [call["bytes"] for call in calls if call["about"] == "all_reduce"]


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
        width = max(sizes[-1], sum(range(1 + net.get("heads", 0))))
        dtype = net.get("dtype", "float32")
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
        """Compare the gradients; if `scaled`, forgive one factor common to all, which
        most numbers of the first step show.
        """
        truth, first = self.truth(), outcome.outputs[0]["grads"][0]
        used = truth[0] != 0
        factor = np.median(first[used] / truth[0][used])
        factor = factor if scaled and 0 < factor < np.inf else 1.0
        for step, mean in enumerate(truth):
            expected = factor * mean
            for rank, given in enumerate(outcome.outputs):
                got = given["grads"][step]
                if words := compare(rank, expected, got, **TOLERANCE):
                    words += rounded(expected, got)
                    return fail(f"gradients of step {step}: {words}")
        return PASS

    def sent_once(self, diary: Diary) -> Verdict | None:
        """Say so if a rank sends more or less than each gradient once in a step.

        One all_reduce of the first one may be about the order.
        """
        expected = sum(self.sizes())
        for rank, step in product(range(self.ranks), range(len(self.plan))):
            got = sum(sizes := diary.sizes(step, rank))
            if expected not in (got, *(got - size for size in sizes if step == 0)):
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
                late = fail(f"{told}: send a bucket when it is full")
                return self.sent_once(diary) or late  # nor are they sent afterwards
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


def rounded(expected: np.ndarray, got: np.ndarray) -> str:
    """Say so if nearly all numbers that differ do so by what bfloat16 leaves out."""
    off, size = np.abs(got - expected), np.abs(expected)
    differ = off > TOLERANCE["atol"] + TOLERANCE["rtol"] * size
    few = np.mean((off < COARSE * size)[differ]) > MOST
    return f": most by less than {COARSE:.0%}, as if they had been rounded" * bool(few)


# --- criteria ---


def start(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """Every rank begins with rank 0's parameters and buffers."""
    net = {"sizes": sizes, "bias": True, "norm": True}
    case = Case(rig, net, [], apart="all", **more)
    outcome, _ = case.run()
    expected = np.concatenate(case.starts[0]).astype(np.float64)
    unfinished = "NotImplementedError" in (outcome.failure or "")
    verdict = compare_all(expected, outcome, "start")
    if verdict.state != "pass" or not unfinished:  # elsewhere than in what is judged
        outcome.must_give("start")
    return verdict


def steps(rig: Rig, *, sizes: list[int], steps: int, **more: Any) -> Verdict:
    """From different weights, every step is that of one process, and adds no hook."""
    net = {"sizes": sizes, "bias": True}
    case = Case(rig, net, [{}] * steps, apart="all", rate=RATE, **more)
    outcome, _ = case.judged()
    for rank, given in enumerate(outcome.outputs):
        if (last := given["hooks"][-1]) > (first := given["hooks"][1]):
            told = f"{first} hooks after step 1, {last} after step {steps - 1}"
            return fail(f"rank {rank}: its parameters have {told}")
    return case.same_gradients(outcome, scaled=False)


def buckets(
    rig: Rig, *, sizes: list[int], dtype: str = "float32", **more: Any
) -> Verdict:
    """From the second step on, no all_reduce is larger than a bucket, there are no more
    than needed, and nothing is sent twice, nor by another collective.
    """
    case = Case(rig, {"sizes": sizes, "bias": True, "dtype": dtype}, [{}] * 3, **more)
    _, diary = case.judged()
    params, expected = case.sizes(), case.buckets()
    for step, rank in product((1, 2), range(case.ranks)):
        got = diary.sizes(step, rank)
        others = len(diary.of(step, rank, "call")) - len(got)
        large = [n for n in got if n > case.bucket_bytes and n not in params]
        if others or large or sum(got) != sum(params) or len(got) > len(expected):
            told = f"rank {rank} expected all_reduces such as {expected} bytes"
            told += f" in step {step}, got {got}"
            return fail(f"{told} and {others} other calls" if others else told)
    return PASS


def early(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """From the second step on, a bucket has been sent before the last layer is reached,
    and all but the last when backward() is through, whether a hook waits for them or
    not.
    """
    case = Case(rig, {"sizes": sizes}, [{}] * 2, bucket_bytes=1, **more)
    *ahead, _ = case.buckets()
    case.needs = [[], [ahead[0], *[0] * (len(sizes) - 2), sum(ahead)]]
    outcome, diary = case.judged()
    return case.sent_late(diary) or case.same_gradients(outcome)


def fast(rig: Rig, *, sizes: list[int], late: int, **more: Any) -> Verdict:
    """As fast as PyTorch's DDP: a layer's bucket is sent before the next layer is
    computed, and backward() waits for nobody, not even for a rank that has not begun.
    """
    case = racing(rig, sizes=sizes, late=late, **more)
    outcome, diary = case.judged()
    wrong = case.waited(diary) or case.sent_late(diary) or case.sent_once(diary)
    return wrong or case.same_gradients(outcome)


def racing(rig: Rig, *, sizes: list[int], late: int, **more: Any) -> Case:
    """A case whose third step has a rank that is late; the fourth is looked at."""
    plan: list[dict] = [{}, {}, {"late": late}, {}]
    case = Case(rig, {"sizes": sizes}, plan, bucket_bytes=1, **more)
    after = [0, *accumulate(reversed(case.sizes()))]  # bytes of the layers behind each
    case.needs = [[], [], [], [*after[-2::-1], after[-1]]]
    return case


def order(
    rig: Rig,
    *,
    sizes: list[int],
    registered: list[int] | None = None,
    heads: list[list[int]] | None = None,
    **more: Any,
) -> Verdict:
    """From the second step on, all buckets but the last are sent during backward(), in
    the order in which rank 0's first one had the gradients ready.
    """
    net: dict = {"sizes": sizes, "registered": registered}
    step: dict = {}
    if heads:
        net["heads"], step = 1 + max(map(max, heads)), {"heads": heads}
    case = Case(rig, net, [step] * 3, bucket_bytes=1, **more)
    names = {name: 4 * p.numel() for name, p in case.net.named_parameters()}
    # Autograd works backward: what was used last is ready first.
    used = [f"layer_{layer}.weight" for layer in range(len(sizes) - 1)]
    used += [f"head_{head}.weight" for head in (heads or [[]])[0]]
    expected = [names[name] for name in reversed(used)]
    case.needs = [[], *[[0] * (len(sizes) - 1) + [sum(expected[:-1])]] * 2]
    outcome, diary = case.judged()
    for number, rank in product((1, 2), range(case.ranks)):
        if (got := diary.sizes(number, rank)) != expected:
            told = f"rank {rank} expected all_reduces of {expected} bytes"
            return fail(f"{told} in step {number}, got {got}")
    return case.sent_late(diary) or case.same_gradients(outcome)


def waits(rig: Rig, *, sizes: list[int], **more: Any) -> Verdict:
    """However long they take, finish() returns when all means are there."""
    case = Case(rig, {"sizes": sizes}, [{}] * 2, lazy=True, **more)
    return case.same_gradients(case.judged()[0])


def no_sync(
    rig: Rig,
    *,
    sizes: list[int],
    micro: int,
    steps: int = 2,
    raises: int | None = None,
    **more: Any,
) -> Verdict:
    """In no_sync() nothing is sent; the next backward() sends the whole sum, also after
    a raise. The last step has one micro-batch: no factor hides how many there were.
    """
    rows = [{"raises": number == raises} for number in range(micro)]
    plan: list[dict] = [{"micro": micro}, *[{"micro": rows}] * (steps - 1), {}]
    needs = [[], *[[0] * (len(sizes) - 1) + [1]] * steps]
    more |= {"needs": needs, "bucket_bytes": 1}
    case = Case(rig, {"sizes": sizes, "bias": True}, plan, **more)
    outcome, diary = case.judged()
    for rank, step in product(range(case.ranks), range(steps)):
        words = [e["what"] for e in diary.of(step, rank, "backward", "call")]
        if (at := words.index("call")) < micro - 1:
            told = f"in no_sync(), micro-batch {at} of step {step}"
            return fail(f"rank {rank} makes a call {told}")
    wrong = case.sent_late(diary) or case.sent_once(diary)
    return wrong or case.same_gradients(outcome)


def frozen_tied(rig: Rig, *, ranks: int, seed: int = 0, **net: Any) -> Verdict:
    """What is frozen is the same from the start, and not sent; what is used twice is
    sent once.
    """
    net["bias"] = True
    case = Case(rig, net, [{}] * 2, ranks=ranks, seed=seed, apart="frozen")
    outcome, diary = case.judged()
    for rank, given in enumerate(outcome.outputs):
        if given["stray"]:
            return fail(f"rank {rank} has a .grad at a frozen parameter")
    return case.sent_once(diary) or case.same_gradients(outcome)


def unused(
    rig: Rig,
    *,
    sizes: list[int],
    heads: list[list[int]],
    micro: int = 1,
    dtype: str = "float32",
    **more: Any,
) -> Verdict:
    """Parameters that a rank, or all ranks, have not used count as zeros."""
    count, ranks = 1 + max(head for row in heads for head in row), len(heads)
    net = {"sizes": sizes, "bias": True, "heads": count, "dtype": dtype}
    # Every rank moves on to its neighbor's heads with each micro-batch and step.
    turns = [heads[turn % ranks :] + heads[: turn % ranks] for turn in range(micro + 2)]
    steps = range(3)
    plan = [{"micro": [{"heads": turns[s + m]} for m in range(micro)]} for s in steps]
    case = Case(rig, net, plan, **{"bucket_bytes": 1, **more})
    return case.same_gradients(case.judged()[0])


CRITERIA = named(
    start, steps, buckets, early, fast, order, waits, no_sync, frozen_tied, unused
)
