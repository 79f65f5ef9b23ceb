"""HogWild: processes train one model in shared memory, and no lock keeps them apart.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/hogwild.py

Each way trains twice, from the same weights, on the same rows, in the same order:

    [rank 0] in turns: the loss falls, the second training is ...
    [rank 0] hogwild: the loss falls, the second training is ...

Written by notebooks/13_training_over_rpc.ipynb.
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


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


def flat(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def shared_memory(numel):
    """Return memory that all ranks have in common: what one writes, the others read."""
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
    """One step on this rank's rows. Nobody asks who else is writing just now."""
    gradients = torch.autograd.grad(loss_of(net, rank), list(net.parameters()))
    with torch.no_grad():
        for p, gradient in zip(net.parameters(), gradients, strict=True):
            p.sub_(gradient, alpha=LR)  # read, subtract, write


def train(weights, rank, world_size, turns):
    """Train the weights that all ranks share; return what became of them."""
    net = make_net()
    if rank == 0:
        weights.copy_(flat(net))
    nn.utils.vector_to_parameters(weights, net.parameters())  # views of the memory
    dist.barrier()
    for _ in range(STEPS):
        for turn in range(world_size if turns else 1):
            if turn == rank or not turns:
                step(net, rank)
            if turns:
                dist.barrier()
    dist.barrier()
    end = weights.clone()
    dist.barrier()  # all have read it, before anybody begins anew
    return end


def in_one_process(world_size):
    """The truth for turns: the same steps, one after the other."""
    net = make_net()
    for _ in range(STEPS):
        for rank in range(world_size):
            step(net, rank)
    return flat(net)


def mean_loss(weights, world_size):
    net = make_net()
    nn.utils.vector_to_parameters(weights, net.parameters())
    with torch.no_grad():
        return sum(loss_of(net, r).item() for r in range(world_size)) / world_size


@record
def main():
    with process_group() as (rank, world_size, _):
        if int(os.environ["LOCAL_WORLD_SIZE"]) < world_size:
            raise SystemExit("shared memory ends at the machine: use ranks of one only")
        start = flat(make_net())
        weights, facts = shared_memory(start.numel()), {}
        for way, turns in (("in turns", True), ("hogwild", False)):
            ends = [train(weights, rank, world_size, turns) for _ in range(2)]
            losses = [mean_loss(w, world_size) for w in (start, *ends)]
            same = torch.equal(*ends)
            assert max(losses[1:]) < losses[0] / 2, f"{way}: {losses}"
            assert same == turns, f"{way}: the second training is the same: {same}"
            text = f"the second training is {'the same' if same else 'another'}"
            print(f"[rank {rank}] {way}: the loss falls, {text}", flush=True)
            if turns:
                expected = in_one_process(world_size)
                torch.testing.assert_close(ends[0], expected, msg="weights differ")
            facts[way] = {"losses": losses, "same": same}
        print(json.dumps(facts), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
