"""A project, gpt3d: a small GPT on eight ranks, cut along three dimensions.

The truth is one process with the whole model. What comes out must be equal, and the
kernel counts what the ranks send: more than the cuts need is waste, and less means that
a rank has computed what another one should have.
"""

from typing import Any

import numpy as np
import torch

from classroom.assignments.beside.serial import as_in_a_rank
from classroom.assignments.gpt3d.harness import model
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Decided, Verdict, blocked, compare, fail
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
HELD_MOST, HELD_MORE = 1.05, 100_000  # times what is needed; bytes
SILENCE = 40  # seconds; eight ranks take their time on a busy machine


def place(rank: int) -> tuple[int, int, int]:
    """Return where a rank is along pipeline, data and tensor."""
    return rank // 4, rank // 2 % 2, rank % 2


class Case:
    """The inputs of one run, drawn by `seed`, the truth, and what came of it.

    Args:
        rows: of a batch, over both replicas.
        time: characters of a row.
        micro: micro-batches of each pipeline.
        limit: of the gradients' norm, if they are clipped.
        counts: whether the ranks count what autograd keeps for the backward.
    """

    def __init__(
        self,
        rig: Rig,
        *,
        layers: int,
        width: int,
        heads: int,
        rows: int,
        time: int,
        micro: int,
        steps: int = 1,
        limit: float | None = None,
        counts: bool = False,
        seed: int = 0,
    ):
        draw = rig.draw(seed)
        self.rows, self.time, self.steps, self.limit = rows, time, steps, limit
        self.half = -(-layers // 2)  # blocks of the first stage
        self.sizes = {"layers": layers, "width": width, "heads": heads}
        self.sizes["context"] = time + 1  # a text may be shorter
        self.seed = int(draw.integers(2**62))
        # The characters to come are drawn, too: they do not follow from the others.
        self.x, self.y = draw.integers(VOCAB, size=(2, steps, 2, rows // 2, time))
        self.truth()
        more: dict = {"sizes": self.sizes, "seed": self.seed, "rate": RATE}
        more |= {"micro": micro, "limit": limit, "steps": steps, "counts": counts}
        given = []
        for stage, replica, _ in map(place, range(RANKS)):
            data = {"y": self.y} if stage else {"x": self.x}
            given.append(more | {n: v[:, replica].copy() for n, v in data.items()})
        self.outcome: Outcome = rig.run(RANKS, given, quiet=True, timeout=SILENCE)
        self.outcome.must_give("shapes", "held", "sent", "weights", "grads")
        self.outputs = self.outcome.outputs

    def truth(self) -> None:
        """One process: losses, norms, the first gradients, the weights at the end."""
        with as_in_a_rank():
            net = model(self.sizes, self.seed)
            weights = dict(net.named_parameters())
            sgd = torch.optim.SGD(net.parameters(), RATE)
            self.losses, self.norms = [], []
            for x, y in zip(self.x, self.y, strict=True):
                sgd.zero_grad()
                loss = loss_of(net(_rows(x)), _rows(y))
                loss.backward()
                self.losses.append(loss.item())
                most = self.limit or float("inf")
                norm = torch.nn.utils.clip_grad_norm_(net.parameters(), most)
                self.norms.append(norm.item())
                if len(self.losses) == 1:
                    self.grads = {n: w.grad.clone() for n, w in weights.items()}
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

    def shapes(self) -> None:
        """Decide the case if a rank's parameters are not those of its share."""
        for rank, given in enumerate(self.outputs):
            expected = self.share(rank, self.weights)
            shapes = {name: list(part.shape) for name, part in expected.items()}
            for name in sorted({*shapes, *given["shapes"]}):
                mine, got = (of.get(name, "none") for of in (shapes, given["shapes"]))
                if mine != got:
                    what = f"{name} of the shape {mine}, got {got}"
                    raise Decided(fail(f"rank {rank} expected to hold {what}"))

    def same(self, what: str) -> None:
        """Decide the case if "grads" of step 0, or "weights" at the end, differ."""
        self.shapes()
        whole, told = self.weights, "weights"
        if what == "grads":
            whole, told = self.grads, "gradients of step 0"
        for rank, given in enumerate(self.outputs):
            row, at = given[what], 0
            for name, expected in self.share(rank, whole).items():
                mine, at = row[at : at + expected.size], at + expected.size
                if words := compare(rank, expected.ravel(), mine, **EXACT):
                    raise Decided(fail(f"{told}, {name}: {words}"))

    def numbers(self, what: str, expected: list[float], ranks: range) -> None:
        """Decide the case if "loss" or "norm" of a step differs on one of `ranks`."""
        for step, number in enumerate(expected):
            for rank in ranks:
                got = self.outputs[rank].get(f"{what} {step}", "nothing")
                if words := compare(rank, number, got, **EXACT):
                    raise Decided(fail(f"{what} of step {step}: {words}"))

    def needed(self) -> int:
        """Return the bytes that all ranks together send: rings, in float64."""
        width, layers = self.sizes["width"], self.sizes["layers"]
        activation = 8 * self.rows // 2 * self.time * width  # of a replica
        tensor = 4 * layers * 4 * activation  # four sums a block, of four ranks
        pipeline = 4 * 2 * activation  # there and back, in four pipelines
        shares = (self.share(rank, self.weights) for rank in range(RANKS))
        data = sum(part.nbytes for share in shares for part in share.values())
        tied = RANKS * 8 * VOCAB * width
        return self.steps * (tensor + pipeline + data + tied)


def _rows(data: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(data))  # of both replicas


# --- criteria ---


def loss(rig: Rig, **sizes: Any) -> Verdict:
    """Ranks of the last stage return the loss of one process with the whole batch."""
    case = Case(rig, **sizes)
    case.numbers("loss", case.losses, range(RANKS // 2, RANKS))
    return PASS


def gradients(rig: Rig, **sizes: Any) -> Verdict:
    """Each rank ends with its share of the gradients of one process."""
    Case(rig, **sizes).same("grads")
    return PASS


def clip(rig: Rig, **sizes: Any) -> Verdict:
    """The norm is that of all gradients, each counted once, and with it they are
    scaled.
    """
    case = Case(rig, **sizes)
    case.numbers("norm", case.norms, range(RANKS))
    case.same("grads")
    return PASS


def steps(rig: Rig, **sizes: Any) -> Verdict:
    """The losses and the weights of several steps are those of one process."""
    case = Case(rig, **sizes)
    case.numbers("loss", case.losses, range(RANKS // 2, RANKS))
    case.same("weights")
    return PASS


def held(rig: Rig, **sizes: Any) -> Verdict:
    """In a step the first stage keeps two micro-batches for their backward, the last
    one; in the end a rank has its share of weights and gradients, and no other tensor
    of size.
    """
    case = Case(rig, **sizes, counts=True)
    case.shapes()
    for rank, given in enumerate(case.outputs):
        expected, flying = 2 - place(rank)[0], round(float(given["flying"]))
        if flying and flying != expected:  # 0: its graph is not autograd's own
            told = f"rank {rank} keeps {flying} micro-batches for their backward"
            return fail(f"{told}, expected {expected}")
        share = sum(part.nbytes for part in case.share(rank, case.weights).values())
        most = HELD_MOST * 2 * share + HELD_MORE
        if given["held"] > most:
            told = f"rank {rank} holds {given['held'] / 1e6:,.2f} MB in tensors"
            return fail(f"{told}, expected at most {most / 1e6:,.2f}")
    return PASS


def wire(rig: Rig, **sizes: Any) -> Verdict:
    """All ranks together send what the three cuts need, and 3 % more at most; where it
    is much less, a rank has computed what another one should have.
    """
    case = Case(rig, **sizes)
    try:  # what they have computed is right in one respect at least
        case.same("grads")
    except Decided:
        case.shapes()
        case.numbers("loss", case.losses[:1], range(RANKS // 2, RANKS))
    if any(given["sent"] is None for given in case.outputs):
        return blocked("this system does not tell what a process has sent")
    sent, needed = sum(given["sent"] for given in case.outputs), case.needed()
    if not LEAST * needed < sent < MOST * needed:
        words = f"{needed / 1e6:,.1f} MB on the wire, got {sent / 1e6:,.1f}"
        return fail(f"expected {words}")
    return PASS


CRITERIA = named(loss, gradients, clip, steps, held, wire)
