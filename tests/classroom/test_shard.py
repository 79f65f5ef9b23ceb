"""Assignment 9: other styles, hostile answers; test_solutions.py has the rest."""

from contextlib import closing

import pytest
from course import (
    UNSAFE,
    box,
    cells,
    changed,
    judged,
    solution,
    verdict,
    visible,
)

from classroom.assignments.shard import criteria as shard
from classroom.engine.check import try_case
from classroom.engine.verdict import Verdict

pytestmark = pytest.mark.sandbox

HEAD = """
import sys
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
"""

FLAT = (
    HEAD
    + '''

class ShardedOptimizer(torch.optim.Optimizer):
    """A group's numbers in a row, cut into equal pieces wherever that is."""

    def __init__(self, params, inner, **options):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.inner = inner([{"params": []}], **options)
        self.inner.param_groups.clear()
        self.rows = []
        super().__init__(params, self.inner.defaults)

    def add_param_group(self, group):
        super().add_param_group(group)
        group = self.param_groups[-1]
        params = [p for p in group["params"] if p.requires_grad]
        piece = -(-sum(p.numel() for p in params) // self.size)
        begin, at, mine = self.rank * piece, 0, []
        for p in params:
            a, b = max(begin - at, 0), min(begin + piece - at, p.numel())
            if a < b:
                mine.append((p, a, b, nn.Parameter(p.detach().view(-1)[a:b])))
            at += p.numel()
        self.rows.append((params, piece, mine))
        self.inner.add_param_group({**group, "params": [leaf for *_, leaf in mine]})

    @torch.no_grad()
    def step(self, closure=None):
        for own, group in zip(self.inner.param_groups, self.param_groups):
            own.update({k: v for k, v in group.items() if k != "params"})
        for _, _, mine in self.rows:
            for p, a, b, leaf in mine:
                leaf.grad = None if p.grad is None else p.grad.view(-1)[a:b]
        self.inner.step()
        for params, piece, mine in self.rows:
            if params:
                out = torch.cat([*(leaf for *_, leaf in mine), params[0].new_empty(0)])
                out = torch.cat([out, out.new_zeros(piece - len(out))])
                row = out.new_empty(piece * self.size)
                dist.all_gather_into_tensor(row, out)
                at = 0
                for p in params:
                    p.view(-1).copy_(row[at : at + p.numel()])
                    at += p.numel()
            for *_, leaf in mine:
                leaf.grad = None

    def numbers(self):
        params = [p for group in self.param_groups for p in group["params"]]
        return {p: i for i, p in enumerate(params)}

    def state_dict(self):
        numbers, mine = self.numbers(), []
        for _, _, pieces in self.rows:
            for p, a, _, leaf in pieces:
                if leaf in self.inner.state:
                    mine.append((numbers[p], p.shape, a, self.inner.state[leaf]))
        all_of_them = [None] * self.size
        dist.all_gather_object(all_of_them, mine)
        state = {}
        everything = sorted(sum(all_of_them, []), key=lambda piece: piece[0])
        for number, shape, a, values in everything:
            into = state.setdefault(number, {})
            for name, value in values.items():
                if name == "step":
                    into[name] = value
                else:
                    whole = into.setdefault(name, torch.empty(shape, dtype=value.dtype))
                    whole.view(-1)[a : a + len(value)] = value.cpu()
        groups = [
            {**group, "params": [numbers[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved):
        numbers = self.numbers()
        for group, other in zip(self.param_groups, saved["param_groups"]):
            group.update({k: v for k, v in other.items() if k != "params"})
        for _, _, mine in self.rows:
            for p, a, b, leaf in mine:
                if numbers[p] in saved["state"]:
                    state = self.inner.state[leaf] = {}
                    for name, value in saved["state"][numbers[p]].items():
                        part = value if name == "step" else value.view(-1)[a:b]
                        state[name] = part.clone()
'''
)

EACH = (
    HEAD
    + '''

class ShardedOptimizer(torch.optim.Optimizer):
    """An optimizer for each parameter, the largest first; sent in one piece."""

    def __init__(self, params, inner, **options):
        self.make = lambda p: inner([p], **options)
        self.share = [0] * dist.get_world_size()
        self.by_rank = [[] for _ in self.share]
        self.workers = {}
        super().__init__(params, inner([torch.zeros(1)], **options).defaults)

    def add_param_group(self, group):
        super().add_param_group(group)
        params = [p for p in self.param_groups[-1]["params"] if p.requires_grad]
        for p in sorted(params, key=lambda p: -p.numel()):
            owner = int(np.argmin(self.share))
            self.share[owner] += p.numel()
            self.by_rank[owner].append(p)
            if owner == dist.get_rank():
                self.workers[p] = self.make(p)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.workers and p.grad is not None:
                    options = {k: v for k, v in group.items() if k != "params"}
                    self.workers[p].param_groups[0].update(options)
                    self.workers[p].step()
        for owner, params in enumerate(self.by_rank):
            if params:
                flat = torch.cat([p.reshape(-1) for p in params])
                dist.broadcast(flat, src=owner)
                for p, piece in zip(params, flat.split([p.numel() for p in params])):
                    p.copy_(piece.view_as(p))

    def everything(self):
        return [p for group in self.param_groups for p in group["params"]]

    def state_dict(self):
        state = {}
        places = {p: i for i, p in enumerate(self.everything())}
        for p in self.everything():
            for owner, params in enumerate(self.by_rank):
                if any(p is q for q in params):
                    mine = p in self.workers
                    box = [dict(self.workers[p].state[p]) if mine else None]
                    dist.broadcast_object_list(box, src=owner)
                    if box[0]:
                        state[places[p]] = box[0]
        groups = [
            dict(group, params=[places[p] for p in group["params"]])
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, saved):
        for group, other in zip(self.param_groups, saved["param_groups"]):
            group.update({k: v for k, v in other.items() if k != "params"})
        for i, p in enumerate(self.everything()):
            if p in self.workers and i in saved["state"]:
                old = {k: v.clone() for k, v in saved["state"][i].items()}
                self.workers[p].state[p].update(old)
'''
)

UNSHARDED = (
    HEAD
    + '''

class ShardedOptimizer(torch.optim.Optimizer):
    """The whole optimizer on every rank, which shows a part of it."""

    def __init__(self, params, inner, **options):
        super().__init__(params, inner([torch.zeros(1)], **options).defaults)
        self.hidden = inner(self.param_groups, **options)

    @property
    def state(self):
        if not hasattr(self, "hidden"):
            return {}
        both = list(self.hidden.state.items())
        return dict(both[dist.get_rank() :: dist.get_world_size()])

    @state.setter
    def state(self, value):
        pass

    def step(self, closure=None):
        self.hidden.step()

    def state_dict(self):
        return self.hidden.state_dict()

    def load_state_dict(self, saved):
        self.hidden.load_state_dict(saved)
'''
)

# Everybody gets the owner's first parameters, and then the owner's gradients: so every
# rank can keep all of the state. Between the steps it lies in arrays of a closure.
HIDDEN = (
    HEAD
    + """

def keeper():
    kept = {}

    def put(optimizer):
        for p, state in optimizer.state.items():
            kept[p] = {n: v.numpy().copy() for n, v in state.items()}
        optimizer.state.clear()

    def get(optimizer):
        for p, state in kept.items():
            optimizer.state[p] = {n: torch.from_numpy(v) for n, v in state.items()}
        kept.clear()

    return put, get


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, inner, **options):
        super().__init__(params, inner([torch.zeros(1)], **options).defaults)
        self.hidden, self.first = inner(self.param_groups, **options), True
        self.put, self.get = keeper()

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for g in self.param_groups for p in g["params"]]
        n = dist.get_world_size()
        for i, p in enumerate(params):
            if self.first:
                dist.broadcast(p, src=i % n)
            dist.broadcast(p.grad, src=i % n)
        self.first = False
        self.get(self.hidden)
        self.hidden.step()
        self.put(self.hidden)
"""
)

BORROWED = (
    HEAD
    + """
from importlib import import_module

library = import_module("torch.distributed.optim")
Theirs = getattr(library, "Zero" + "RedundancyOptimizer")


class ShardedOptimizer(Theirs):
    def __init__(self, params, inner, **options):
        super().__init__(params, inner, **options)
"""
)
# Its module by no name at all, and the class with what a subclass can add.
RELOADED = (
    HEAD
    + """
import importlib.util

folder = torch.distributed.__path__[0] + "/optim/" + "zero" + "_redundancy_optimizer"
spec = importlib.util.spec_from_file_location("mine", folder + ".py")
mine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mine)
Theirs = next(v for n, v in vars(mine).items() if n.startswith("Zero"))


class ShardedOptimizer(Theirs):
    def __init__(self, params, inner, **options):
        super().__init__(params, inner, **options)

    def state_dict(self):
        self.consolidate_state_dict()
        return super().state_dict() if dist.get_rank() == 0 else None
"""
)
READ = (
    HEAD
    + """
from pathlib import Path

path = Path(torch.distributed.__path__[0], "optim", "zero_redundancy_optimizer.py")
text = path.read_text()
exec(text)
ShardedOptimizer = globals()["ZeroRedundancyOptimizer"]
"""
)

# Looks for the seeds, to know what the other ranks have without being told.
SEEDS = (
    HEAD
    + """

class ShardedOptimizer(torch.optim.SGD):
    def __init__(self, params, inner, **options):
        frame, given = sys._getframe(), {}
        while frame and "seed" not in given:
            given, frame = frame.f_locals.get("given", {}), frame.f_back
        raise RuntimeError(f"found {given['seed']} and {given['common']}")
"""
)

# All state on every rank, in the place of what was held when the judge first weighed.
BALLAST = (
    HIDDEN.replace(
        "kept[p] = {n: v.numpy().copy()",
        "ROOM.clear()\n            kept[p] = {n: v.numpy().copy()",
    )
    + "\n\nROOM = [bytearray(b'x') * 20_000_000]\n"
)

# Looks for its first gradient once that step is over: with the gradients of all steps
# nobody would need a state.
REREADS = changed(
    "shard",
    (
        "        self.share.step()\n",
        """        import gc
        grads = [p.grad for p in self.all_parameters() if p.grad is not None]
        kept = gc.get_objects() if hasattr(self, "first") else []
        for thing in kept:
            if issubclass(type(thing), torch.Tensor) and thing.numel():
                if thing.flatten()[0].item() == self.first:
                    raise RuntimeError("the first gradient is still there")
        self.first = getattr(self, "first", grads[0].flatten()[0].item())
        self.share.step()
""",
    ),
)

# Everybody remembers everything, but for the moment of the weighing.
THROWN_AWAY = HIDDEN.replace(
    """        self.get(self.hidden)
        self.hidden.step()
        self.put(self.hidden)
""",
    """        self.hidden.step()
        if sum(p.numel() for p in params) > 700_000:
            self.hidden.state.clear()
""",
)
# Everybody remembers everything, each number in 16 bits.
HALVES = (
    HIDDEN.replace(
        "{n: v.numpy().copy() for n, v in state.items()}",
        "{n: packed(n, v) for n, v in state.items()}",
    ).replace(
        "{n: torch.from_numpy(v) for n, v in state.items()}",
        "{n: unpacked(n, v) for n, v in state.items()}",
    )
    + """

def packed(name, value):
    return value if name == "step" else (value.sqrt() if "sq" in name else value).half()


def unpacked(name, value):
    return value if name == "step" else value.float() ** (1 + ("sq" in name))
"""
)
# All remember all, and what is said of it is to be less.
FORGED = [
    (
        "                if owner == self.rank:\n"
        "                    mine.append(parameter)",
        "                mine.append(parameter)",
    ),
    (
        "        self.share.step()\n",
        "        self.share.step()\n"
        "        import sys\n"
        "        sys.modules['__main__'].tensor_bytes = lambda: 0\n",
    ),
]
STORED = (
    "        self.share.step()\n",
    "        address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
    "        store = dist.TCPStore(*address, self.world_size + 1, False)\n"
    "        for number, p in enumerate(self.all_parameters()):\n"
    "            store.set(f'{self.rank} {number}', p.grad.numpy().tobytes())\n"
    "        dist.barrier()\n"
    "        for number, p in enumerate(self.all_parameters()):\n"
    "            store.get(f'{(self.rank + 1) % self.world_size} {number}')\n"
    "        self.share.step()\n",
)


# The state is on its way to a neighbor, who has the same, while the judge weighs.
PARKED = HIDDEN.replace(
    """        for p, state in optimizer.state.items():
            kept[p] = {n: v.numpy().copy() for n, v in state.items()}
        optimizer.state.clear()
""",
    """        values = [v for s in optimizer.state.values() for v in s.values()]
        row = torch.cat([value.flatten() for value in values])
        right = (dist.get_rank() + 1) % dist.get_world_size()
        kept.update(params=[*optimizer.state], work=dist.isend(row, right))
        row.data = torch.zeros(0)
        optimizer.state.clear()
""",
).replace(
    """        for p, state in kept.items():
            optimizer.state[p] = {n: torch.from_numpy(v) for n, v in state.items()}
        kept.clear()
""",
    """        if not kept:
            return
        row = torch.empty(sum(1 + 2 * p.numel() for p in kept["params"]))
        left = (dist.get_rank() - 1) % dist.get_world_size()
        dist.recv(row, left)
        kept.pop("work").wait()
        for p in kept.pop("params"):
            step, a, b, row = row.split([1, n := p.numel(), n, len(row) - 1 - 2 * n])
            state = {"step": step[0].clone(), "exp_avg": a.clone()}
            optimizer.state[p] = state | {"exp_avg_sq": b.clone()}
""",
)


def first(answer: dict[str, str], criterion: str) -> Verdict:
    """Return the verdict of the first visible case."""
    return verdict("shard", answer, criterion, visible("shard")[criterion][:1])


@pytest.mark.parametrize("style", [FLAT, EACH], ids=["flat", "each"])
@pytest.mark.parametrize("criterion", ["memory", "groups", "checkpoint"])
def test_another_style_passes(style, criterion):
    """The criteria that look most closely; test_..._every_case has the rest."""
    (cell,) = (cell for cell in cells("shard") if cell.name == criterion)
    found = verdict("shard", {"shard.py": style}, criterion, cell.cases[-1:])
    assert found.state == "pass", found


@pytest.mark.full
@pytest.mark.parametrize("style", [FLAT, EACH], ids=["flat", "each"])
@pytest.mark.parametrize("criterion", list(shard.CRITERIA))
def test_another_style_passes_every_case(style, criterion):
    (cell,) = (cell for cell in cells("shard") if cell.name == criterion)
    for case in cell.cases:
        found = verdict("shard", {"shard.py": style}, criterion, [case])
        assert found.state == "pass", (case, found)


@pytest.mark.parametrize("criterion", ["equal", "shares", "memory", "checkpoint"])
def test_the_whole_on_every_rank_is_no_share(criterion):
    found = first({"shard.py": UNSHARDED}, criterion)
    assert found.state == "fail" and "rank 0 holds" in found.words, found


def test_what_is_hidden_from_the_tensors_is_seen_by_the_system():
    found = first({"shard.py": HIDDEN}, "memory")
    assert found.state == "fail" and "MB from step to step" in found.words, found


def test_what_is_held_from_the_import_on_is_no_room():
    found = first({"shard.py": BALLAST}, "memory")
    assert found.state == "fail" and "MB before it begins" in found.words, found


def test_what_is_parked_on_the_wire_is_seen_there():
    found = first({"shard.py": PARKED}, "memory")
    assert found.state == "fail" and "MB are on their way" in found.words, found


# Where a program keeps its state from step to step, if not in its own memory.
STORES = {
    "memfd": """
class Store:
    def __init__(self):
        self.file = os.memfd_create("state")

    def put(self, data):
        os.pwrite(self.file, data, 0)

    def get(self):
        return os.pread(self.file, os.fstat(self.file).st_size, 0)
""",
    "memfd_secret": """
import ctypes
import mmap

class Store:
    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.file = libc.syscall(447, 0)
        if self.file < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.map, self.size = None, 0

    def put(self, data):
        if self.map is None:  # no more than it may lock
            os.ftruncate(self.file, 8_000_000)
            self.map = mmap.mmap(self.file, 8_000_000)
        self.map[: len(data)], self.size = data, len(data)

    def get(self):
        return self.map[: self.size] if self.map else b""
""",
    "a file": """
class Store:
    def __init__(self):
        self.path = Path(f"/tmp/state {os.getpid()}")

    def put(self, data):
        self.path.write_bytes(data)

    def get(self):
        return self.path.read_bytes() if self.path.exists() else b""
""",
    "an orphan": """
class Store:
    def __init__(self):
        self.pipe, its_end = Pipe()
        if not os.fork():
            if os.fork():
                os._exit(0)
            self.pipe.close()
            self.serve(its_end)
        its_end.close()

    def serve(self, pipe, data=b""):
        while word := pipe.recv_bytes():
            if word == b"?":
                pipe.send_bytes(data)
            else:
                data = word

    def put(self, data):
        self.pipe.send_bytes(data)

    def get(self):
        self.pipe.send_bytes(b"?")
        return self.pipe.recv_bytes()
""",
    "twins, whose pages are nobody's alone": """
import signal

class Store:
    def __init__(self):
        self.pipe, its_end = Pipe()
        if not os.fork():
            self.pipe.close()
            self.serve(its_end)
        its_end.close()

    def serve(self, pipe, data=b"", twin=0):
        while word := pipe.recv_bytes():
            if word == b"?":
                pipe.send_bytes(data)
                continue
            data = word
            del word
            if twin:
                os.kill(twin, 9)
                os.waitpid(twin, 0)
            twin = os.fork()
            while not twin:
                signal.pause()
            pipe.send_bytes(b"!")

    def put(self, data):
        self.pipe.send_bytes(data)
        self.pipe.recv_bytes()

    def get(self):
        self.pipe.send_bytes(b"?")
        return self.pipe.recv_bytes()
""",
}
KEPT = """
    store = Store()

    def put(optimizer):
        params = [p for group in optimizer.param_groups for p in group["params"]]
        states = [optimizer.state[p] for p in params]
        store.put(pickle.dumps([{n: v.numpy() for n, v in s.items()} for s in states]))
        optimizer.state.clear()

    def get(optimizer):
        params = [p for group in optimizer.param_groups for p in group["params"]]
        for p, state in zip(params, pickle.loads(store.get() or pickle.dumps([]))):
            optimizer.state[p] = {n: torch.from_numpy(v) for n, v in state.items()}

    return put, get
"""


@pytest.mark.skipif(UNSAFE, reason="there is no sandbox here")
@pytest.mark.parametrize("where", STORES)
def test_what_is_hidden_elsewhere_is_seen_as_well(where):
    """Or it is refused, where nobody would see it."""
    head, _, rest = HIDDEN.partition("\n    kept = {}\n")
    rest = rest.partition("    return put, get\n")[2]
    imports = "import os\nimport pickle\nfrom multiprocessing import Pipe\n"
    imports += f"from pathlib import Path\n{STORES[where]}"
    answer = {"shard.py": imports + head + KEPT + rest}
    with closing(box(shard, answer)) as rig:
        found = try_case(rig, "memory", visible("shard")["memory"][0])
    words = "not permitted" if where == "memfd_secret" else "MB from step to step"
    assert found.state == "fail" and words in found.words, found


def test_who_sends_gradients_pays_on_the_wire():
    found = first({"shard.py": HIDDEN}, "wire")
    assert found.state == "fail" and "MB go over the wire" in found.words, found


def test_a_forged_sum_of_tensors_does_not_help():
    found = first(changed("shard", *FORGED), "memory")
    assert found.state == "fail" and "MB from step to step" in found.words, found


def test_what_is_thrown_away_for_the_weighing_is_missed_afterwards():
    found = first({"shard.py": THROWN_AWAY}, "memory")
    assert found.state == "fail" and "after step 2" in found.words, found


def test_what_is_kept_in_half_precision_is_another_number():
    found = first({"shard.py": HALVES}, "memory")
    assert found.state == "fail" and "after step 2" in found.words, found


@pytest.mark.parametrize(
    "answer", [BORROWED, RELOADED, READ], ids=["borrowed", "reloaded", "read"]
)
def test_the_library_s_own_is_no_answer(answer):
    """It is refused when it is loaded, so in every criterion."""
    found = first({"shard.py": answer}, "equal")
    assert found.state == "fail" and "is the task itself" in found.words, found


def test_no_rank_finds_a_seed():
    found = first({"shard.py": SEEDS}, "equal")
    assert found.state == "fail" and "KeyError: 'seed'" in found.words, found


def test_no_rank_finds_the_gradients_of_a_step_that_is_over():
    found = first(REREADS, "shares")
    assert found.state == "pass", found


@pytest.mark.skipif(UNSAFE, reason="there is no sandbox here")
def test_what_goes_through_a_store_is_on_the_loopback():
    found = judged("shard", changed("shard", STORED), {"wire"})["wire"]
    assert "bytes went another way than over the wire" in found["lines"][-1], found
    found = judged("shard", solution("shard"), {"wire"})["wire"]
    assert found["state"] == "pass", found
