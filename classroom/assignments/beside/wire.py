"""A wire between the ranks, and accelerators: both are a process of their own.

The ranks 0 to n - 1 are the student's. Rank n plays the machine that they run on:
between them the wire, which carries messages and one collective call after the other,
and for each of them an accelerator, which takes its time for a layer. It never imports
the answer, so what it says of bytes, order and time no program can change; nothing of
it goes over the loopback, where the kernel counts whatever takes another way.

Naps take the place of computing: they overlap on one core, too. They really pass; but
what is counted is what they should take, from when a rank had got all answers that came
before its order. So time depends on what waits for what, and on no other process.
"""

import glob
import json
import os
import queue
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial, partialmethod
from heapq import heappop, heappush
from itertools import accumulate, count
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d

GIVEN_UP_AFTER = 10.0  # seconds after which a call that a rank has not made has failed
HELD_UP = 2.0  # seconds after which a late rank goes on, if the others stand still
CALM = 1.0  # seconds without work, after which a process stands still
WORK = 0.02  # seconds of a core
SETTLED = 1.0  # seconds that a thread of a rank may take to send what is ready
AGAIN_AFTER = 0.05  # seconds until it looks once more
_GROUP: Any = dist.ProcessGroup  # whose stubs know other forms of its methods
LARGEST = 200_000_000  # bytes of a message
# What no wire carries, as torch.distributed calls it, and as a program does.
LACKING = {
    "reduce": "reduce",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all_single",
    "alltoall_base": "all_to_all_single",
    "gather_single": "gather_single",
    "allreduce_coalesced": "all_reduce of several tensors",
    "allgather_coalesced": "all_gather of several tensors",
    "_start_coalescing": "coalescing",
    "_end_coalescing": "coalescing",
}


class Order(NamedTuple):
    """What a rank has asked for, and where the answer goes."""

    line: Connection
    ticket: int
    rank: int
    about: Any
    payload: bytes
    clock: float  # of this rank, in the machine's time


class Machine:
    """Accelerators and a wire, which say what they are asked for.

    Args:
        ranks: how many it serves.
        say: called with each entry of the diary; see ranks.py.
        calls: the collective calls that the wire carries, beside a barrier.
        nap: seconds that the backward of a layer takes.
        wire: seconds that a call takes, and seconds for each byte of it.
        factors: (ranks, layers that will come), what the accelerators tell.
        seeds: by rank, of the numbers that it draws.
    """

    def __init__(
        self,
        ranks: int,
        say: Callable[..., None],
        calls: Sequence[str],
        nap: float = 0.0,
        wire: Sequence[float] = (0.0, 0.0),
        factors: np.ndarray | None = None,
        seeds: Sequence[int] = (),
    ):
        self.ranks, self.nap, self.wire = ranks, nap, wire
        self.draws = [*map(np.random.default_rng, seeds)]
        self.factors, self.say, self.known = factors, say, calls
        self.lines: dict[Connection, int] = {}  # the rank at the other end
        self.pids: dict[int, int] = {}
        self.looks: dict[int, tuple[float, float]] = {}  # when a rank had last worked
        self.calls: dict[int, list[Order]] = {r: [] for r in range(ranks)}
        self.sends = defaultdict[tuple, deque[Order]](deque)  # by both ends, tag
        self.recvs = defaultdict[tuple, deque[Order]](deque)  # by receiver, tag
        self.messages: dict[tuple[int, int], list[int]] = {}  # by both ends: how many
        self.asked = [0] * ranks  # layers
        self.carried = 0  # calls
        # In the machine's own time:
        self.clock = [0.0] * ranks  # when each rank got the last answer
        self.busy = [0.0] * ranks  # until when each accelerator is
        self.full = 0.0  # until when the wire is
        self.met: list[Order] = []
        self.through: set[int] = set()  # backward(), in this step
        self.called: set[int] = set()  # a collective, in this step
        self.noted: set[tuple[str, int]] = set()  # whose messages, in this step
        self.step = -1
        # When something falls due, and what is to be done then.
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.number = count()

    def serve(self, path: Path) -> None:
        """Serve until every rank has left."""
        with Listener(str(path), "AF_UNIX") as listener:
            for _ in range(self.ranks):
                line = listener.accept()
                rank = self.lines[line] = int(line.recv_bytes(LARGEST))
                self.pids[rank] = peer(line)
        while self.lines:
            soon = self.due[0][0] - time.monotonic() if self.due else None
            patience = soon if soon is None else max(0, soon)
            for line in cast(list[Connection], wait(list(self.lines), patience)):
                try:
                    head, _, payload = line.recv_bytes(LARGEST).partition(b"\n")
                    ticket, word, about = json.loads(head)
                    rank = self.lines[line]
                    order = Order(line, ticket, rank, about, payload, self.clock[rank])
                    self.take(word, order)
                except (EOFError, OSError, ValueError, TypeError):
                    del self.lines[line]
            while self.due and self.due[0][0] <= time.monotonic():
                heappop(self.due)[2]()
        for (rank, to), (messages, size) in sorted(self.messages.items()):
            self.say("messages", rank=rank, to=to, count=messages, bytes=size)

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heappush(self.due, (moment, next(self.number), action))

    def still(self, ranks: Iterable[int]) -> bool:
        """Tell whether none of these ranks has had, or waited for, a core of late."""
        now, calm = time.monotonic(), True
        for rank in ranks:
            work = worked(self.pids[rank])
            at, before = self.looks.get(rank, (now, work))
            if work > before + WORK:
                at, before = now, work
            self.looks[rank] = at, before
            calm &= now - at > CALM
        return calm

    def note(self, word: str, rank: int, about: object = 0, **more: object) -> None:
        self.say(word, step=self.step, rank=rank, about=about, **more)

    def reply(self, order: Order, words: str = "", parts: Sequence[bytes] = ()) -> None:
        """Answer an order, with words if it has failed."""
        head = json.dumps([order.ticket, words, [len(part) for part in parts]])
        with suppress(OSError):  # who has left needs no answer
            order.line.send_bytes(head.encode() + b"\n" + b"".join(parts))

    def take(self, word: str, order: Order) -> None:
        """Take an order: what has a method `take_WORD`, or else a word to note."""
        if take := getattr(self, f"take_{word}", None):
            return take(order)
        self.note(word, order.rank, order.about)
        if word == "through":
            self.through.add(order.rank)

    # --- an accelerator ---

    def take_layer(self, order: Order) -> None:
        # One layer at a time: who asks for two waits for both.
        rank = order.rank
        end = max(self.clock[rank], self.busy[rank]) + self.nap
        self.busy[rank] = end
        self.note("layer", rank, order.about, begin=end - self.nap, end=end)
        assert self.factors is not None
        factor = self.factors[rank, self.asked[rank]].tobytes()
        self.asked[rank] += 1
        real = time.monotonic() + end - self.clock[rank]
        self.at(real, partial(self.compute, order, end, factor))

    def compute(self, order: Order, end: float, factor: bytes) -> None:
        """Tell a rank that its layer is computed."""
        self.wake(order.rank, end)
        self.reply(order, "", [factor])

    def wake(self, rank: int, moment: float) -> None:
        self.clock[rank] = max(self.clock[rank], moment)

    def take_draw(self, order: Order) -> None:
        """Draw numbers for a rank; nobody can draw them again."""
        count, kind = order.about
        row = self.draws[order.rank].standard_normal(count, np.dtype(kind).type)
        self.reply(order, "", [row.tobytes()])

    def take_meet(self, order: Order) -> None:
        self.met.append(order)
        if len(self.met) < self.ranks:
            return
        sent = [one.payload for waiting in self.sends.values() for one in waiting]
        sent += [one.payload for calls in self.calls.values() for one in calls]
        if sent:  # and nobody has received it
            self.say("parked", bytes=sum(map(len, sent)))
        self.step += 1
        self.through, self.called, self.noted = set(), set(), set()
        self.clock = [max(self.clock)] * self.ranks
        for one in self.met:
            self.reply(one)
        self.met = []

    def take_late(self, order: Order, end: float = 0.0) -> None:
        """Answer when all others have come through their backward()."""
        end = end or time.monotonic() + HELD_UP
        others = {*range(self.ranks)} - self.through - {order.rank}
        if not others:
            return self.reply(order)
        if time.monotonic() > end and self.still(others):
            self.note("held up", order.rank)
            return self.reply(order)
        self.at(time.monotonic() + AGAIN_AFTER, partial(self.take_late, order, end))

    def take_settle(self, order: Order, end: float = 0.0) -> None:
        """Answer when this rank has made a call: a thread takes a moment."""
        end = end or time.monotonic() + SETTLED
        over = time.monotonic() > end and self.still([order.rank])
        if order.rank in self.called or over:
            return self.reply(order)
        self.at(time.monotonic() + AGAIN_AFTER, partial(self.take_settle, order, end))

    # --- the wire: calls that all ranks make ---

    def take_call(self, order: Order) -> None:
        (name, _, kind), rank = order.about, order.rank
        if name not in self.known and (name != "barrier" or order.payload):
            what = "a barrier with numbers" if name == "barrier" else name
            allowed = ", ".join(["send", "recv", *self.known])
            words = f"{what} is not allowed here: the wire knows {allowed}"
            return self.reply(order, words)
        self.called.add(rank)
        values = np.frombuffer(order.payload, kind) if kind else np.zeros(0)
        sums = {"sum": float(values.sum()), "squares": float((values**2).sum())}
        self.note("call", rank, name, bytes=len(order.payload), **sums)
        self.calls[rank].append(order)
        mine, now = self.carried + len(self.calls[rank]) - 1, time.monotonic()
        self.at(now + GIVEN_UP_AFTER, partial(self.give_up, mine))
        while all(self.calls.values()):
            self.carry()

    def carry(self) -> None:
        """Put the first call on the wire, which every rank has made."""
        orders = [self.calls[rank].pop(0) for rank in range(self.ranks)]
        sizes = [len(order.payload) for order in orders]
        names = [order.about[0] for order in orders]
        words, ranks = "", f"ranks 0 to {self.ranks - 1}"
        if len({*names}) > 1:
            words = f"{ranks} make different calls: {', '.join(names)}"
        elif len({*sizes}) > 1:
            words = f"{ranks} bring {sizes} bytes to one call"
        self.carried += 1
        self.occupy(max(sizes), orders, partial(self.deliver, orders, words))

    def occupy(
        self, size: int, orders: Sequence[Order], then: Callable[[], None]
    ) -> None:
        """Have the wire carry `size` bytes, and then wake who waits for them."""
        begin = max(order.clock for order in orders)
        end = max(self.full, begin) + self.wire[0] + self.wire[1] * size
        self.full = end

        def arrive() -> None:
            if end > begin:
                self.note("carried", -1, end=end)
            for order in orders:
                self.wake(order.rank, end)
            then()

        self.at(time.monotonic() + end - begin, arrive)

    def deliver(self, orders: Sequence[Order], words: str) -> None:
        """Give every rank what all of them, or one root, have brought to a call."""
        payloads = [order.payload for order in orders]
        for order in orders:
            (name, root, _), given = order.about, payloads
            if name == "broadcast":
                given = [payloads[root]]
            elif name == "gather" and order.rank != root:
                given = []
            self.reply(order, words, given)

    def give_up(self, call: int) -> None:
        """Tell those who wait for `call` who has not made it."""
        if call < self.carried or not any(self.calls.values()):
            return
        absent = [r for r in range(self.ranks) if not self.calls[r]]
        if not self.still(absent):  # a busy machine is nobody's mistake
            soon = time.monotonic() + AGAIN_AFTER
            return self.at(soon, partial(self.give_up, call))
        names = ", ".join(map(str, absent))
        waiting = [order for calls in self.calls.values() for order in calls]
        size = len(waiting[0].payload)
        for order in waiting:
            self.reply(order, f"a call of {size} bytes: rank {names} has not made it")
        self.calls = {rank: [] for rank in self.calls}

    # --- the wire: messages from one rank to another ---

    def note_first(self, word: str, rank: int) -> None:
        """Note the first of a step's messages: there may be many thousands."""
        if (word, rank) not in self.noted:
            self.noted.add((word, rank))
            self.note(word, rank)

    def take_send(self, order: Order) -> None:
        to, tag = order.about
        self.note_first("send", order.rank)
        self.sends[order.rank, to, tag].append(order)
        self.match(to)

    def take_recv(self, order: Order) -> None:
        _, tag, _ = order.about
        self.note_first("recv", order.rank)
        self.recvs[order.rank, tag].append(order)
        self.match(order.rank)

    def match(self, to: int) -> None:
        """Hand over what has a sender and a receiver; a send ends no sooner."""
        for (rank, tag), waiting in [*self.recvs.items()]:
            for receiver in [*waiting] if rank == to else []:
                source, _, size = receiver.about  # source -1: anybody
                sources = range(self.ranks) if source < 0 else [source]
                came = next((s for s in sources if self.sends[s, to, tag]), None)
                if came is None:
                    continue
                waiting.remove(receiver)
                sender = self.sends[came, to, tag].popleft()
                words, sent = "", len(sender.payload)
                if sent != size:
                    told = f"sends {sent} bytes, rank {to} receives {size}"
                    words = f"rank {came} {told}"
                total = self.messages.setdefault((came, to), [0, 0])
                total[0], total[1] = total[0] + 1, total[1] + sent
                hand = partial(self.hand_over, sender, receiver, words)
                self.occupy(sent, [sender, receiver], hand)

    def hand_over(self, sender: Order, receiver: Order, words: str) -> None:
        parts = [sender.payload, sender.rank.to_bytes(4, "little")]
        self.reply(receiver, words, parts)
        self.reply(sender, words)


# --- a rank's end of it ---


class Line:
    """This rank's connection to the machine: orders, and what comes back for them."""

    def __init__(self, path: Path, rank: int):
        self.connection = connect(path)
        self.connection.send_bytes(str(rank).encode())
        self.lock, self.tickets, self.made = threading.Lock(), count(), 0
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
            self.made += word in ("call", "send", "recv")

    def ask(self, word: str, about: object = 0) -> bytes:
        """Send an order, wait, and return what came back."""
        answers: queue.SimpleQueue = queue.SimpleQueue()
        self.order(word, about, then=lambda words, parts: answers.put(parts))
        return b"".join(answers.get())

    def listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self.hand(self.connection.recv_bytes())

    def hand(self, message: bytes) -> None:
        """Hand an answer to whoever waits for it, and keep nothing of it."""
        head, _, payload = message.partition(b"\n")
        ticket, words, sizes = json.loads(head)
        ends = [*accumulate(sizes)]
        parts = [payload[e - n : e] for n, e in zip(sizes, ends, strict=True)]
        if then := self.open.pop(ticket, None):
            then(words, parts)

    def compute(self, layer: int) -> float:
        return float(np.frombuffer(self.ask("layer", layer), np.float64)[0])


def peer(line: Connection | socket.socket) -> int:
    """Return the process at the other end; 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with socket.socket(fileno=os.dup(line.fileno())) as end:
        told = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(told[:4], sys.byteorder)


def worked(pid: int) -> float:
    """Return the seconds that a process has had a core, and waited for one."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with suppress(OSError, ValueError):  # a thread has ended
            total += sum(map(int, Path(path).read_text().split()[:2]))
    return total / 1e9


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
        self.future, self.source = future, -1

    def wait(self, timeout: object = None) -> bool:
        self.future.wait()
        return True

    def is_completed(self) -> bool:
        return self.future.done()

    def get_future(self) -> torch.futures.Future:
        return self.future

    def _source_rank(self) -> int:
        return self.source


class Wire(_GROUP):
    """A process group whose calls go over the machine's wire.

    Args:
        line: to the machine.
    """

    group_name = "wire"

    def __init__(self, line: Line, rank: int, world_size: int):
        super().__init__(rank, world_size)
        self.line, self.ranks = line, world_size

    def getBackendName(self) -> str:
        return "wire"

    def _get_backend(self, device: Any) -> Any:
        return self  # whom batch_isend_irecv asks what it can do

    def order(
        self,
        word: str,
        about: list,
        data: torch.Tensor | None,
        result: Any,
        keep: Callable[[list[bytes]], None],
    ) -> Sent:
        """Give an order; `keep` gets what comes back, and then `result` is there."""
        future: torch.futures.Future = torch.futures.Future()

        def then(words: str, parts: list[bytes]) -> None:
            if words:  # raised where the student waits
                return future.set_exception(RuntimeError(words))
            try:
                with torch.no_grad():
                    keep(parts)
                future.set_result(result)
            except Exception as error:
                future.set_exception(error)

        payload = b"" if data is None else as_bytes(data)
        self.line.order(word, about, payload, then)
        return Sent(future)

    def call(
        self, name: str, data: torch.Tensor, result: Any, keep: Callable, root: int = 0
    ) -> Sent:
        """Bring `data` to a call; `keep` gets all ranks' tensors, or the root's."""
        kind = str(data.dtype).removeprefix("torch.")
        kind = kind if kind in ("float32", "float64") else ""

        def keep_tensors(parts: list[bytes]) -> None:
            keep([received(part, data) for part in parts])

        return self.order("call", [name, root, kind], data, result, keep_tensors)

    def refuse(self, name: str, *args: object, **kwargs: object) -> Sent:
        """Have the machine say that it does not carry such a call."""
        return self.call(name, torch.zeros(0), None, lambda parts: None)

    def monitored_barrier(self, *args: object, **kwargs: object) -> None:
        self.refuse("monitored_barrier").wait()

    # The names of arguments are those by which torch.distributed calls them.

    def send(self, tensors: list, dst: int, tag: int = 0) -> Sent:
        return self.order("send", [dst, tag], tensors[0], tensors, lambda parts: None)

    def recv(self, tensors: list, src: int, tag: int = 0) -> Sent:
        (tensor,) = tensors
        size = tensor.nbytes

        def keep(parts: list[bytes]) -> None:
            work.source = int.from_bytes(parts[1], "little")
            tensor.copy_(received(parts[0], tensor))

        work = Sent(torch.futures.Future())
        its = self.order("recv", [src, tag, size], None, tensors, keep)
        work.future = its.future
        return work

    def recv_anysource(self, tensors: list, tag: int = 0) -> Sent:
        return self.recv(tensors, -1, tag)

    def allreduce(self, tensors: list, opts: Any = None) -> Sent:
        (tensor,) = tensors
        if opts is not None and opts.reduceOp != dist.ReduceOp.SUM:
            return self.refuse("all_reduce of anything but a sum")

        def keep(parts: list[torch.Tensor]) -> None:
            tensor.copy_(torch.stack(parts).sum(0))

        return self.call("all_reduce", tensor, tensors, keep)

    def broadcast(self, tensors: list, opts: Any) -> Sent:
        (tensor,) = tensors

        keep = partial(fill, tensors)
        return self.call("broadcast", tensor, tensors, keep, opts.rootRank)

    def allgather(self, outputs: list, inputs: list, opts: Any = None) -> Sent:
        return self.call("all_gather", inputs[0], outputs, partial(fill, outputs[0]))

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Sent:
        def keep(parts: list[torch.Tensor]) -> None:
            output.view(-1).copy_(torch.cat([part.reshape(-1) for part in parts]))

        return self.call("all_gather", input, [output], keep)

    all_gather_single = _allgather_base  # its name in newer releases

    def allgather_into_tensor_coalesced(
        self, outputs: list, inputs: list, opts: Any = None
    ) -> Sent:
        if len(inputs) > 1:
            return self.refuse("all_gather of several tensors")
        return self._allgather_base(outputs[0], inputs[0])

    def gather(self, outputs: list, inputs: list, opts: Any) -> Sent:
        keep = partial(fill, outputs[0] if outputs else [])
        return self.call("gather", inputs[0], outputs, keep, opts.rootRank)

    def barrier(self, opts: Any = None) -> Sent:
        nothing = torch.zeros(0)
        return self.call("barrier", nothing, [nothing], lambda parts: None)


def fill(outputs: list[torch.Tensor], parts: list[torch.Tensor]) -> None:
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part)


def as_bytes(tensor: torch.Tensor) -> bytes:
    with cast(Any, torch._C).DisableTorchFunction():  # nobody has looked at a number
        flat = tensor.detach().cpu().contiguous().view(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def received(part: bytes, like: torch.Tensor) -> torch.Tensor:
    if not part:
        return torch.zeros_like(like)
    return torch.frombuffer(bytearray(part), dtype=like.dtype).view(like.shape)


def one_group(*args: object, **kwargs: object) -> Any:
    """Take the place of dist.new_group."""
    raise RuntimeError(
        "new_group is not allowed here: there is one group, and one wire"
    )


@contextmanager
def wired(given: dict) -> Iterator[Line | None]:
    """Join the ranks over the wire; on the last rank be the machine, which gets None.

    Args:
        given: the inputs: on all of them "machine", how many ranks are the student's
            and arguments of `Machine`.
    """
    from ranks import RANK, RUN_FOLDER, say

    print("", flush=True)  # a sign of life
    path, more = RUN_FOLDER / "machine", given.pop("machine")
    if RANK == (ranks := more["ranks"]):
        Machine(say=say, **given, **more).serve(path)
        yield None
        return
    line = Line(path, RANK)
    os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(ranks)
    dist.Backend.register_backend(
        "wire",
        lambda store, rank, size, timeout: Wire(line, rank, size),
        devices="cpu",
    )
    store = dist.HashStore()  # this process's own: there is no way to another
    dist.init_process_group("wire", store=store, rank=RANK, world_size=ranks)
    # Functional collectives know it by its name.
    cast(Any, _c10d)._register_process_group(Wire.group_name, dist.group.WORLD)
    cast(Any, dist).new_group = dist.distributed_c10d.new_group = one_group
    world = cast(Any, dist.group.WORLD)
    cast(Any, dist).monitored_barrier = world.monitored_barrier  # else it asks for gloo
    try:
        yield line
        line.ask("meet")  # who is late finds everybody still there
    finally:
        if dist.is_initialized():  # the answer may have left it
            dist.destroy_process_group()


for _method, _name in LACKING.items():
    setattr(Wire, _method, partialmethod(Wire.refuse, _name))
# Make these no lines of the program to the launcher, which tells where a rank is.
for _kind in (Sent, Wire, Line):
    for _function in vars(_kind).values():
        if isinstance(_function, FunctionType):
            _code = _function.__code__.replace(co_filename="<frozen wire>")
            _function.__code__ = _code
