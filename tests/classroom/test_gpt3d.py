"""The project gpt3d: what is special to it; test_solutions.py has the rest."""

import pytest
from course import cells, changed, some, verdict, visible

pytestmark = pytest.mark.sandbox

CRITERIA = [cell.name for cell in cells("gpt3d")]


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
        return norm.item()  # which is in float64, too
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


@pytest.mark.parametrize("criterion", some(CRITERIA, "held", "wire"))
def test_the_library_gets_all_points(criterion):
    assert tried({"gpt3d.py": LIBRARY}, criterion) == "pass"


@pytest.mark.full
def test_what_the_library_sends_without_need_counts():
    answer = LIBRARY.replace(", src_data_rank=None", "")
    (cell,) = (cell for cell in cells("gpt3d") if cell.name == "wire")
    wide = [case for case in cell.cases if case["width"] == 192]
    found = verdict("gpt3d", {"gpt3d.py": answer}, "wire", wide)
    assert answer != LIBRARY and found.words.startswith("expected 31.7 MB"), found


@pytest.mark.full
def test_a_stage_that_tries_itself_out_costs_bytes_only():
    answer = LIBRARY.replace(", **more)", ")")
    assert answer != LIBRARY and tried({"gpt3d.py": answer}, "gradients") == "pass"
    assert tried({"gpt3d.py": answer}, "wire").startswith("fail: expected 45.4 MB")


@pytest.mark.parametrize("criterion", some(["gradients", "held", "wire"], "wire"))
def test_gradients_may_travel_in_one_bucket(criterion):
    assert tried(BUCKET, criterion) == "pass"


@pytest.mark.full
def test_activations_may_be_computed_anew():
    pair = "                    pair.register_forward_hook(self.behind)\n"
    anew = """\
                    run = partial(torch.utils.checkpoint.checkpoint, pair.forward)
                    pair.forward = partial(run, use_reentrant=True)
"""
    imports = "import gc\n", "import gc\nfrom functools import partial\n"
    answer = changed("gpt3d", (pair, pair + anew), imports)
    assert tried(answer, "held") == "pass"


# --- an answer that misses the idea ---

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


def test_the_whole_model_on_every_rank_is_no_cut():
    """It is right, and shows its share: tensors and bytes give it away."""
    assert tried({"gpt3d.py": WHOLE}, "gradients") == "pass"
    assert " in tensors, expected" in tried({"gpt3d.py": WHOLE}, "held")
    assert "MB on the wire, got" in tried({"gpt3d.py": WHOLE}, "wire")
