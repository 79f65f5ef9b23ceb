"""Sick programs drawn at random: each axis is a table, and a fault has a value of each.

random_faults.py lets them happen, and knows what has to be told of them.
"""

import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

# Healthy as it stands. A comment that ends with a colon is a place for code.
PROGRAM = """
import atexit, json, logging, multiprocessing, os, queue, signal, subprocess
import sys, threading, time, traceback, warnings
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

HERE = os.path.dirname(os.path.abspath(__file__))


def misbehave():
    # the deed:


def misbehave_too():
    # the second deed:


def on_sigterm(number, frame):
    # asked to end:


def leave_a_child():
    # a child:
    while not os.listdir(f"{HERE}/children"):
        time.sleep(0.01)


def stay():
    open(f"{HERE}/children/{os.getpid()}", "w").close()
    while True:
        time.sleep(60)


def exchange(rank, world_size, step, model, tensor):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    # the exchange:


def work(rank, world_size):
    for number in (os.getpid(), os.getpgid(0)):
        open(f"{HERE}/ranks/{number}", "w").close()
    # a handler:
    # before init:
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    print(f"[rank {rank}] is here", flush=True)
    model = torch.nn.Linear(8, 8)
    # a model:
    # noise:
    # somebody:
    # after init:
    for step in range(5):
        tensor = torch.ones(8)
        # in a step:
        exchange(rank, world_size, step, model, tensor)
    # after the last step:
    dist.barrier()
    del model
    dist.destroy_process_group()
    # after destroy:


# record:
def main(rank, world_size):
    try:
        work(rank, world_size)
    except RuntimeError as error:
        if "onnection" in str(error):
            # a lost connection:
        raise


if __name__ == "__main__":
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
"""
STEPS = 5


@dataclass(frozen=True)
class Option:
    """One value of an axis."""

    name: str
    """In a few words; empty for what is usual."""
    weight: int
    """How often it is drawn."""
    code: str = ""


@dataclass(frozen=True)
class Deed(Option):
    """What a rank does that it should not."""

    kind: str = ""
    """"dies", "hangs", "leaves" with exit code 0, or "strays": what it does then stands
    in the place of its exchange with the others."""
    says: str = ""
    """A regular expression of what has to be told."""
    line: str = ""
    """Text of the line to be named, where that can be known."""
    only: str = ""
    """The exchange in which a rank can stray like this; empty: any."""
    raises: bool = False
    """Whether it is an exception: in a thread, that ends the thread alone."""


# --- how the ranks are started ---

RANKS = [Option("2", 2), Option("3", 4), Option("4", 2)]
COLDS = [Option("", 12), Option("cold", 1)]
RECORDS = [Option("", 1), Option("@record", 1, "@record")]
RESTARTS = [Option("", 9), Option("--max-restarts 1", 1)]

# --- what the ranks do with each other ---

RING = """
if rank % 2:
    dist.recv(tensor, left)
    dist.send(tensor, PEER)
else:
    dist.send(tensor, PEER)
    dist.recv(tensor, left)
"""
EXCHANGES = [
    Option("all_reduce", 4, "dist.all_reduce(tensor)"),
    Option("async all_reduce", 2, "dist.all_reduce(tensor, async_op=True).wait()"),
    Option("broadcast", 2, "dist.broadcast(tensor, src=0)"),
    Option("barrier", 1, "dist.barrier()"),
    Option("ring", 2, RING.replace("PEER", "right")),
    Option("DDP", 2, "model(tensor).sum().backward()"),
]

# --- what one of them does instead, and when ---

BAD = "bad sample 7"
RESET = "Connection reset by peer"
RAISE = f'raise ValueError("{BAD}")'
QUOTE = f'''
raise ValueError("""{BAD}
Traceback (most recent call last):
  File "server.py", line 3, in load
OSError: gone""")
'''
LOADER = """
options = {"num_workers": 1, "multiprocessing_context": "fork"}
for batch in DataLoader([0], collate_fn=lambda batch: DOES, **options):
    pass
"""
SWALLOW = f"""
try:
    {RAISE}
except ValueError:
    logging.exception("this batch is skipped")
"""
FINALLY = f"""
try:
    {RAISE}
finally:
    dist.barrier()
"""
PRODUCE = f"""
def produce():
    {RAISE}
threading.Thread(target=produce).start()
queue.Queue().get()
"""
ROOT = "dist.broadcast(tensor, src=world_size - 1)"
LEFTWARDS = RING.replace("PEER", "left")


KILLED = LOADER.replace("DOES", "os.kill(os.getpid(), signal.SIGKILL)")
IN = "in DataLoader("


def _raises(name: str, weight: int, code: str, says: str, line: str = "") -> Deed:
    return Deed(name, weight, code, "dies", says, line, raises=True)


def _signal(name: str, weight: int) -> Deed:
    code = f"os.kill(os.getpid(), signal.{name})"
    says = rf"(by|signal) {name}|Fatal Python error: (Segm|Abort)"
    return Deed(f"gets {name}", weight, code, "dies", says)


def _hangs(name: str, weight: int, code: str, line: str = "", says: str = "") -> Deed:
    return Deed(name, weight, code, "hangs", says, line)


def _strays(name: str, weight: int, code: str, only: str = "", says: str = "") -> Deed:
    return Deed(name, weight, code, "strays", says, only=only)


NOTHING = Deed("", 4)
SIGTERM = _signal("SIGTERM", 2)
DEEDS = [
    NOTHING,
    _raises("raises", 5, RAISE, f"ValueError: {BAD}", RAISE),
    _raises("quotes a traceback", 1, QUOTE, f"ValueError: {BAD}", 'raise ValueError("'),
    _raises(
        "fails in a library", 1, "json.loads('{')", "JSONDecodeError", "json.loads("
    ),
    _raises(
        "loses a server",
        2,
        f"raise OSError('{RESET}')",
        f"OSError: {RESET}",
        "raise OSError(",
    ),
    _raises("exits with 3", 3, "sys.exit(3)", "exit code 3"),
    _raises("exits with words", 1, "sys.exit('no data')", "exit code 1|no data"),
    Deed("exits at once with 5", 2, "os._exit(5)", "dies", "exit code 5"),
    Deed("loses its loader", 1, KILLED, "dies", "DataLoader worker", IN),
    _signal("SIGKILL", 2),
    _signal("SIGSEGV", 1),
    _signal("SIGABRT", 1),
    SIGTERM,
    _hangs("sleeps", 3, "time.sleep(600)", "time.sleep(600)"),
    _hangs("computes", 2, "while True: sum(range(9))", "sum(range(9))"),
    _hangs("is stopped", 2, "os.kill(os.getpid(), signal.SIGSTOP)"),
    _hangs("waits for a dead thread", 2, PRODUCE, "queue.Queue().get()", BAD),
    _hangs("waits for its loader", 1, LOADER.replace("DOES", "time.sleep(600)"), IN),
    Deed("leaves", 2, "sys.exit()", "leaves", raises=True),
    Deed("leaves at once", 3, "os._exit(0)", "leaves"),
    _strays("skips an exchange", 4, "pass"),
    _strays("swallows an exception", 4, SWALLOW, says=BAD),
    _strays("gathers instead", 4, "dist.all_gather_object([0] * world_size, rank)"),
    _strays("waits in finally", 3, FINALLY),
    _strays("brings another shape", 8, "dist.all_reduce(torch.ones(12))", "all_reduce"),
    _strays("brings another dtype", 8, "dist.all_reduce(tensor.int())", "all_reduce"),
    _strays("means another root", 16, ROOT, "broadcast"),
    _strays("sends to the left", 16, LEFTWARDS, "ring"),
]
ENDS = ("dies", "hangs")
DELAYS = (None, None, None, None, 0.0, 0.05, 0.3, 0.5)
"""Seconds between the deeds of two ranks; None if only one errs."""

THREAD = """
threading.Thread(target=misbehave).start()
time.sleep(0.3)
"""
PLACES = [
    Option("before init", 2, "misbehave()"),
    Option("after init", 2, "misbehave()"),
    Option("in a step", 6, "misbehave()"),
    Option("after the last step", 2, "misbehave()"),
    Option("after destroy", 2, "misbehave()"),
    Option("in a thread", 3, THREAD),
    Option("at exit", 2, "atexit.register(misbehave)"),
]
WRITTEN = {"in a thread": "in a step", "at exit": "after init"}
"""Where in the program that stands, if not at a place of that name."""
TWO = """
if step == {step}:
    moment = torch.tensor([time.time() + 0.3], dtype=torch.float64)
    dist.broadcast(moment, src=0)
    if rank == {who}:
        time.sleep(max(0, moment.item() - time.time()))
        misbehave()
    if rank == {second_who}:
        time.sleep(max(0, moment.item() + {delay} - time.time()))
        misbehave_too()
"""

# --- what the others do about it, and what else there is ---

ON_SIGTERM = [
    Option("", 8),
    Option("go on after SIGTERM", 3, "print('asked to end', flush=True)"),
    Option("save after SIGTERM", 2, "time.sleep(0.5)\nprint('saved')\nsys.exit()"),
    Option("raise after SIGTERM", 1, "raise RuntimeError('asked to end')"),
]
ON_LOSS = [
    Option("", 6),
    Option("log a lost connection", 2, "logging.exception('lost')"),
    Option("exit after a lost connection", 1, "logging.exception('lost')\nsys.exit(1)"),
    Option("survive a lost connection", 2, "logging.exception('lost')\nreturn"),
]
HANDLED = """
try:
    int("a number")
except ValueError:
    traceback.print_exc()
"""
NOISES = [
    Option("", 8),
    Option("much output", 1, "for i in range(2000): print('batch', i, 'of 2000')"),
    Option("a fact", 1, "print(json.dumps({'rank': 20, 'loss': [0.5] * rank}))"),
    Option("warnings", 1, "warnings.warn('this is old')\nlogging.error('no cache')"),
    Option("a handled traceback", 2, HANDLED),
    Option("odd bytes", 1, r"os.write(1, b'\xff\x00\x9b31m\r half a line')"),
]
SESSION = """
if os.fork() == 0:
    os.setsid()
    stay()
"""
CLEARED = """
sleeper = subprocess.Popen(["/bin/sleep", "600"], env={}, start_new_session=True)
open(f"{HERE}/children/{sleeper.pid}", "w").close()
"""
GROUP = """
def leave_the_group():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgrp()
    stay()
fork = multiprocessing.get_context("fork")
fork.Process(target=leave_the_group, daemon=True).start()
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 100)
    stay()
"""
LEFT = [
    Option("", 8),
    Option("a child in a session of its own", 1, SESSION),
    Option("a child without environment", 1, CLEARED),
    Option("a child of multiprocessing in a group of its own", 1, GROUP),
    Option("a daemon", 1, DAEMON),
]


@dataclass(frozen=True)
class Fault:
    """One fault: a value of each axis."""

    seed: int
    number: int
    ranks: int
    cold: Option
    record: Option
    restarts: Option
    exchange: Option
    deed: Deed
    place: Option
    who: int
    step: int
    second: Deed
    """What `second_who` does `delay` seconds later; NOTHING if one rank is enough."""
    second_who: int
    delay: float | None
    on_sigterm: Option
    on_loss: Option
    noise: Option
    left: Option
    left_by: int

    @property
    def alone(self) -> bool:
        return self.second == NOTHING

    @property
    def possible(self) -> bool:
        """Whether these values make sense together."""
        deed, place, cold = self.deed, self.place.name, self.cold.name
        return (
            (deed.kind != "strays" or place == "in a step")
            and deed.only in ("", self.exchange.name)
            # What DDP imports takes seconds, unless the fork server has done it; and
            # many ranks that import torch keep a small machine busy.
            and not (cold and (self.exchange.name == "DDP" or self.ranks > 3))
            # Of two ranks, the left one is the right one.
            and not (deed.code == LEFTWARDS and self.ranks == 2)
            # Not every Python starts a thread or a process at its exit.
            and not (deed.code == PRODUCE and place == "at exit")
            and not (deed.line == IN and place in ("in a thread", "at exit"))
        )

    def joined(self, second: Deed) -> "Fault":
        """Return this fault with `second` as well, where that makes sense."""
        together = self.place.name == "in a step" and self.deed.kind in ENDS
        if self.delay is None or not together:
            return self
        return replace(self, second=second)

    def __str__(self) -> str:
        doing = f"rank {self.who} {self.deed.name} {self.place.name}"
        if self.deed == NOTHING:
            doing = "nobody errs"
        if not self.alone:
            doing += f", {self.delay:g} s later rank {self.second_who} "
            doing += self.second.name
        how = (self.cold, self.record, self.restarts, self.exchange)
        others = (self.on_sigterm, self.on_loss, self.noise, self.left)
        names = [option.name for option in (*how, *others) if option.name]
        return f"{doing} ({self.ranks} ranks, {', '.join(names)})"

    def program(self) -> str:
        """Return the sick program."""
        text = PROGRAM.lstrip()
        for place, code in self._code().items():
            found = re.search(rf"^( *)# {place}:\n", text, re.MULTILINE)
            assert found, place
            filled = textwrap.indent(f"{code.strip()}\n", found[1])
            text = text[: found.start()] + filled + text[found.end() :]
        return re.sub(r"^ *# [a-z ]+:\n", "", text, flags=re.MULTILINE)

    def _code(self) -> dict[str, str]:
        """Return the code for each place of the program that has some."""
        code = {
            "the deed": self.deed.code or "pass",
            "the second deed": self.second.code or "pass",
            "asked to end": self.on_sigterm.code or "pass",
            "a child": self.left.code or "pass",
            "a lost connection": self.on_loss.code or "pass",
            "record": self.record.code,
            "the exchange": self.exchange.code,
            "noise": self.noise.code,
        }
        if self.exchange.name == "DDP":
            code["a model"] = "model = DistributedDataParallel(model)"
        if self.on_sigterm.code:
            code["a handler"] = self._handler()
        if self.left.code:
            code["somebody"] = f"if rank == {self.left_by}:\n    leave_a_child()"
        return {place: text for place, text in (code | self._deeds()).items() if text}

    def _handler(self) -> str:
        """Return code that takes SIGTERM, but not from a rank whose deed that is."""
        deeds = ((self.deed, self.who), (self.second, self.second_who))
        who = [rank for deed, rank in deeds if deed == SIGTERM]
        install = "signal.signal(signal.SIGTERM, on_sigterm)"
        return f"if rank not in {who}:\n    {install}" if who else install

    def _deeds(self) -> dict[str, str]:
        """Return the code of who errs, where, and when."""
        deed, place = self.deed, self.place
        if deed == NOTHING:
            return {}
        if not self.alone:
            return {"in a step": TWO.format(**vars(self))}
        does, usual = _indent(place.code), _indent(self.exchange.code)
        him, then = f"if rank == {self.who}", f" and step == {self.step}"
        if deed.kind == "strays":
            instead = f"{him}{then}:\n{_indent(deed.code)}else:\n{usual}"
            return {"the deed": "pass", "the exchange": instead}
        written = WRITTEN.get(place.name, place.name)
        return {written: f"{him}{then * (written == 'in a step')}:\n{does}"}


def _indent(code: str) -> str:
    return textwrap.indent(f"{code.strip()}\n", "    ")


Axis = TypeVar("Axis", bound=Option)


def draw(seed: int, number: int) -> Fault:
    """Return the fault with this number."""
    chance = random.Random(f"{seed}, {number}")

    def one(axis: Sequence[Axis]) -> Axis:
        return chance.choices(axis, [option.weight for option in axis])[0]

    while True:
        ranks = int(one(RANKS).name)
        who, another = chance.sample(range(ranks), 2)
        fault = Fault(
            seed,
            number,
            ranks,
            cold=one(COLDS),
            record=one(RECORDS),
            restarts=one(RESTARTS),
            exchange=one(EXCHANGES),
            deed=one(DEEDS),
            place=one(PLACES),
            who=who,
            step=chance.randrange(1, STEPS),
            second=NOTHING,
            second_who=another,
            delay=chance.choice(DELAYS),
            on_sigterm=one(ON_SIGTERM),
            on_loss=one(ON_LOSS),
            noise=one(NOISES),
            left=one(LEFT),
            left_by=chance.randrange(ranks),
        )
        if fault.possible:
            return fault.joined(one([deed for deed in DEEDS if deed.kind in ENDS]))
