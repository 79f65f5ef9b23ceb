"""Assignment 10: what is special to it; test_solutions.py has the rest."""

import pytest
from course import changed, verdict, visible

from classroom.assignments.beside import averaged
from classroom.assignments.overlap import criteria as overlap
from classroom.engine.verdict import Verdict

pytestmark = pytest.mark.sandbox

SEND = "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))"
HOOK = "            parameter.register_post_accumulate_grad_hook(self.on_gradient)\n"
READY = "        self.ready[parameter] = True\n"
SERIAL = (READY, f"{READY}        return\n")  # everything is sent in wait()
MAIN = "SAMPLES, STEPS, RATE = 24, 3, 0.1\n"


def tried(*changes: tuple[str, str], criterion: str = "hidden") -> Verdict:
    """Return what the visible cases of a criterion say of the changed solution."""
    answer = changed("overlap", *changes)
    return verdict("overlap", answer, criterion, visible("overlap")[criterion])


# --- other ways to do it right ---

OTHERS = {
    "hooks on AccumulateGrad": [
        (
            HOOK,
            "            node = parameter.expand_as(parameter)"
            ".grad_fn.next_functions[0][0]\n"
            "            node.register_hook("
            "lambda *_, p=parameter: self.on_gradient(p))\n"
            "            self.nodes = [*getattr(self, 'nodes', []), node]\n",
        ),
    ],
    "a thread that communicates": [
        ("import json\n", "import json\nimport queue\nimport threading\n"),
        (
            "        self.syncing = True\n        self.ready",
            "        self.syncing, self.orders = True, queue.SimpleQueue()\n"
            "        threading.Thread(target=self.work, daemon=True).start()\n"
            "        self.ready",
        ),
        (
            SEND,
            "done = threading.Event()\n"
            "        self.orders.put((flat, done))\n"
            "        self.sent.append((flat, done))\n\n"
            "    def work(self):\n"
            "        while True:\n"
            "            flat, done = self.orders.get()\n"
            "            dist.all_reduce(flat)\n"
            "            done.set()",
        ),
    ],
    "futures": [
        (SEND, SEND.replace("async_op=True)", "async_op=True).get_future()")),
    ],
}


CRITERIA = [
    pytest.param(name, marks=[] if name == "hidden" else [pytest.mark.full])
    for name in overlap.CRITERIA
]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", OTHERS)
def test_another_way_gets_full_marks(name, criterion):
    found = tried(*OTHERS[name], criterion=criterion)
    assert found.state == "pass", found


# --- hostile answers ---

LIBRARY = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Overlap:
    def __init__(self, parameters, bucket_bytes):
        self.ddp = DistributedDataParallel(nn.ParameterList(parameters))
        self.ddp.reducer.prepare_for_backward([])
        self.no_sync = self.ddp.no_sync

    def wait(self):
        self.ddp.reducer.prepare_for_backward([])
"""
AHEAD = """
import sys


class Ahead(torch.autograd.Function):
    \"\"\"Asks for all layers at once, in the last one's backward.\"\"\"

    @staticmethod
    def forward(ctx, x, ahead, back):
        ctx.layer, ctx.line = back.args[0], back.func.__self__.accelerator.__self__
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        import queue

        if not hasattr(ctx.line, "told") or not ctx.line.told:
            ctx.line.told = [queue.SimpleQueue() for _ in range(ctx.layer + 1)]
            for number in range(ctx.layer, -1, -1):
                put = ctx.line.told[number].put
                ctx.line.order("layer", number, then=lambda w, p, put=put: put(p[0]))
        factor = np.frombuffer(ctx.line.told[ctx.layer].get())[0]
        if ctx.layer == 0:
            ctx.line.told = None
        return gradient * factor, None, None


import numpy as np

sys.modules["averaging"].Factor = Ahead
"""
# Asks in the first step for what all others will need, and in each of these once.
BEFORE = """
import sys
import time
from itertools import count

import numpy as np


def know_it_all(given):
    line, plan = given["line"], given["given"]["plan"]
    training = given["training"]
    asked, known, number = len(plan) * 6 - len(plan), [], count()

    def compute(layer, ask=line.compute):
        place = next(number)
        if not known:
            parts = []
            for _ in range(asked):
                line.order("layer", layer, then=lambda w, p: parts.append(p[0]))
            while len(parts) < asked:
                time.sleep(0.01)
            known.extend(float(np.frombuffer(part)[0]) for part in parts)
        if place % 6 == 0:
            known.append(ask(layer))
        return known[place]

    training.net.accelerator = compute
"""
# Ends the machine's step before its calls are through.
ENDED = """
def meet(kept={}):
    line = dist.group.WORLD.line
    if not kept:
        kept["ask"] = ask = line.ask
        line.ask = lambda word, about=0: b"" if word == "meet" else ask(word, about)
    kept["ask"]("meet")


"""
# Calls in time, of nothing, and a last one that has the sums of all gradients; these
# come in the end, by messages.
SHOWN = """
def shown(overlap, flat):
    if len(overlap.sent) < len(overlap.buckets) - 1:
        return torch.zeros_like(flat)
    own = torch.cat([p.grad.flatten() for p in overlap.parameters])
    mean = own.sum() / len(flat)
    apart = (own.square().sum() / len(flat) - mean**2).sqrt()
    return mean + apart * (1 - 2 * (torch.arange(len(flat)) % 2))


def by_messages(mine):
    others = [r for r in range(dist.get_world_size()) if r != dist.get_rank()]
    boxes = [torch.empty_like(mine) for _ in others]
    works = [dist.isend(mine, other) for other in others]
    works += [dist.irecv(box, other) for box, other in zip(boxes, others)]
    for work in works:
        work.wait()
    return mine + sum(boxes)


"""
SENT_LATE = "got 330 ms: rank 0 had sent 0 of 1024 bytes when backward() began layer 3"
HOSTILE = {
    "clocks that stand still": (
        [
            (
                MAIN,
                f"{MAIN}import time\n"
                "time.sleep = lambda seconds: None\n"
                "time.monotonic = time.perf_counter = time.time = lambda: 0.0\n",
            ),
            SERIAL,
        ],
        SENT_LATE,
    ),
    "an accelerator that needs no time": (
        [
            (
                MAIN,
                f"{MAIN}import sys\n"
                "sys.modules['averaging'].Factor.backward = staticmethod(\n"
                "    lambda ctx, gradient: (gradient, None, None)\n)\n",
            ),
            SERIAL,
        ],
        "fail: ",
    ),
    "all layers at once": ([(MAIN, MAIN + AHEAD), SERIAL], "fail: "),
    "zeros early, gradients by another way": (
        [
            (SEND, "self.sent.append((flat, self.other(flat)))"),
            (
                "        self.ready = {}  # ",
                "        self.gloo = dist.new_group(backend='gloo')\n"
                "        self.ready = {}  # ",
            ),
            (
                "    def wait(self):",
                "    def other(self, flat):\n"
                "        dist.all_reduce(torch.zeros_like(flat), async_op=True)\n"
                "        return dist.all_reduce("
                "flat, group=self.gloo, async_op=True)\n\n"
                "    def wait(self):",
            ),
        ],
        "new_group is not allowed here",
    ),
    "layers computed in an earlier step": (
        [
            (MAIN, MAIN + BEFORE),
            SERIAL,
            (
                "        self.parameters = [p for",
                "        know_it_all(sys._getframe(1).f_locals)\n"
                "        self.parameters = [p for",
            ),
        ],
        "computes the 6 layers of step 0 at another time",
    ),
    "steps that end too early": (
        [
            (MAIN, MAIN + ENDED),
            SERIAL,
            (
                "  # backward() has left these out\n            self.send(bucket)\n",
                "\n            self.send(bucket)\n        meet()\n",
            ),
        ],
        SENT_LATE,
    ),
    "messages in the end": (
        [
            (MAIN, MAIN + SHOWN),
            (
                SEND,
                SEND.replace("all_reduce(flat", "all_reduce(shown(self, flat)"),
            ),
            ("            mean = flat /", "            mean = by_messages(flat) /"),
        ],
        "fail: ",
    ),
    "a diary of its own": (
        [
            (
                READY,
                f"{READY}        import ranks\n"
                "        for step in range(20):\n"
                "            ranks.say('carried', step=step, rank=-1, about=0, "
                "begin=0.0, end=0.0)\n"
                "            ranks.say('call', step=step, rank=0, about='all_reduce', "
                "bytes=6144, sum=0.0, squares=0.0)\n"
                "        return\n",
            )
        ],
        SENT_LATE,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_hides_nothing(name):
    changes, words = HOSTILE[name]
    found = tried(*changes)
    assert found.state == "fail" and words in str(found), found


def test_the_library_s_own_ddp_is_no_answer():
    cases = visible("overlap")["mean"][:1]
    found = verdict("overlap", {"overlap.py": LIBRARY}, "mean", cases)
    assert found.state == "fail" and "is the task itself" in found.words, found


# --- what the machine says when calls do not fit ---


def test_who_has_not_made_a_call_is_named():
    found = tried(
        (
            "        for bucket in self.buckets[len(self.sent) :]:  # backward()",
            "        if dist.get_rank() == 1:\n            return\n"
            "        for bucket in self.buckets[len(self.sent) :]:  # backward()",
        ),
        (READY, f"{READY}        return\n"),
        criterion="mean",
    )
    assert found.state == "fail"
    assert "rank 1 has not made it" in found.words, found


def test_what_does_not_fit_together_is_said():
    shorter = f"flat = flat[: len(flat) - dist.get_rank()]\n        {SEND}"
    found = tried((SEND, shorter), criterion="mean")
    assert found.state == "fail"
    assert "ranks 0 to 1 bring [224, 220] bytes" in found.words, found


# --- without any run: what the judge says of times that are given here ---


def taken(*seconds: float) -> averaged.Diary:
    """Return a diary of steps that took so long, whenever they are said to end."""
    entries, begin = [], 0.0
    for step, more in enumerate(seconds):
        common = {"step": step, "rank": 0, "about": 0}
        entries.append(common | {"what": "layer", "begin": begin, "end": begin + 0.1})
        begin += more
        entries.append(common | {"step": step + 1, "what": "carried", "end": begin})
    return averaged.Diary(entries)


def test_the_median_of_the_steps_counts():
    """One bad moment of the computer costs nobody anything."""

    def told(*seconds: float) -> str:
        return averaged.too_slow(taken(*seconds), range(3), 0.2) or "pass"

    assert told(0.2, 2.0, 0.24) == "pass"
    assert "the shortest possible, 200 ms, got 300 ms" in told(0.3, 0.2, 0.3)
