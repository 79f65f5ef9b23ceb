"""Assignment 2: what is special to it; test_solutions.py has the rest."""

import pytest
from course import cells, changed, solution, starter, verdict, visible

from classroom.assignments.beside import averaged
from classroom.assignments.ddp import criteria as ddp
from classroom.engine.rig import Rig

pytestmark = pytest.mark.sandbox

WRAPPED = """
from contextlib import contextmanager

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


HEAD = "import gc\nimport json\n"
SEND = "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))"
SHARE = """        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor, src=0)  # every rank now holds rank 0's values
"""
RIGHT = {
    "PyTorch's own start": changed(
        "ddp",
        (
            SHARE,
            "        group = dist.group.WORLD\n"
            "        parameters = list(module.parameters())\n"
            "        _verify_param_shape_across_processes(group, parameters)\n"
            "        _sync_module_states(module, group, 250_000_000, 0, [], True)\n",
        ),
        (
            HEAD,
            f"{HEAD}from torch.distributed.utils import (\n"
            "    _sync_module_states,\n"
            "    _verify_param_shape_across_processes,\n)\n",
        ),
    ),
    "functional collectives": changed(
        "ddp",
        (
            SHARE,
            "        for t in [*module.parameters(), *module.buffers()]:\n"
            "            row = t.detach().reshape(1, -1)\n"
            "            rows = fc.all_gather_tensor(row, 0, dist.group.WORLD)\n"
            "            t.copy_(rows[0].view_as(t))\n",
        ),
        (SEND, 'self.sent.append(fc.all_reduce(flat, "sum", dist.group.WORLD))'),
        ("for bucket, (flat, work) in zip(", "for bucket, flat in zip("),
        ("            work.wait()  # only now flat holds the sum over the ranks\n", ""),
        (HEAD, f"{HEAD}import torch.distributed._functional_collectives as fc\n"),
    ),
    "a thread that sends": changed(
        "ddp",
        (SEND, "self.sent.append((flat, THREAD.submit(dist.all_reduce, flat)))"),
        ("work.wait()", "work.result()"),
        (HEAD, f"{HEAD}from concurrent.futures import ThreadPoolExecutor\n"),
        ("SAMPLES, STEPS,", "THREAD = ThreadPoolExecutor(1)\nSAMPLES, STEPS,"),
    ),
}

# All is sent in finish(), while the hooks say to everybody who may listen that they
# send, and the flight recorder's log is filled as if they had.
FORGED = changed(
    "ddp",
    (
        """            if not self.ready.issuperset(bucket):
                break
            self.send(bucket)
""",
        """            if not self.ready.issuperset(bucket):
                break
            pretend(bucket)
""",
    ),
    (
        HEAD,
        f"""import sys
{HEAD}

def pretend(bucket):
    size = sum(p.numel() * p.element_size() for p in bucket)
    facts = {{"rank": dist.get_rank(), "about": "all_reduce", "bytes": size}}
    for step in range(20):
        sys.modules["ranks"].say("call", name="allreduce", step=step, **facts)
        facts |= {{"sum": 0.0, "squares": 0.0}}
    sys.modules["ranks"].say("carried", step=0, rank=-1, begin=0.0, end=0.0)


""",
    ),
)
BARRIER = changed(
    "ddp",
    (
        "        self.ready, self.sent = set(), []\n\n    @contextmanager",
        "        dist.barrier()\n"
        "        self.ready, self.sent = set(), []\n\n    @contextmanager",
    ),
)


def test_calls_cannot_be_made_up():
    found = verdict("ddp", FORGED, "overlap", visible("ddp")["overlap"])
    assert found.state == "fail" and "the shortest possible" in found.words, found


FORGED_ENDS = """        for micro in range(8):
            dist.group.WORLD.line.order("backward", micro)
        yield
        self.finish()
"""


def test_that_a_backward_has_ended_cannot_be_made_up():
    """Each micro-batch is sent, in no_sync() too; the numbers are right."""
    begin = "        self.syncing = False\n        try:\n            yield\n"
    end = "        finally:\n            self.syncing = True\n"
    answer = changed("ddp", (begin + end, FORGED_ENDS))
    found = verdict("ddp", answer, "no_sync", visible("ddp")["no_sync"])
    assert str(found).startswith("fail: rank 0 calls all_reduce in no_sync()"), found


def test_a_barrier_costs_nothing():
    for criterion in ("buckets", "frozen_tied"):
        cases = visible("ddp")[criterion][:1]
        found = verdict("ddp", BARRIER, criterion, cases)
        assert found.state == "pass", (criterion, found)


@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes(name):
    """The criteria that look most closely; test_..._every_criterion has the rest."""
    for criterion in ("start", "buckets", "overlap"):
        cases = visible("ddp")[criterion][:1]
        found = verdict("ddp", RIGHT[name], criterion, cases)
        assert found.state == "pass", (criterion, found)


@pytest.mark.full
@pytest.mark.parametrize("cell", cells("ddp"), ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes_every_criterion(name, cell):
    found = verdict("ddp", RIGHT[name], cell.name, cell.cases)
    assert found.state == "pass", found


def test_a_start_may_pass_before_the_rest_is_written():
    right, stub = solution("ddp")["ddp.py"], starter("ddp")["ddp.py"]
    end = "def fill_buckets"
    answer = {"ddp.py": right[: right.index(end)] + stub[stub.index(end) :]}
    assert verdict("ddp", answer, "start", visible("ddp")["start"]).state == "pass"


REDUCER = changed(
    "ddp",
    (
        "        self.syncing = True\n        self.ready",
        "        dist.distributed_c10d._get_default_group()\n"
        "        Reducer = vars(torch._C._distributed_c10d)['Redu' + 'cer']\n"
        "        Reducer(parameters, [[0]], [1000])\n"
        "        self.syncing = True\n        self.ready",
    ),
)


def test_nor_is_its_reducer():
    found = verdict("ddp", REDUCER, "steps", visible("ddp")["steps"][:1])
    assert found.state == "fail" and "is the task itself" in found.words, found


def test_the_library_s_own_step_is_the_shortest_possible():
    """Which the notebooks say; once its first step has shown the order of gradients."""

    class Allowed(Rig):
        def _execute(self, header, files):
            name = "harness.py"
            files[name] = files[name].replace(b", library=LIBRARY", b"")
            return super()._execute(header, files)

    rig, layers = Allowed(ddp, {"ddp.py": WRAPPED}), 6
    wire = averaged.CALL, averaged.LAYER / 1024
    net, plan = {"sizes": [16] * (layers + 1)}, [{}] * 4
    known = {"ranks": 2, "bucket_bytes": 1024, "nap": averaged.NAP, "wire": wire}
    case = averaged.Case(rig, net, plan, **known)
    outcome, diary = case.run()
    assert case.same_gradients(outcome).state == "pass", outcome.failure
    best = layers * averaged.NAP + averaged.CALL + averaged.LAYER
    assert [diary.seconds(step) for step in (2, 3)] == pytest.approx([best] * 2)


def test_the_library_s_own_ddp_is_no_answer():
    for criterion in ("start", "steps"):
        cases = visible("ddp")[criterion][:1]
        found = verdict("ddp", {"ddp.py": WRAPPED}, criterion, cases)
        assert found.state == "fail" and "is the task itself" in found.words, found
