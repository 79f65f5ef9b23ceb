"""HogWild: processes train one model in shared memory, and no lock keeps them apart.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/hogwild.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import gc
import json
import os
import tempfile
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

FEATURES, HIDDEN = 10, 32
ROWS, STEPS, LR = 64, 100, 0.05  # ROWS, STEPS: of each rank


def shared_memory(numel):
    """Return memory that all ranks share: what one writes, the others read."""
    with tempfile.NamedTemporaryFile() as file:  # where unrelated processes meet
        name = [file.name]
        dist.broadcast_object_list(name, src=0)  # every rank now holds rank 0's name
        numbers = torch.from_file(name[0], shared=True, size=numel)
        dist.barrier()  # all have it: the name may go, the memory stays until the last
    return numbers


def loss_of(net, rank):
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    y = x[:, :2].sum(1, keepdim=True).sin()  # (ROWS, 1)
    return nn.functional.mse_loss(net(x), y)


def step(net, rank):
    """Step on this rank's rows; it does not ask which other rank is writing now."""
    gradients = torch.autograd.grad(loss_of(net, rank), list(net.parameters()))
    with torch.no_grad():
        for p, gradient in zip(net.parameters(), gradients, strict=True):
            p.sub_(gradient, alpha=LR)  # read, subtract, write


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


def train(weights, rank, world_size, turns):
    """Train the weights that all ranks share; return the last ones, and their loss."""
    net = make_net()
    if rank == 0:
        weights.copy_(nn.utils.parameters_to_vector(net.parameters()).detach())
    nn.utils.vector_to_parameters(weights, net.parameters())  # views of the memory
    dist.barrier()
    for _ in range(STEPS):
        for turn in range(world_size if turns else 1):
            if turn == rank or not turns:
                step(net, rank)
            if turns:
                dist.barrier()
    dist.barrier()
    end, losses = weights.clone(), [loss_of(net, r).item() for r in range(world_size)]
    dist.barrier()  # all have read it, before any rank begins anew
    return end, sum(losses) / world_size


def main(rank, world_size, device):
    if os.environ["LOCAL_WORLD_SIZE"] != str(world_size):
        raise SystemExit("shared memory ends at the machine: use ranks of one only")
    net = make_net()  # the truth for turns: one process makes the steps of all
    start = sum(loss_of(net, r).item() for r in range(world_size)) / world_size
    for _ in range(STEPS):
        for r in range(world_size):
            step(net, r)
    expected = nn.utils.parameters_to_vector(net.parameters()).detach()
    weights, facts = shared_memory(expected.numel()), {}
    for way, turns in {"in turns": True, "hogwild": False}.items():
        both = [train(weights, rank, world_size, turns) for _ in range(2)]
        ends, losses = zip(*both, strict=True)
        same, falls = torch.equal(*ends), max(losses) < start / 2
        print(f"[rank {rank}] {way}: falls: {falls}, same: {same}", flush=True)
        assert falls and same == turns, f"{way}: from {start} to {losses}, {same}"
        if turns:
            torch.testing.assert_close(ends[0], expected, msg="weights differ")
        facts[way] = {"falls": falls, "same": same}
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
