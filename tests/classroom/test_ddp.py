"""Assignment 2: what is special to it; test_solutions.py has the rest."""

import subprocess
import sys
import time

import pytest
from course import cells, changed, solution, some, starter, verdict, visible

from classroom.assignments.beside.wire import worked
from classroom.assignments.ddp import criteria as ddp
from classroom.engine.rig import Rig
from classroom.engine.verdict import Verdict

pytestmark = pytest.mark.sandbox

IMPORT = "import json\n"
SHARE = """        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor, src=0)  # every rank now holds rank 0's values
"""
INIT = "        self.syncing = True\n        self.ready"
HOOK = "            parameter.register_post_accumulate_grad_hook(self.on_gradient)\n"
FORWARD = "    def forward(self, *args, **kwargs):\n"
READY = "        self.ready[parameter] = True\n"
FLAT = "        flat = torch.cat([gradient.flatten() for gradient in gradients])\n"
SEND = "        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))\n"
LOOP = "        for bucket, (flat, work) in zip("
WAIT = "            work.wait()  # only now flat holds the sum over the ranks\n"
MEAN = "            mean = flat / dist.get_world_size()\n"
PIECES = """            pieces = mean.split([parameter.numel() for parameter in bucket])
            for parameter, piece in zip(bucket, pieces, strict=True):
                parameter.grad = piece.view_as(parameter)
"""


def tried(criterion: str, *changes: tuple[str, str]) -> Verdict:
    """Return what the visible cases of a criterion say of the changed solution."""
    return verdict(
        "ddp", changed("ddp", *changes), criterion, visible("ddp")[criterion]
    )


# --- other ways to do it right ---

RIGHT = {
    "PyTorch's own start": [
        (
            SHARE,
            "        group = dist.group.WORLD\n"
            "        parameters = list(module.parameters())\n"
            "        _verify_param_shape_across_processes(group, parameters)\n"
            "        _sync_module_states(module, group, 250_000_000, 0, [], True)\n",
        ),
        (
            IMPORT,
            f"{IMPORT}from torch.distributed.utils import (\n"
            "    _sync_module_states,\n"
            "    _verify_param_shape_across_processes,\n)\n",
        ),
    ],
    "functional collectives": [
        (
            SHARE,
            "        for t in [*module.parameters(), *module.buffers()]:\n"
            "            row = t.detach().reshape(1, -1)\n"
            "            rows = fc.all_gather_tensor(row, 0, dist.group.WORLD)\n"
            "            t.copy_(rows[0].view_as(t))\n",
        ),
        (
            SEND,
            "        total = fc.all_reduce(flat, 'sum', dist.group.WORLD)\n"
            "        self.sent.append((total, None))\n",
        ),
        (WAIT, ""),
        (IMPORT, f"{IMPORT}import torch.distributed._functional_collectives as fc\n"),
    ],
    "a thread that sends": [
        (IMPORT, f"{IMPORT}from concurrent.futures import ThreadPoolExecutor\n"),
        (INIT, f"        self.pool, self.group = POOL(1), dist.new_group()\n{INIT}"),
        ("SAMPLES, STEPS,", "POOL = ThreadPoolExecutor\nSAMPLES, STEPS,"),
        (
            SEND,
            "        work = self.pool.submit(dist.all_reduce, flat, group=self.group)\n"
            "        self.sent.append((flat, work))\n",
        ),
        ("work.wait()", "work.result()"),
    ],
    "futures that divide": [
        (
            SEND,
            "        def mean(done, size=dist.get_world_size()):\n"
            "            return done.value()[0] / size\n\n"
            "        work = dist.all_reduce(flat, async_op=True)\n"
            "        self.sent.append((flat, work.get_future().then(mean)))\n",
        ),
        (LOOP, f"        torch.futures.wait_all([f for _, f in self.sent])\n{LOOP}"),
        (WAIT, ""),
        (MEAN, "            mean = work.value()\n"),
    ],
    "hooks on AccumulateGrad, and vectors": [
        (
            HOOK,
            "            node = parameter.expand_as(parameter)"
            ".grad_fn.next_functions[0][0]\n"
            "            node.register_hook("
            "lambda *_, p=parameter: self.on_gradient(p))\n"
            "            self.nodes = [*getattr(self, 'nodes', []), node]\n",
        ),
        (FLAT, "        flat = nn.utils.parameters_to_vector(gradients)\n"),
        (
            PIECES,
            "            for p in bucket:\n"
            "                p.grad = torch.zeros_like(p)\n"
            "            grads = [p.grad for p in bucket]\n"
            "            nn.utils.vector_to_parameters(mean, grads)\n",
        ),
    ],
    "hooks of one step": [
        (HOOK, "            self.handles = []\n"),
        (
            FORWARD,
            f"{FORWARD}        hook = self.on_gradient\n"
            "        for p in self.parameters:\n"
            "            handle = p.register_post_accumulate_grad_hook(hook)\n"
            "            self.handles.append(handle)\n",
        ),
        (LOOP, f"        [handle.remove() for handle in self.handles]\n{LOOP}"),
    ],
    "looks, and divides before it sends": [
        (SEND, f"        flat /= dist.get_world_size()\n{SEND}"),
        (WAIT, "            while not work.is_completed():\n                pass\n"),
        (MEAN, "            mean = flat\n"),
    ],
    "a barrier after each step": [
        (LOOP, f"        dist.barrier()\n{LOOP}"),
    ],
    "a first step that learns the order, by an all_reduce": [
        (READY, f"{READY}        if not self.agreed:\n            return\n"),
        (
            "        dist.broadcast(order, src=0)",
            "        order *= dist.get_rank() == 0\n        dist.all_reduce(order)",
        ),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("criterion", some(ddp.CRITERIA, "fast"))
def test_another_style_passes(name, criterion):
    (cell,) = (cell for cell in cells("ddp") if cell.name == criterion)
    found = verdict("ddp", changed("ddp", *RIGHT[name]), criterion, cell.cases)
    assert found.state == "pass", found


def test_a_start_may_pass_before_the_rest_is_written():
    right, stub = solution("ddp")["ddp.py"], starter("ddp")["ddp.py"]
    end = "def fill_buckets"
    answer = {"ddp.py": right[: right.index(end)] + stub[stub.index(end) :]}
    assert verdict("ddp", answer, "start", visible("ddp")["start"]).state == "pass"


# --- PyTorch's own ---

WRAPPED = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DataParallel(nn.Module):
    def __init__(self, module, bucket_bytes=1_000_000):
        super().__init__()
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=bucket_bytes / 2**20)

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)

    def finish(self):
        pass

    def no_sync(self):
        return self.ddp.no_sync()
"""


def test_the_library_s_own_ddp_is_no_answer():
    cases = visible("ddp")["steps"][:1]
    found = verdict("ddp", {"ddp.py": WRAPPED}, "steps", cases)
    assert found.state == "fail" and "is the task itself" in found.words, found


def test_the_library_s_own_step_is_as_fast():
    """As `fast` says, when its first step has shown the order. It has no finish(): its
    backward() ends by waiting, so nobody may be late.
    """

    class Allowed(Rig):
        def _execute(self, header, files):
            name = "harness.py"
            files[name] = files[name].replace(b", library=LIBRARY", b"")
            return super()._execute(header, files)

    given = visible("ddp")["fast"][0] | {"late": -1}
    case = ddp.racing(Allowed(ddp, {"ddp.py": WRAPPED}), **given)
    outcome, diary = case.judged()
    assert case.same_gradients(outcome).state == "pass", outcome.failure
    assert case.sent_late(diary) is None


# --- what the machine says when calls do not fit ---


def test_who_has_not_made_a_call_is_named():
    found = tried(
        "steps",
        (
            "        for bucket in self.buckets[len(self.sent) :]:  # backward()",
            "        if dist.get_rank() == 1:\n            return\n"
            "        for bucket in self.buckets[len(self.sent) :]:  # backward()",
        ),
        (READY, f"{READY}        return\n"),
    )
    assert found.state == "fail"
    assert "rank 1 has not made it" in found.words, found


def test_what_does_not_fit_together_is_said():
    shorter = f"        flat = flat[: len(flat) - dist.get_rank()]\n{SEND}"
    found = tried("buckets", (SEND, shorter))
    assert found.state == "fail"
    assert "ranks 0 to 1 bring [160, 156] bytes" in found.words, found


# --- no load changes a verdict ---

BUSY = 20  # programs beside


@pytest.fixture
def load():
    spin = [sys.executable, "-c", "while True: pass"]
    beside = [subprocess.Popen(spin) for _ in range(BUSY)]
    yield beside
    for one in beside:
        one.kill()
        one.wait()


def test_who_gets_no_core_does_not_stand_still(load):
    """What the machine looks at: each of many has little, and wants more."""
    idle = subprocess.Popen(["sleep", "60"])
    try:
        time.sleep(1)
        assert all(wants for wants, _ in (worked(one.pid) for one in load))
        assert worked(idle.pid)[0] is False
    finally:
        idle.kill()
        idle.wait()


WRONG = {
    "one bucket after the other": (
        "fast",
        [(FLAT, f"{FLAT}        if self.sent:\n            self.sent[-1][1].wait()\n")],
    ),
    "in the end": ("early", [(READY, f"{READY}        return\n")]),
    "a second of sleep": (
        "waits",
        [
            (IMPORT, f"{IMPORT}import time\n"),
            (LOOP, f"        time.sleep(1)\n{LOOP}"),
            (WAIT, ""),
        ],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", WRONG)
def test_a_verdict_is_the_same_beside_many_busy_programs(load, name):
    criterion, changes = WRONG[name]
    assert tried(criterion).state == "pass"
    assert tried(criterion, *changes).state == "fail"
