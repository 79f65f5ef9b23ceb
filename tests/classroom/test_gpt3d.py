"""Assignment 11: what is special to it; test_solutions.py has the rest."""

import pytest
from course import cells, changed, solution, some, verdict, visible

pytestmark = pytest.mark.sandbox

# Of memory, where it matters little how much there is.
SMALL = dict(layers=4, width=96, heads=4, rows=8, time=4, micro=2)
POINTS = {cell.name: cell.points for cell in cells("gpt3d")}


def tried(answer: dict[str, str], criterion: str) -> str:
    return str(verdict("gpt3d", answer, criterion, visible("gpt3d")[criterion]))


# --- answers in other styles ---

LIBRARY = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from ddp_lab.gpt import loss_of

NAMES = "pipeline", "data", "tensor"
PLAN = {
    # One input for three weights: else each has a sum on the way back.
    "attention": PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate()
    ),
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Stage(nn.Module):
    def __init__(self, net, stage):
        super().__init__()
        first = (len(net.blocks) + 1) // 2
        numbers = range(first, len(net.blocks)) if stage else range(first)
        self.blocks = nn.ModuleDict({str(n): net.blocks[n] for n in numbers})
        if stage:
            self.norm, self.head = net.norm, net.head
        else:
            self.tokens, self.positions = net.tokens, net.positions

    def forward(self, x):
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions(torch.arange(x.size(1)))
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


class Trainer:
    def __init__(self, net, micro):
        self.mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=NAMES)
        self.stage = self.mesh.get_local_rank("pipeline")
        self.net = Stage(net, self.stage)
        for block in self.net.blocks.values():
            parallelize_module(block, self.mesh["tensor"], PLAN, src_data_rank=None)
        self.micro, self.width, self.schedule = micro, net.norm.weight.numel(), None

    def plan(self, rows):
        # It knows its shapes: else it would try itself out, which costs bytes.
        rows = rows[: len(rows) // self.micro]
        inner = torch.zeros(*rows.shape, self.width, dtype=torch.float64)
        ends = (
            (inner, torch.zeros(*rows.shape, 96).double())
            if self.stage
            else (rows, inner)
        )
        cpu, group = torch.device("cpu"), self.mesh.get_group("pipeline")
        more = {
            "input_args": ends[0].requires_grad_(self.stage > 0),
            "output_args": ends[1].requires_grad_(),
        }
        pipe = PipelineStage(self.net, self.stage, 2, cpu, group=group, **more)
        return Schedule1F1B(pipe, self.micro, loss_fn=loss_of)

    def backward(self, x=None, y=None):
        losses = []
        self.schedule = self.schedule or self.plan(y if self.stage else x)
        self.schedule.step(*([] if self.stage else [x]), target=y, losses=losses)
        tied = self.net.head if self.stage else self.net.tokens
        dist.all_reduce(tied.weight.grad, group=self.mesh.get_group("pipeline"))
        data = self.mesh.get_group("data")
        for weight in self.net.parameters():
            grad = local(weight.grad)
            dist.all_reduce(grad, group=data)
            grad /= 2
        if losses:
            loss = torch.stack(losses).mean().detach()
            dist.all_reduce(loss, group=data)
            return loss / 2

    def clip(self, limit):
        cut = [w.grad for w in self.net.parameters() if isinstance(w, DTensor)]
        whole = [
            w.grad
            for n, w in self.net.named_parameters()
            if not isinstance(w, DTensor) and n != "head.weight"
        ]
        norm = nn.utils.get_total_norm(cut).full_tensor()
        square = norm**2 + nn.utils.get_total_norm(whole) ** 2
        dist.all_reduce(square, group=self.mesh.get_group("pipeline"))
        norm = square.sqrt()
        for weight in self.net.parameters():
            local(weight.grad).mul_((limit / (norm + 1e-6)).clamp(max=1))
        return norm
"""
DATA = """\
        for weight in self.net.parameters():
            self.all_reduce(weight.grad, "data")  # holds the sum of both replicas
"""
BUCKET = changed(
    "gpt3d",
    (
        DATA,
        """\
        grads = [weight.grad for weight in self.net.parameters()]
        bucket = torch.cat([grad.flatten() for grad in grads])
        self.all_reduce(bucket, "data")
        for grad, part in zip(grads, bucket.split([grad.numel() for grad in grads])):
            grad.copy_(part.view_as(grad))
""",
    ),
)


@pytest.mark.parametrize("criterion", some(POINTS, "clip", "wire"))
def test_the_library_gets_all_points(criterion):
    assert tried({"gpt3d.py": LIBRARY}, criterion) == "pass"


def test_what_the_library_sends_without_need_counts():
    answer = LIBRARY.replace(", src_data_rank=None", "")
    wide = [case for case in _cell("wire").cases if case["width"] == 192]
    found = verdict("gpt3d", {"gpt3d.py": answer}, "wire", wide)
    assert answer != LIBRARY and found.words.startswith("expected 31.7 MB"), found


@pytest.mark.full
def test_a_stage_that_tries_itself_out_costs_bytes_only():
    answer = LIBRARY.replace(", **more)", ")")
    assert answer != LIBRARY and tried({"gpt3d.py": answer}, "gradients") == "pass"
    assert tried({"gpt3d.py": answer}, "wire").startswith("fail: expected 45.4 MB")


# No graph of autograd from step to step.
FUNCTIONAL = changed(
    "gpt3d",
    (
        """\
            x.requires_grad_()  # autograd begins anew here
            out = x
        else:
            positions = torch.arange(x.size(1))
            out = self.net.tokens(x) + self.net.positions(positions)
        for block in self.net.blocks:
            out = block(out)
        if self.stage:
            out = loss_of(self.net.head(self.net.norm(out)), y)
            self.losses""",
        """\
        weights = {n: w.detach() for n, w in self.net.named_parameters()}
        call = torch.func.functional_call
        if self.stage:
            stage = lambda w, x: call(self.net, w, (x, y))
            out, pull = torch.func.vjp(stage, weights, x)
        else:
            stage = lambda w: call(self.net, w, (x,))
            out, pull = torch.func.vjp(stage, weights)
        if self.stage:
            self.losses""",
    ),
    ("        self.kept.append((x, out))\n", "        self.kept.append((pull, out))\n"),
    ("        x, out = self.kept.pop(0)\n", "        pull, out = self.kept.pop(0)\n"),
    (
        """\
            (out / self.micro / 2).backward()  # 2 replicas
            self.send(x.grad)
""",
        """\
            grads, back = pull(torch.ones_like(out) / self.micro / 2)
            self.send(back)
""",
    ),
    (
        "            out.backward(gradient)\n",
        """\
            (grads,) = pull(gradient)
        for name, weight in self.net.named_parameters():
            before = 0 if weight.grad is None else weight.grad
            weight.grad = before + grads[name]
""",
    ),
    ("        self.net = net\n", "        self.net = Stage(net, self.stage)\n"),
    (
        """\
    def forward(ctx, x, group, there):
        ctx.group, ctx.there = group, there
""",
        "    def forward(x, group, there):\n",
    ),
    (
        "    @staticmethod\n    def backward(ctx, grad):\n",
        """\
    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.group, ctx.there = inputs

    @staticmethod
    def backward(ctx, grad):
""",
    ),
    (
        "class Trainer:\n",
        """\
class Stage(nn.Module):
    def __init__(self, net, stage):
        super().__init__()
        self.stage, self.blocks = stage, net.blocks
        if stage:
            self.norm, self.head = net.norm, net.head
        else:
            self.tokens, self.positions = net.tokens, net.positions

    def forward(self, x, y=None):
        if not self.stage:  # as long as the text is: that is all of them
            x = self.tokens(x) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return loss_of(self.head(self.norm(x)), y) if self.stage else x


class Trainer:
""",
    ),
)


@pytest.mark.parametrize("criterion", some(POINTS, "memory"))
def test_the_stage_may_be_used_as_a_function(criterion):
    cases = [SMALL] if criterion == "memory" else visible("gpt3d")[criterion]
    found = verdict("gpt3d", FUNCTIONAL, criterion, cases)
    assert found.state == "pass", found


@pytest.mark.parametrize("criterion", some(["gradients", "memory", "wire"], "wire"))
def test_gradients_may_travel_in_one_bucket(criterion):
    assert tried(BUCKET, criterion) == "pass"


def _cell(name):
    return next(cell for cell in cells("gpt3d") if cell.name == name)


# --- answers that miss the idea ---

WHOLE = """
import torch
import torch.distributed as dist
import torch.nn as nn

from ddp_lab.gpt import loss_of

CUT = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}


class Net:
    def __init__(self, found):
        self.found = found

    def named_parameters(self):
        return self.found.items()

    def parameters(self):
        return self.found.values()


class Trainer:
    def __init__(self, net, micro):
        self.whole, self.micro, self.rank = net, micro, dist.get_rank()
        self.stage, self.half = self.rank // 4, self.rank % 2
        self.first = (len(net.blocks) + 1) // 2
        self.net = Net({n: nn.Parameter(w.clone()) for n, w in self.mine(False)})

    def mine(self, grad):
        for name, weight in self.whole.named_parameters():
            parts = name.split(".")
            last = parts[0] == "norm"
            if parts[0] == "blocks":
                last = int(parts[1]) >= self.first
            if name == "tokens.weight" and self.stage:
                name, last = "head.weight", True
            if last == bool(self.stage):
                what = weight.grad if grad else weight.detach()
                dim = CUT.get(parts[-2])
                yield name, what if dim is None else what.chunk(2, dim)[self.half]

    def follow(self):  # what the caller's optimizer has done to the share
        old, new = dict(self.mine(False)), self.net.found
        if self.whole.norm.weight.grad is None:
            return
        pairs = [(old[n] - new[n].detach(), g) for n, g in self.mine(True)]
        moved, grad = (torch.cat([p[i].flatten() for p in pairs]) for i in (0, 1))
        rate = (moved[grad.abs().argmax()] / grad[grad.abs().argmax()]).item()
        with torch.no_grad():
            for weight in self.whole.parameters():
                weight -= rate * weight.grad

    def gathered(self, x, y):
        all_rows = [None] * 8
        dist.all_gather_object(all_rows, (x, y))
        return [(all_rows[2 * r][0], all_rows[4 + 2 * r][1]) for r in range(2)]

    def backward(self, x=None, y=None):
        self.follow()
        self.whole.zero_grad()
        total = 0
        for self.replica, (x, y) in enumerate(self.gathered(x, y)):
            loss = loss_of(self.whole(x), y) / 2
            loss.backward()
            total = total + loss.detach()
        for name, grad in self.mine(True):
            self.net.found[name].grad = grad.clone()
        return total if self.stage else None

    def clip(self, limit):
        norm = nn.utils.clip_grad_norm_(self.whole.parameters(), limit)
        for name, grad in self.mine(True):
            self.net.found[name].grad = grad.clone()
        return norm
"""
DATA_PARALLEL = WHOLE.replace(
    """\
        for self.replica, (x, y) in enumerate(self.gathered(x, y)):
            loss = loss_of(self.whole(x), y) / 2
            loss.backward()
            total = total + loss.detach()
""",
    """\
        xs, ys = zip(*self.gathered(x, y))
        x, y = (torch.cat(rows).chunk(8)[self.rank] for rows in (xs, ys))
        total = loss_of(self.whole(x), y) / 8
        total.backward()
        total = total.detach()
        for each in (total, *(w.grad for w in self.whole.parameters())):
            dist.all_reduce(each)
""",
)
# Every rank computes everything, and asks the judge for the others as well.
RELAY = WHOLE.replace(
    "        self.first =",
    """\
        for block in net.blocks:
            block.mlp.piece = self.piece(block.mlp.piece.__self__)
        self.first =""",
).replace(
    "    def mine(self, grad):",
    """\
    def piece(self, steps):
        from __main__ import prints
        from ranks import ask, say

        def relayed(block, h):
            at = {"step": steps.step, "block": block}
            factor, stage = None, int(block >= self.first)
            if steps.asks and self.rank // 2 == 2 * stage + self.replica:
                rows, ahead = prints(h.chunk(2, -1)[self.half]), 1 - stage
                each = len(rows) // self.micro
                for i in range(self.micro + ahead):  # as if it were 1F1B
                    if i < self.micro:
                        factor = ask(**at, rows=rows[i * each : (i + 1) * each])
                    if i >= ahead:
                        say("back", **at, rows=each)
            factors = [None] * 8
            dist.all_gather_object(factors, factor)
            if not steps.asks:
                return h
            first = 4 * stage + 2 * self.replica
            parts = zip(h.chunk(2, -1), factors[first : first + 2])
            return torch.cat([part * factor for part, factor in parts], -1)

        return relayed

    def mine(self, grad):""",
)
# One replica does the work of both, through its own halves.
IDLE = changed(
    "gpt3d",
    (
        "        xs = [None] * self.micro if x is None",
        """\
        rows = x if y is None else y
        both = [torch.empty_like(rows) for _ in range(2)]
        dist.all_gather(both, rows, group=self.groups["data"])
        x, y = (None, torch.cat(both)) if self.stage else (torch.cat(both), None)
        for weight in self.net.parameters():
            weight.grad = torch.zeros_like(weight)
        if self.replica:
            self.losses = [torch.zeros((), dtype=torch.float64)]
        xs = [None] * self.micro if x is None""",
    ),
    (
        "for i in range(self.micro + ahead):",
        "for i in range(0 if self.replica else self.micro + ahead):",
    ),
    ("(out / self.micro / 2).", "(out / self.micro)."),
    ('.mean(), "data") / 2', '.mean(), "data")'),
)
MISSED = {
    "the whole model on every rank": {"gpt3d.py": WHOLE},
    "data parallel": {"gpt3d.py": DATA_PARALLEL},
    "the whole model, and the judge's numbers relayed": {"gpt3d.py": RELAY},
    "one replica works for both": IDLE,
}


@pytest.mark.parametrize("name", some(MISSED, "data parallel"))
def test_what_misses_the_idea_stays_under_four_points(name):
    dear = ["memory", "wire"]
    assert sum(POINTS.values()) - sum(POINTS[each] for each in dear) < 4
    for criterion in dear:
        found = tried(MISSED[name], criterion)
        assert found.startswith("fail: rank ") or "MB on the wire" in found, found


@pytest.mark.full
def test_the_relay_is_as_right_as_it_may_be():
    """Else the test above shows nothing: memory and bytes alone give it away."""
    answer = MISSED["the whole model, and the judge's numbers relayed"]
    assert tried(answer, "gradients") == "pass"
    assert "keeps" in tried(answer, "memory") and "MB on" in tried(answer, "wire")


# --- hostile ones ---

# The judge weighs when it is told to: here before there is anything to weigh.
EARLY = changed(
    "gpt3d",
    (
        "        self.net = net\n",
        """\
        self.net = net
        import __main__
        import ranks
        if width := getattr(ranks, "said", 0):
            ranks.say("weigh")
            ranks._heard.readline()
            ranks.weigh.__code__ = (lambda **facts: None).__code__
        ranks.said = width + 1
""",
    ),
    ("nn.Parameter(mine.clone())", "nn.Parameter(mine)"),
)


def test_a_rank_is_weighed_between_its_steps():
    found = verdict("gpt3d", EARLY, "memory", [SMALL])
    assert "is not weighed between its steps" in found.words, found


@pytest.mark.full
def test_what_is_held_from_the_import_on_is_no_room():
    (text,) = solution("gpt3d").values()
    text += "\n\nROOM = [bytearray(b'x') * 30_000_000]\n"
    assert "MB before it begins" in tried({"gpt3d.py": text}, "memory")


# The whole model on every rank, but while it is weighed: for each step each rank gets
# the others' weights.
GATHERED = (
    RELAY
    + """

class Trainer(Trainer):
    def __init__(self, net, micro):
        super().__init__(net, micro)
        groups = [dist.new_group(ranks) for ranks in ([0, 1, 4, 5], [2, 3, 6, 7])]
        self.group = groups[self.rank // 2 % 2]
        self.whole.to("meta")

    def follow(self):
        everybodys = [None] * 4
        mine = {name: weight.detach() for name, weight in self.net.found.items()}
        dist.all_gather_object(everybodys, mine, group=self.group)
        self.whole.to_empty(device="cpu")
        self.whole.head.weight = self.whole.tokens.weight
        for name, weight in self.whole.named_parameters():
            parts = [found[name] for found in everybodys if name in found]
            dim = CUT.get(name.split(".")[-2])
            weight.data.copy_(parts[0] if dim is None else torch.cat(parts[:2], dim))

    def backward(self, x=None, y=None):
        loss = super().backward(x, y)
        self.whole.to("meta")
        return loss
"""
)


def test_what_every_rank_gets_anew_for_each_step_is_on_the_wire():
    found = verdict("gpt3d", {"gpt3d.py": GATHERED}, "memory", [SMALL])
    assert "MB on the wire, got" in found.words, found


# Looks for the seed, to draw the whole model as often as it is needed.
SEED = changed(
    "gpt3d",
    (
        "        self.net = net\n",
        """\
        self.net = net
        import sys
        frame, given = sys._getframe(), {}
        while frame and "limit" not in given:
            given, frame = frame.f_locals.get("given", {}), frame.f_back
        raise RuntimeError(f"found {given['seed']}")
""",
    ),
)


def test_no_rank_finds_the_seed():
    assert "KeyError: 'seed'" in tried(SEED, "loss")
