"""Trains a network with the student's Overlap, on a machine that is one more process.

Ranks 0 to n - 1 are the student's. Rank n plays what they run on: for each of them an
accelerator, which takes its time for the backward of a layer, and between them the
wire, which carries one all_reduce after the other. It never imports the answer, so its
clock and its diary are its own.

Naps take the place of computing: they overlap on one core, too. They really pass; but
what is counted is what they should take, from when a rank had got all answers that came
before its order. So time depends on what waits for what, and on no other process.

A layer's gradient is multiplied by a number that the accelerator tells when it is done:
before that nobody can know it.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

GIVEN_UP_AFTER = 10.0  # seconds after which a call that a rank has not made has failed
HELD_UP = 4.0  # seconds after which a late rank goes on in any case
LARGEST = 10_000_000  # bytes of a message
Accelerator = Callable[[int], float]  # given a layer, takes its time and tells a number


# --- the network, which the judge has as well ---


class Backward(torch.autograd.Function):
    """The identity, whose backward takes as long as the accelerator does."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, layer: int, accelerator: Accelerator
    ) -> torch.Tensor:
        ctx.layer, ctx.accelerator = layer, accelerator
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient * ctx.accelerator(ctx.layer), None, None


class Net(nn.Module):
    """Layers tanh(x @ weight), then as many heads as the caller names.

    Args:
        sizes: the widths, from the input to the last layer's output.
        accelerator: takes its time for the backward of each layer.
        registered: the layers in the order of `parameters()`, if that is another.
        frozen: layers that are not trained.
        tied: pairs of layers of one shape: the first uses the second's weight.
        heads: how many maps to one number there are; see `forward`.
    """

    def __init__(
        self,
        sizes: list[int],
        accelerator: Accelerator,
        registered: Sequence[int] | None = None,
        frozen: Sequence[int] = (),
        tied: Sequence[Sequence[int]] = (),
        heads: int = 0,
    ):
        super().__init__()
        self.accelerator, self.depth = accelerator, len(sizes) - 1
        shapes = list(pairwise(sizes))
        for layer in registered or range(self.depth):
            weight = nn.Parameter(torch.empty(shapes[layer]), layer not in frozen)
            self.register_parameter(f"layer_{layer}", weight)
        for one, other in tied:
            setattr(self, f"layer_{one}", getattr(self, f"layer_{other}"))
        for head in range(heads):
            weight = nn.Parameter(torch.empty(sizes[-1], 1))
            self.register_parameter(f"head_{head}", weight)

    def forward(self, x: torch.Tensor, heads: Sequence[int] = ()) -> torch.Tensor:
        """Return (batch, len(heads)), or without heads the last layer's output."""
        for layer in range(self.depth):
            x = torch.tanh(x @ getattr(self, f"layer_{layer}"))
            x = Backward.apply(x, layer, self.accelerator)
        if not heads:
            return x
        return torch.cat([x @ getattr(self, f"head_{head}") for head in heads], dim=1)


def loss(
    net: nn.Module, x: np.ndarray, y: np.ndarray, heads: list[int]
) -> torch.Tensor:
    out = net(torch.from_numpy(x), heads)
    return F.mse_loss(out, torch.from_numpy(y)[:, : out.shape[1]], reduction="sum")


def fill(net: nn.Module, numbers: np.ndarray) -> None:
    """Put `numbers`, one row, into the parameters of `net`."""
    for parameter in net.parameters():
        row, numbers = np.split(numbers, [parameter.numel()])
        parameter.data.copy_(torch.from_numpy(row.copy()).view(parameter.shape))


def gradients(net: nn.Module) -> np.ndarray:
    """All in a row, (numbers,) float64; zeros where there is none."""
    trained = [p for p in net.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    return torch.cat([g.detach().double().flatten() for g in grads]).numpy()


# --- the machine, in a process of its own ---


class Machine:
    """Accelerators and a wire, which say what they are asked for.

    Args:
        ranks: how many it serves.
        nap: seconds that the backward of a layer takes.
        wire: seconds that an all_reduce takes, and seconds for each byte of it.
        factors: (ranks, layers that will come), what the accelerators tell.
        say: called with each entry of the diary; see ranks.py.
    """

    def __init__(
        self,
        ranks: int,
        nap: float,
        wire: Sequence[float],
        factors: np.ndarray,
        say: Callable[..., None],
    ):
        self.ranks, self.nap, self.wire = ranks, nap, wire
        self.factors, self.say = factors, say
        self.lines: dict[Connection, int] = {}  # the rank at the other end
        self.calls: dict[int, list[tuple]] = {r: [] for r in range(ranks)}
        self.asked = [0] * ranks  # layers
        self.carried = 0  # calls
        # In the machine's own time:
        self.clock = [0.0] * ranks  # when each rank got the last answer
        self.busy = [0.0] * ranks  # until when each accelerator is
        self.full = 0.0  # until when the wire is
        self.met: list[tuple] = []
        self.through: set[int] = set()
        self.step = -1
        # When something falls due, and what is to be done then.
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.number = count()

    def serve(self, path: Path) -> None:
        """Serve until every rank has left."""
        with Listener(str(path), "AF_UNIX") as listener:
            for _ in range(self.ranks):
                line = listener.accept()
                self.lines[line] = int(line.recv_bytes(LARGEST))
        while self.lines:
            soon = self.due[0][0] - time.monotonic() if self.due else None
            patience = soon if soon is None else max(0, soon)
            for line in cast(list[Connection], wait(list(self.lines), patience)):
                try:
                    head, _, payload = line.recv_bytes(LARGEST).partition(b"\n")
                    ticket, word, about = json.loads(head)
                    self.take(line, ticket, word, about, payload)
                except (EOFError, OSError, ValueError, TypeError):
                    del self.lines[line]
            while self.due and self.due[0][0] <= time.monotonic():
                heappop(self.due)[2]()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heappush(self.due, (moment, next(self.number), action))

    def note(self, word: str, rank: int, about: object = 0, **more: object) -> None:
        self.say(word, step=self.step, rank=rank, about=about, **more)

    def reply(self, line: Connection, ticket: int, words: str, *parts: bytes) -> None:
        """Answer an order, with words if it has failed."""
        head = json.dumps([ticket, words, [len(part) for part in parts]])
        with suppress(OSError):  # who has left needs no answer
            line.send_bytes(head.encode() + b"\n" + b"".join(parts))

    def take(
        self, line: Connection, ticket: int, word: str, about: object, payload: bytes
    ) -> None:
        """Take an order: "layer", "call", "meet", "late", or else a word to note."""
        rank, now = self.lines[line], time.monotonic()
        if word == "layer":
            # One layer at a time: who asks for two waits for both.
            end = max(self.clock[rank], self.busy[rank]) + self.nap
            self.busy[rank] = end
            self.note(word, rank, about, begin=end - self.nap, end=end)
            factor = self.factors[rank, self.asked[rank]].tobytes()
            self.asked[rank] += 1
            real = now + end - self.clock[rank]
            self.at(real, partial(self.compute, line, ticket, end, factor))
        elif word == "call":
            values = np.frombuffer(payload, np.float32, len(payload) // 4)
            sums = {"sum": float(values.sum()), "squares": float((values**2).sum())}
            self.note(word, rank, about, bytes=len(payload), **sums)
            self.calls[rank].append((line, ticket, payload, self.clock[rank]))
            mine = self.carried + len(self.calls[rank]) - 1
            self.at(now + GIVEN_UP_AFTER, partial(self.give_up, mine))
            while all(self.calls.values()):
                self.carry(now)
        elif word == "meet":
            self.met.append((line, ticket))
            if len(self.met) == self.ranks:
                self.step, self.through = self.step + 1, set()
                self.clock = [max(self.clock)] * self.ranks
                for other, its in self.met:
                    self.reply(other, its, "")
                self.met = []
        elif word == "late":
            self.late(line, ticket, rank, now + HELD_UP)
        else:
            self.note(word, rank, about)
            if word == "through":
                self.through.add(rank)

    def compute(self, line: Connection, ticket: int, end: float, factor: bytes) -> None:
        """Tell a rank that its layer is computed."""
        self.wake(line, end)
        self.reply(line, ticket, "", factor)

    def wake(self, line: Connection, moment: float) -> None:
        if line in self.lines:
            rank = self.lines[line]
            self.clock[rank] = max(self.clock[rank], moment)

    def carry(self, now: float) -> None:
        """Put the first call on the wire, which every rank has made."""
        parts = [self.calls[rank].pop(0) for rank in range(self.ranks)]
        sizes = [len(payload) for _, _, payload, _ in parts]
        begin = max(clock for *_, clock in parts)
        end = max(self.full, begin) + self.wire[0] + self.wire[1] * max(sizes)
        words, self.full = "", end
        if len(set(sizes)) > 1:
            ranks = f"ranks 0 to {self.ranks - 1}"
            words = f"{ranks} bring {sizes} bytes to one call"
        self.carried += 1
        self.at(now + end - begin, partial(self.deliver, end, parts, words))

    def deliver(self, end: float, parts: list[tuple], words: str) -> None:
        """Give every rank what all of them have brought to a call."""
        self.note("carried", -1, end=end)
        for line, ticket, *_ in parts:
            self.wake(line, end)
            self.reply(line, ticket, words, *(payload for _, _, payload, _ in parts))

    def give_up(self, call: int) -> None:
        """Tell those who wait for `call` who has not made it."""
        if call < self.carried or not any(self.calls.values()):
            return
        absent = [r for r in range(self.ranks) if not self.calls[r]]
        names = ", ".join(map(str, absent))
        sizes = [len(calls[0][2]) for calls in self.calls.values() if calls]
        words = f"a call of {sizes[0]} bytes: rank {names} has not made it"
        for rank, calls in self.calls.items():
            for line, ticket, *_ in calls:
                self.reply(line, ticket, words)
            self.calls[rank] = []

    def late(self, line: Connection, ticket: int, rank: int, end: float) -> None:
        """Answer when all others have come through their backward()."""
        if len(self.through - {rank}) == self.ranks - 1:
            return self.reply(line, ticket, "")
        if time.monotonic() > end:
            self.note("held up", rank)
            return self.reply(line, ticket, "")
        soon = time.monotonic() + 0.01
        self.at(soon, lambda: self.late(line, ticket, rank, end))


# --- a rank's end of it ---


class Line:
    """This rank's connection to the machine: orders, and what comes back for them."""

    def __init__(self, path: Path, rank: int):
        self.connection = connect(path)
        self.connection.send_bytes(str(rank).encode())
        self.lock, self.tickets = threading.Lock(), count()
        self.open: dict[int, Callable[[str, list[bytes]], None]] = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def order(
        self,
        word: str,
        about: object = 0,
        payload: bytes = b"",
        then: Callable[[str, list[bytes]], None] | None = None,
    ) -> None:
        """Send an order; `then` is called, in another thread, with what comes back."""
        with self.lock:
            ticket = next(self.tickets)
            if then is not None:
                self.open[ticket] = then
            head = json.dumps([ticket, word, about])
            self.connection.send_bytes(head.encode() + b"\n" + payload)

    def ask(self, word: str, about: object = 0) -> bytes:
        """Send an order, wait, and return what came back."""
        answers: queue.SimpleQueue = queue.SimpleQueue()
        self.order(word, about, then=lambda words, parts: answers.put(parts))
        return b"".join(answers.get())

    def listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                head, _, payload = self.connection.recv_bytes().partition(b"\n")
                ticket, words, sizes = json.loads(head)
                parts = []
                for size in sizes:
                    parts.append(payload[:size])
                    payload = payload[size:]
                self.open.pop(ticket)(words, parts)

    def compute(self, layer: int) -> float:
        return float(np.frombuffer(self.ask("layer", layer), np.float64)[0])


def connect(path: Path) -> Connection:
    """Connect to the machine, which may not have begun yet."""
    while True:
        try:
            return Client(str(path), "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.02)


class Sent(dist.Work):
    """What a call returns at once; the result comes later."""

    def __init__(self, future: torch.futures.Future):
        super().__init__()
        self.future = future

    def wait(self, timeout: object = None) -> bool:
        self.future.wait()
        return True

    def is_completed(self) -> bool:
        return self.future.done()

    def get_future(self) -> torch.futures.Future:
        return self.future


class Wire(dist.ProcessGroup):
    """A process group whose calls go over the machine's wire."""

    def __init__(self, line: Line, rank: int, world_size: int):
        cast(Any, super()).__init__(rank, world_size)  # a form that stubs may lack
        self.line = line

    def getBackendName(self) -> str:
        return "wire"

    def exchange(
        self, name: str, tensor: torch.Tensor, result: Any, keep: Callable
    ) -> Sent:
        """Bring `tensor`; `keep` gets all ranks' bytes, and then `result` is there."""
        future: torch.futures.Future = torch.futures.Future()

        def then(words: str, parts: list[bytes]) -> None:
            if words:  # raised where the student waits
                return future.set_exception(RuntimeError(words))
            try:
                with torch.no_grad():
                    keep([received(part, tensor) for part in parts])
                future.set_result(result)
            except Exception as error:
                future.set_exception(error)

        frame: FrameType | None = sys._getframe()
        while frame and not frame.f_code.co_filename.endswith("/answer/overlap.py"):
            frame = frame.f_back
        data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        call = name if frame else f"{name} by another hand"
        self.line.order("call", call, data.numpy().tobytes(), then)
        return Sent(future)

    # The names of arguments are those by which torch.distributed calls them.

    def allreduce(self, tensors: list, opts: Any = None) -> Sent:  # type: ignore[override]
        if opts is not None and opts.reduceOp != dist.ReduceOp.SUM:
            raise ValueError("this wire, as gloo, knows SUM and no mean")
        (tensor,) = tensors

        def keep(parts: list[torch.Tensor]) -> None:
            tensor.copy_(torch.stack(parts).sum(0))

        return self.exchange("all_reduce", tensor, tensors, keep)

    def broadcast(self, tensors: list, opts: Any) -> Sent:  # type: ignore[override]
        (tensor,) = tensors

        def keep(parts: list[torch.Tensor]) -> None:
            tensor.copy_(parts[opts.rootRank])

        return self.exchange("broadcast", tensor, tensors, keep)

    def allgather(self, outputs: list, inputs: list, opts: Any = None) -> Sent:  # type: ignore[override]
        def keep(parts: list[torch.Tensor]) -> None:
            for output, part in zip(outputs[0], parts, strict=True):
                output.copy_(part)

        return self.exchange("all_gather", inputs[0], outputs, keep)

    def barrier(self, opts: Any = None) -> Sent:
        nothing = torch.zeros(0)
        return self.exchange("barrier", nothing, [nothing], lambda parts: None)


def received(part: bytes, like: torch.Tensor) -> torch.Tensor:
    if not part:
        return torch.zeros_like(like)
    return torch.frombuffer(bytearray(part), dtype=like.dtype).view(like.shape)


# --- the training ---


class Training:
    """The steps of a plan on this rank.

    Args:
        net: the network whose gradients are averaged.
        given: the inputs, see `main`.
        line: to the machine.
    """

    def __init__(self, net: Net, given: dict, line: Line):
        self.net, self.given, self.line, self.rank = net, given, line, dist.get_rank()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=given["rate"])
        self.grads: list[np.ndarray] = []

    def step(
        self, number: int, plan: dict, model: nn.Module, overlap: Any = None
    ) -> None:
        """One step; without `overlap`, torch's DDP averages by itself."""
        model.zero_grad()
        self.line.ask("meet", number)  # all ranks begin together
        last = plan["micro"] - 1
        for micro in range(plan["micro"]):
            quiet = nullcontext() if micro == last else overlap.no_sync()
            with quiet:
                x, y = (self.given[n][number, micro] for n in "xy")
                error = loss(model, x, y, plan["heads"][self.rank]) / plan["micro"]
                if plan["late"] == self.rank:
                    self.line.ask("late")
                error.backward()
            self.line.order("backward", micro)
        self.line.order("through")
        if overlap is not None:
            overlap.wait()
        self.grads.append(gradients(model))
        self.line.order("done")
        self.optimizer.step()
        print("", flush=True)  # a sign of life


def main() -> None:
    """Inputs: ranks; on the last rank nap, wire and factors (see `Machine`), on the
    others net (arguments of `Net`), params (a row), bucket_bytes, rate, x and y
    (steps, micro-batches, samples, width), and plan, for each step: micro (how many),
    late (a rank), heads (by rank), and whether it is torch's "ddp" that averages.
    """
    from ranks import RANK, RUN_FOLDER, answer, give, inputs, say

    given = inputs()
    print("", flush=True)  # a sign of life
    path, ranks = RUN_FOLDER / "machine", given["ranks"]
    if RANK == ranks:
        machine = Machine(ranks, given["nap"], given["wire"], given["factors"], say)
        return machine.serve(path)
    line = Line(path, RANK)
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    dist.Backend.register_backend(
        "wire", lambda store, rank, size, timeout: Wire(line, rank, size), devices="cpu"
    )
    dist.init_process_group("wire")
    net = Net(**given["net"], accelerator=line.compute)
    fill(net, given["params"])
    twin: nn.Module = Net(**given["net"], accelerator=line.compute)
    fill(twin, given["params"])
    if any(plan["ddp"] for plan in given["plan"]):
        megabytes = given["bucket_bytes"] / 2**20
        twin = nn.parallel.DistributedDataParallel(twin, bucket_cap_mb=megabytes)
    program = answer("overlap.py")
    overlap = program.Overlap(net.parameters(), bucket_bytes=given["bucket_bytes"])
    training = Training(net, given, line)
    for number, plan in enumerate(given["plan"]):
        if plan["ddp"]:
            training.step(number, plan, twin)
        else:
            training.step(number, plan, net, overlap)
    line.ask("meet")
    give(grads=np.array(training.grads))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
