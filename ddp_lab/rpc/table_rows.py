"""The same table cut by rows over all ranks, with all_to_all: no rank is a server.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/table_rows.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing import assert_close as close

ITEMS, WIDTH, ROWS = 200, 16, 12  # ROWS: of each trainer in each step
STEPS, LR = 3, 0.5
MOVED = []  # bytes that this rank has sent to others, and got from them


def make_table():
    torch.manual_seed(0)
    return nn.Embedding(ITEMS, WIDTH)


def make_dense():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 1))


def rows(step, trainers):
    """Return ids and targets of all trainers, those of trainer 0 first."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(ITEMS, (trainers * ROWS,), generator=generator)
    return ids, ids.unsqueeze(1) % 7 / 7.0


def one_process(trainers):
    """The truth: the same model, all rows, plain SGD."""
    table, dense = make_table(), make_dense()
    weights = [*table.parameters(), *dense.parameters()]
    optimizer = torch.optim.SGD(weights, lr=LR)
    for step in range(STEPS):
        ids, target = rows(step, trainers)
        optimizer.zero_grad()
        nn.functional.mse_loss(dense(table(ids)), target).backward()
        optimizer.step()
    return weights


def train(table, dense, rank, world_size, device):
    optimizer = torch.optim.SGD([*table.parameters(), *dense.parameters()], lr=LR)
    for step in range(STEPS):
        both = (part.chunk(world_size)[rank] for part in rows(step, world_size))
        ids, target = (part.to(device) for part in both)
        optimizer.zero_grad()
        nn.functional.mse_loss(dense(table(ids)), target).backward()
        table.weight.grad /= world_size  # the mean, as DDP has it
        optimizer.step()


class Exchange(torch.autograd.Function):
    """Send send[r] rows to each rank r, and get recv[r]; backward, the other way."""

    @staticmethod
    def forward(ctx, send_buf, send, recv):
        ctx.sizes, rank = (recv, send), dist.get_rank()
        recv_buf = send_buf.new_empty(sum(recv), *send_buf.shape[1:])
        dist.all_to_all_single(recv_buf, send_buf, recv, send)  # the rows from all
        others = sum(send) - send[rank] + sum(recv) - recv[rank]
        MOVED.append(others * send_buf[:1].nbytes)
        return recv_buf

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad.contiguous(), *ctx.sizes), None, None


class Table(nn.Module):
    def __init__(self, rank, world_size):
        super().__init__()
        self.each = -(-ITEMS // world_size)  # rows of a rank; the last has fewer
        self.first = rank * self.each
        share = make_table().weight.detach().split(self.each)[rank]
        self.weight = nn.Parameter(share.clone())

    def forward(self, ids):
        owner = ids // self.each
        order, ask = owner.argsort(), owner.bincount(minlength=dist.get_world_size())
        asked = torch.empty_like(ask)
        dist.all_to_all_single(asked, ask)  # every rank now knows how many it will get
        send, recv = ask.tolist(), asked.tolist()
        wanted = Exchange.apply(ids[order], send, recv)
        found = Exchange.apply(self.weight[wanted - self.first], recv, send)
        return found[order.argsort()]  # (ROWS, WIDTH), as in ids


def main(rank, world_size, device):
    if dist.get_backend() == "gloo":
        device = torch.device("cpu")  # gloo's all_to_all works on host memory
    table, dense = Table(rank, world_size).to(device), DDP(make_dense().to(device))
    train(table, dense, rank, world_size, device)
    expected_table, *expected = one_process(world_size)
    share = expected_table.split(table.each)[rank]
    close(table.weight.cpu(), share, msg="the table differs")
    weights = [p.cpu() for p in dense.parameters()]
    close(weights, expected, msg="the dense part differs")
    print(f"[rank {rank}] ends as one process does", flush=True)
    return {"held": table.weight.numel(), "moved": sum(MOVED)}


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
