"""Assignment 11, gpt3d: a small GPT on eight ranks, cut along three dimensions.

The truth is one process with the whole model. It multiplies the hidden layers by the
same numbers as the ranks, which only the judge knows: see harness.py.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import torch

from classroom.assignments.beside.serial import as_in_a_rank
from classroom.assignments.beside.weighed import too_heavy
from classroom.assignments.gpt3d.harness import model, prints
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Verdict, blocked, compare, fail
from ddp_lab.gpt import loss_of

PROGRAMS = {"program": "gpt3d.py"}
WORDS = {
    "layers": "{} blocks",
    "width": "of width {}",
    "heads": "{} heads",
    "rows": "{} rows",
    "time": "of {} characters",
    "micro": "{} micro-batches",
    "steps": "{} steps",
    "limit": "norm at most {}",
}
RANKS, VOCAB, RATE = 8, 96, 0.05
CUT = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}
EXACT = {"rtol": 1e-8, "atol": 1e-10}
LEAST, MOST = 0.8, 1.03  # times the bytes needed
MOST_BESIDE = 2.0  # where memory is asked for, and bytes are another criterion's
# What the loopback carries, launch and headers included, is more on a busy machine.
MOST_OF_ALL, LAUNCH_BYTES = 1.2, 5_000_000
BEGINS_WITH = 10_000_000  # bytes that a program may hold before its first step
MEMORY_SLACK, GROWS_ANYWAY = 0.05, 3_000_000  # of what is needed; bytes
SILENCE = 40  # seconds; eight ranks take their time on a busy machine


def place(rank: int) -> tuple[int, int, int]:
    """Return where a rank is along pipeline, data and tensor."""
    return rank // 4, rank // 2 % 2, rank % 2


class Case:
    """The inputs of one run, drawn by `seed`, and the truth.

    Args:
        rows: of a batch, over both replicas.
        time: characters of a row.
        micro: micro-batches of each pipeline.
        limit: of the gradients' norm, if they are clipped.
        weigh: whether memory is measured between two steps.
    """

    def __init__(
        self,
        rig: Rig,
        seed: int,
        layers: int,
        width: int,
        heads: int,
        rows: int,
        time: int,
        micro: int,
        steps: int = 1,
        limit: float | None = None,
        weigh: bool = False,
    ):
        draw = rig.draw(seed)
        self.rig, self.layers, self.rows, self.micro = rig, layers, rows, micro
        self.steps, self.limit = steps, limit
        sizes = {"layers": layers, "width": width, "heads": heads, "context": time}
        self.given: dict = {"sizes": sizes, "seed": int(draw.integers(2**62))}
        self.given |= {"micro": micro, "limit": limit, "weigh": weigh, "steps": steps}
        self.given |= {"rate": RATE}
        # The characters to come are drawn, too: they do not follow from the others.
        self.x, self.y = draw.integers(VOCAB, size=(2, steps, 2, rows // 2, time))
        # By step and block, replica and half.
        self.factors = draw.uniform(0.5, 1.5, (steps, layers, 2, 2))
        self.came: dict[tuple, list[float]] = {}  # by the same: what the judge is shown
        self.half = -(-layers // 2)  # blocks of the first stage
        self.truth()

    def run(self) -> Outcome:
        """Let the student's program do it."""
        given = []
        for rank in range(RANKS):
            stage, replica, _ = place(rank)
            data = {"y": self.y} if stage else {"x": self.x}
            mine = {n: v[:, replica].copy() for n, v in data.items()}
            given.append(self.given | mine)
        more: dict = {"timeout": SILENCE, "reply": self.reply}
        return self.rig.run(RANKS, given, quiet=True, **more)  # eight are enough

    def reply(self, rank: int, asked: dict) -> float:
        """Do the judge's piece of a block."""
        _, replica, half = place(rank)
        return self.factors[asked["step"], asked["block"], replica, half]

    def truth(self) -> None:
        """One process: by step its loss, norm and gradients; its weights at the end."""
        step = replica = 0

        def piece(block: int, h: torch.Tensor) -> torch.Tensor:
            pieces = []
            for half, part in enumerate(h.chunk(2, -1)):
                at = step, block, replica, half
                self.came[at] = prints(part)
                pieces.append(part * self.factors[at])
            return torch.cat(pieces, -1)

        with as_in_a_rank():
            net = model(self.given["sizes"], self.given["seed"], piece)
            weights = dict(net.named_parameters())
            sgd = torch.optim.SGD(net.parameters(), RATE)
            self.losses, self.norms, self.grads = [], [], []
            for step in range(self.steps):
                sgd.zero_grad()
                losses = []
                for replica in range(2):
                    x, y = (
                        torch.from_numpy(rows[step, replica])
                        for rows in (self.x, self.y)
                    )
                    losses.append(loss_of(net(x), y) / 2)
                    losses[-1].backward()
                self.losses.append(sum(loss.item() for loss in losses))
                most = self.limit or float("inf")
                norm = torch.nn.utils.clip_grad_norm_(net.parameters(), most)
                self.norms.append(norm.item())
                self.grads.append({n: w.grad.clone() for n, w in weights.items()})
                sgd.step()
        self.weights = {n: w.detach() for n, w in weights.items()}

    def share(self, rank: int, whole: dict) -> dict[str, np.ndarray]:
        """Return what a rank holds of all weights, or of all gradients."""
        stage, _, half = place(rank)
        first, found = not stage, {}
        for name, tensor in whole.items():
            parts = name.split(".")
            if parts[0] == "blocks":
                if (int(parts[1]) < self.half) == first:
                    dim = CUT.get(parts[-2])
                    mine = tensor if dim is None else tensor.chunk(2, dim)[half]
                    found[name] = mine.numpy()
            elif first == (parts[0] in ("tokens", "positions")):
                found[name] = tensor.numpy()
        if not first:
            found["head.weight"] = whole["tokens.weight"].numpy()
        return dict(sorted(found.items()))

    def problem(self, outcome: Outcome, *names: str) -> Verdict | None:
        """Return why nothing can be judged: a failed run, or work not done."""
        if problem := outcome.problem("shapes", "sent", *names):
            return problem
        for rank, given in enumerate(outcome.outputs):
            expected = self.share(rank, self.weights)
            shapes = {name: list(part.shape) for name, part in expected.items()}
            for name in sorted({*shapes, *given["shapes"]}):
                mine, got = (of.get(name, "none") for of in (shapes, given["shapes"]))
                if mine != got:
                    what = f"{name} of the shape {mine}, got {got}"
                    return fail(f"rank {rank} expected to hold {what}")
        # In the order of the model: the first difference is where it begins.
        for at in sorted(self.came):
            step, block, replica, half = at
            rank = 4 * (block >= self.half) + 2 * replica + half
            events = self.asked(outcome, rank, step, block)
            came = np.array(sum((e["rows"] for e in events if e["what"] == "ask"), []))
            # A library may have tried the stage out with zeros; that costs bytes only.
            near = np.isclose(came, np.array(self.came[at])[:, None], 1e-6, 1e-6)
            if missing := (~near.any(1)).sum():
                told = f"of its {len(near)} rows, {missing} have not come"
                told += " through its half of the MLP as in one process"
                return fail(f"rank {rank}, step {step}, block {block}: {told}")
        return None

    def asked(self, outcome: Outcome, rank: int, step: int, block: int) -> list[dict]:
        """Return what a rank has told of a block in a step, in order."""
        at = {"step": step, "block": block}
        events = (e for e in outcome.events[rank] if e["what"] in ("ask", "back"))
        return [event for event in events if event.items() >= at.items()]

    def differs(self, outcome: Outcome, what: str) -> Iterator[str]:
        """Yield in words where "grads" of a step, or "weights", differ."""
        step = int(what.split()[-1]) if " " in what else None
        whole = self.weights if step is None else self.grads[step]
        for rank, given in enumerate(outcome.outputs):
            row, at = given[what], 0
            for name, expected in self.share(rank, whole).items():
                mine = row[at : at + expected.size]
                at += expected.size
                if words := compare(rank, expected.ravel(), mine, **EXACT):
                    told = "weights" if step is None else f"gradients of step {step}"
                    yield f"{told}, {name}: {words}"

    def right(self, outcome: Outcome, *more: str) -> Verdict | None:
        """Return what is wrong with weights after all steps, or `more`."""
        if problem := self.problem(outcome, "weights", *more):
            return problem
        for what in (*more, "weights"):
            for words in self.differs(outcome, what):
                return fail(words)
        return None

    def lost(self, outcome: Outcome) -> Verdict | None:
        """Return what is wrong with the losses, which the last stage returns."""
        for step, expected in enumerate(self.losses):
            for rank in range(RANKS // 2, RANKS):
                got = outcome.outputs[rank].get(f"loss {step}", "nothing")
                if words := compare(rank, expected, got, **EXACT):
                    return fail(f"loss of step {step}: {words}")
        return None

    def needed(self) -> int:
        """Return the bytes that all ranks together send: rings, in float64."""
        width, time = (self.given["sizes"][n] for n in ("width", "context"))
        activation = 8 * self.rows // 2 * time * width  # of a replica
        tensor = 4 * self.layers * 4 * activation  # four sums a block, of four ranks
        pipeline = 4 * 2 * activation  # there and back, in four pipelines
        shares = (self.share(rank, self.weights) for rank in range(RANKS))
        data = sum(part.nbytes for share in shares for part in share.values())
        tied = RANKS * 8 * VOCAB * width
        return self.steps * (tensor + pipeline + data + tied)

    def sent(self, outcome: Outcome, least: float, most: float) -> Verdict | None:
        """Say so if the ranks sent less or more than so many times the bytes needed.

        They tell what the kernel has counted for their sockets. What they do not tell
        is in its count of the loopback, which only a sandbox has to itself.
        """
        told = [given["sent"] for given in outcome.outputs]
        if None in told:
            return blocked("this system does not tell what a process has sent")
        sent, needed, every = sum(told), self.needed(), outcome.bytes_on_wire
        limit = most * needed
        if least * needed < sent < limit and every is not None:
            sent, limit = every, MOST_OF_ALL * limit + LAUNCH_BYTES
        if not least * needed < sent < limit:
            words = f"{needed / 1e6:,.1f} MB on the wire, got {sent / 1e6:,.1f}"
            return fail(f"expected {words}")
        return None


# --- criteria ---


def loss(rig: Rig, *, seed: int = 0, **sizes: Any) -> Verdict:
    """Ranks of the last stage return the loss of one process with the whole batch, and
    every rank takes its own rows through its own half of each of its blocks.
    """
    case = Case(rig, seed, **sizes)
    outcome = case.run()
    return case.problem(outcome) or case.lost(outcome) or PASS


def gradients(rig: Rig, *, seed: int = 0, **sizes: Any) -> Verdict:
    """Each rank ends with its share of the gradients of one process."""
    case = Case(rig, seed, **sizes)
    return case.right(case.run(), "grads 0") or PASS


def clip(rig: Rig, *, limit: float, seed: int = 0, **sizes: Any) -> Verdict:
    """The norm is that of all gradients, each counted once, and with it they are
    clipped as in one process.
    """
    case = Case(rig, seed, limit=limit, **sizes)
    outcome = case.run()
    if problem := case.problem(outcome, "norm 0"):
        return problem
    for rank, given in enumerate(outcome.outputs):
        if words := compare(rank, case.norms[0], given["norm 0"], rtol=1e-8):
            return fail(f"norm: {words}")
    return case.right(outcome, "grads 0") or PASS


def steps(rig: Rig, *, seed: int = 0, **sizes: Any) -> Verdict:
    """Losses and weights stay those of one process, step after step."""
    case = Case(rig, seed, **sizes)
    outcome = case.run()
    return case.right(outcome) or case.lost(outcome) or PASS


def memory(rig: Rig, *, width: int, heads: int, seed: int = 0, **sizes: Any) -> Verdict:
    """Between two steps no rank keeps more than its share of weights and gradients, and
    the second step is as right as the first. Nor does it get the rest for each step:
    that would be three times the bytes that the cuts need.
    """
    width += 2 * heads * int(rig.draw(seed).integers(8))
    case = Case(rig, seed, width=width, heads=heads, steps=2, weigh=True, **sizes)
    outcome = case.run()
    if problem := case.right(outcome):
        return problem
    for rank, events in enumerate(outcome.events):
        order = [key for key, _ in groupby(e.get("step", e["what"]) for e in events)]
        weighed = [event for event in events if event["what"] == "weigh"]
        if order != ["weigh", 0, "weigh", 1] or len(weighed) != 3:
            return fail(f"rank {rank} is not weighed between its steps: {order}")
        if None in (event["memory"] for event in weighed):
            return blocked("this system does not tell how much memory a process has")
        for event in weighed[:2]:  # it holds the whole model until it begins
            event["memory"] -= sum(w.nbytes for w in case.weights.values())
        share = sum(part.nbytes for part in case.share(rank, case.weights).values())
        most = (1 + MEMORY_SLACK) * 2 * share + GROWS_ANYWAY
        if problem := too_heavy(rank, weighed, BEGINS_WITH, most):
            return problem
    return case.sent(outcome, 0, MOST_BESIDE) or PASS


def flight(rig: Rig, *, seed: int = 0, **sizes: Any) -> Verdict:
    """The first stage has two micro-batches under way at most, and at least once; the
    last stage has one.
    """
    case = Case(rig, seed, **sizes)
    outcome = case.run()
    if problem := case.problem(outcome):
        return problem
    each = case.rows // 2 // case.micro
    for rank in range(RANKS):
        stage = place(rank)[0]
        blocks = range(case.half, case.layers) if stage else range(case.half)
        for block in blocks:
            events = case.asked(outcome, rank, 0, block)
            rows = [
                len(e["rows"]) if e["what"] == "ask" else -e["rows"] for e in events
            ]
            most, expected = max(np.cumsum(rows)) / each, 2 - stage
            if sum(rows) or most != expected:
                told = f"{expected} micro-batches under way in block {block}"
                return fail(f"rank {rank} expected up to {told}, got {most:g}")
    return PASS


def wire(rig: Rig, *, seed: int = 0, **sizes: Any) -> Verdict:
    """All ranks together send what the three cuts need, and 3 % more at most; where it
    is much less, a rank has computed what another one should have.
    """
    case = Case(rig, seed, **sizes)
    outcome = case.run()
    if problem := case.right(outcome, "grads 0"):
        return problem
    return case.sent(outcome, LEAST, MOST) or PASS


CRITERIA = named(loss, gradients, clip, steps, memory, flight, wire)
NEEDS: dict[str, list[str]] = {}
