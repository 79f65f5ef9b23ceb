"""Exercise: a model cut along two dimensions, and its step; "not yet" until written."""

import copy
import logging
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard  # noqa: F401, for the cell's functions
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (  # noqa: F401, for the cell's functions
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

WIDTH, HIDDEN, LAYERS, SAMPLES, STEPS = 12, 48, 3, 24, 2
LIMIT, RATE = 0.5, 0.1  # of the norm of all gradients; of SGD


def cut(model, mesh):
    return None  # the cell's function stands here


def step(model, optimizer, mesh, x, y):
    return None  # the cell's function stands here


class Gated(nn.Module):
    """Llama's MLP: gate and up read one input."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Scorer(nn.Module):
    """A number for each sample."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.mlps = nn.ModuleList(Gated() for _ in range(LAYERS))
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, x):  # (samples, WIDTH)
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            x = x + mlp(norm(x))
        return self.score(x).squeeze(-1)


class Whole(ParallelStyle):
    """Every rank has the whole weights, and takes and returns plain tensors."""

    def _apply(self, module, mesh):
        def enter(module, inputs, mesh):
            return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)

        return distribute_module(
            module, mesh, None, enter, lambda _, output, mesh: output.to_local()
        )


def check_cut(model, mesh):
    """See that the MLPs' weights are cut along both dimensions, tensor by columns."""
    for name, w in model.mlps.named_parameters():
        held, dim = w.to_local().numel(), 1 if "down" in name else 0
        if held * mesh.size() != w.numel():
            raise AssertionError(f"mlps.{name}: a rank holds {held} of {w.numel()}")
        if not w.placements[-1].is_shard(dim):
            raise AssertionError(f"mlps.{name}: not cut along tensor: {w.placements}")


def check_step(model, whole, norm, seen, sums):
    """Compare with one process; see that no sample and no sum is too many."""
    right = nn.utils.clip_grad_norm_(whole.parameters(), LIMIT).item()
    if not math.isclose(norm, right, abs_tol=1e-9):
        raise AssertionError(f"the norm is {norm:.6f}, expected {right:.6f}")
    torch.optim.SGD(whole.parameters(), RATE).step()
    whole.zero_grad()
    for (name, w), e in zip(model.named_parameters(), whole.parameters(), strict=True):
        message = f"after a step, {name} differs"
        torch.testing.assert_close(w.full_tensor(), e, rtol=0, atol=1e-9, msg=message)
    if seen[0] != seen[1]:
        raise AssertionError(f"a rank computes {seen[0]} samples, not {seen[1]}")
    if sums > 2 * LAYERS + 2:  # and the norm takes one or two
        raise AssertionError(f"{sums} all_reduces, where {2 * LAYERS} + the norm's do")


def attempt(mesh, device):
    """Cut, and take some steps; return the norms, or None while there are none."""
    whole = Scorer().double().to(device)
    if (model := cut(copy.deepcopy(whole), mesh)) is None:
        return None
    check_cut(model, mesh)
    optimizer, norms, seen = torch.optim.SGD(model.parameters(), RATE), [], []
    model.norms[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for batch in torch.randn(STEPS, SAMPLES, WIDTH + 1, dtype=torch.float64):
        x, y = batch[:, 1:].to(device), batch[:, 0].to(device)
        seen.clear()
        with CommDebugMode() as calls:
            norm = step(model, optimizer, mesh, x.clone(), y.clone())
        if norm is None:
            return None
        F.mse_loss(whole(x), y).backward()
        samples = sum(len(x) for x in seen), SAMPLES // mesh["data"].size()
        made = calls.get_comm_counts().items()
        sums = sum(n for call, n in made if "all_reduce" in call.__name__)
        check_step(model, whole, float(norm), samples, sums)
        norms.append(float(norm))
    return norms


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inner = next(n for n in range(2, world_size + 1) if world_size % n == 0)
    shape, names = (world_size // inner, inner), ("data", "tensor")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    dist.barrier()  # no rank leaves while another still connects
    logging.disable(logging.WARNING)  # two gathers for a weight that was cut twice
    dist.broadcast_object_list(seed := [torch.seed()], src=0)
    torch.manual_seed(seed[0])  # the same numbers on every rank
    norms = attempt(mesh, device)
    told = "as one process" if norms else "not yet"
    print(f"[rank {rank}] {told}, on a mesh of {shape}", flush=True)
    return {"solved": norms is not None, "norms": norms}
