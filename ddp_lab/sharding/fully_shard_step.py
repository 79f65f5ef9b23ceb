"""Take steps: add up micro-batches, clip by the norm of all gradients, update.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/fully_shard_step.py

Written by notebooks/16_fully_shard.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, batch, loss_of

MICRO_BATCHES, LIMIT, LEARNING_RATE = 4, 0.5, 0.1


def build(mesh):
    """Return the same whole model on every rank."""
    torch.manual_seed(0)
    return GPT().to(mesh.device_type)


def shard(model, mesh, **options):
    """Make a group of each block, and one more of what is left at the root."""
    # A warning: the logits are a view, so leave them unchanged. We do.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    # The root comes last: it takes what no group has taken before.
    return fully_shard(model, mesh=mesh, **options)


class Calls(TorchDispatchMode):
    """Counts collectives by name."""

    made = ""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        self.made += f" {op.name()}" * ("c10d" in op.namespace)
        return op(*args, **(kwargs or {}))

    def count(self, kind):
        return self.made.count(kind)


def part(number, mesh):
    """Return this rank's rows of a batch, and their targets."""
    x, y = batch(number)
    if len(x) % mesh.size():
        raise ValueError(f"{mesh.size()} ranks cannot share {len(x)} rows equally")
    mine = (tensor.chunk(mesh.size())[mesh.get_rank()] for tensor in (x, y))
    return [tensor.to(mesh.device_type) for tensor in mine]


def own_norm(model):  # the trap: of this rank's rows alone
    parts = [p.grad.to_local().norm() for p in model.parameters()]
    return torch.stack(parts).norm().item()


def bytes_of_gradients(model):
    """Count this rank's rows, and whole gradients, which FSDP keeps until the end."""
    shapes = {p.shape for p in model.parameters()}
    found = [o for o in gc.get_objects() if type(o) is torch.Tensor]
    tensors = [t for t in found if t.shape in shapes and not t.requires_grad]
    grads = [p.grad for p in model.parameters() if isinstance(p.grad, DTensor)]
    tensors += [grad.to_local() for grad in grads]
    # What FSDP has freed is still a tensor, at address 0.
    return sum({t.data_ptr(): t.nbytes for t in tensors if t.data_ptr()}.values())


def accumulate(model, rows, at_the_end=True):
    """Add up the micro-batches' gradients; return their bytes after two."""
    half_way = 0
    for i, (x, y) in enumerate(rows):
        if isinstance(model, FSDPModule):
            is_last = i == len(rows) - 1
            model.set_requires_gradient_sync(is_last or not at_the_end)
        (loss_of(model(x), y) / len(rows)).backward()
        half_way = half_way if i > 1 else bytes_of_gradients(model)
    return half_way


def clip(model):
    """Scale the gradients so that together they are no longer than LIMIT."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    # Its local part need not be the whole norm.
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def between(model, rows, at_the_end):
    """Accumulate; return the calls, and the bytes of gradients half-way."""
    weights = [*model.parameters()]
    before = bytes_of_gradients(model)  # rows of a weight may have such a shape, too
    with Calls() as seen:
        half_way = accumulate(model, rows, at_the_end)
    made = {
        "calls": [seen.count("allgather"), seen.count("reduce_scatter")],
        "held": half_way - before,
    }
    groups, times = len(model.blocks) + 1, 1 if at_the_end else len(rows)
    held = sum(p.nbytes if at_the_end else p.to_local().nbytes for p in weights)
    calls = [len(rows) * (2 * groups - 1), times * groups]
    close = abs(made["held"] / held - 1) < 0.01  # over NCCL small tensors may live on
    if made["calls"] != calls or not close:
        raise AssertionError(f"{made}, expected {calls}, {held}")
    return made


def try_out(mesh, *_):
    model = shard(build(mesh), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    rows = [part(i, mesh) for i in range(MICRO_BATCHES)]
    facts = {"every time": between(model, rows, at_the_end=False)}
    model.zero_grad()
    facts["at the end"] = between(model, rows, at_the_end=True)
    facts["own norm"] = round(own_norm(model), 4)
    with Calls() as seen:
        facts["norm"] = round(clip(model).item(), 4)
    facts["all_reduces"] = seen.count("all_reduce")
    optimizer.step()

    plain, kind = build(mesh), mesh.device_type
    accumulate(plain, [[t.to(kind) for t in batch(i)] for i in range(MICRO_BATCHES)])
    norm = clip(plain).item()
    torch.optim.SGD(plain.parameters(), lr=LEARNING_RATE).step()
    torch.testing.assert_close(facts["norm"], norm, rtol=1e-4, atol=0)
    for (name, p), e in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.full_tensor(), e, msg=f"{name} differs")
    return facts


def main(rank, world_size, device):
    # gloo, with GPUs that ranks share, can gather only what is in host memory.
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    facts = try_out(mesh, *part(0, mesh))
    for name, fact in facts.items():
        print(f"[rank {rank}] {name}: {fact}", flush=True)
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
