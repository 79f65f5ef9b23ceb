"""The same table cut by rows over all ranks, with all_to_all: nobody is the server.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/table_rows.py

Each rank asks the owners for the rows that it needs, and sends their gradients back:

    [rank 0] after ... steps of ... ranks: table and dense part as one process

Written by notebooks/13_training_over_rpc.ipynb.
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

ITEMS, WIDTH, ROWS = 200, 16, 12  # ROWS: of each rank in each step
STEPS, LR = 3, 0.5


def make_table():
    torch.manual_seed(0)
    return nn.Embedding(ITEMS, WIDTH)


def make_dense():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 1))


def rows(step, ranks):
    """Return ids and targets of all ranks, those of rank 0 first."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(ITEMS, (ranks * ROWS,), generator=generator)
    return ids, ids.unsqueeze(1) % 7 / 7.0


class Table(nn.Module):
    """The rows of one rank, and how to get at those of the others."""

    def __init__(self, rank, world_size, device):
        super().__init__()
        self.each = -(-ITEMS // world_size)  # rows of a rank; the last has fewer
        self.first = rank * self.each
        share = make_table().weight[self.first : self.first + self.each]
        self.weight = nn.Parameter(share.detach().clone().to(device))
        self.moved = 0  # bytes that this rank has sent to others, and got from them

    def exchange(self, send_buf, send, recv):
        """Send send[r] rows to each rank r; return what came: recv[r] rows from it."""
        recv_buf = send_buf.new_empty(sum(recv), *send_buf.shape[1:])
        dist.all_to_all_single(recv_buf, send_buf, recv, send)
        rank, row = dist.get_rank(), send_buf[:1].nbytes
        self.moved += row * (sum(send) - send[rank] + sum(recv) - recv[rank])
        return recv_buf

    def forward(self, ids):
        return LookUp.apply(self.weight, ids, self)


class LookUp(torch.autograd.Function):
    """Ids go to the owners, rows come back; backward takes the same roads."""

    @staticmethod
    def forward(ctx, weight, ids, table):
        owner = ids // table.each
        order = owner.argsort(stable=True)
        ask = owner.bincount(minlength=dist.get_world_size())
        asked = torch.empty_like(ask)
        dist.all_to_all_single(asked, ask)  # every rank now knows how many it will get
        ctx.table, ctx.order = table, order
        ctx.ask, ctx.asked = ask.tolist(), asked.tolist()
        wanted = table.exchange(ids[order], ctx.ask, ctx.asked)
        ctx.here = wanted - table.first
        found = table.exchange(weight[ctx.here], ctx.asked, ctx.ask)
        return torch.empty_like(found).index_copy_(0, order, found)  # as in ids

    @staticmethod
    def backward(ctx, grad):
        grad = ctx.table.exchange(grad[ctx.order], ctx.ask, ctx.asked)
        # Two ranks may have asked for one row: its gradients add up.
        whole = torch.zeros_like(ctx.table.weight).index_add_(0, ctx.here, grad)
        return whole / dist.get_world_size(), None, None  # the mean, as DDP has it


def train(table, dense, rank, world_size, device):
    optimizer = torch.optim.SGD([*table.parameters(), *dense.parameters()], lr=LR)
    for step in range(STEPS):
        ids, target = (
            part.chunk(world_size)[rank].to(device) for part in rows(step, world_size)
        )
        optimizer.zero_grad()
        nn.functional.mse_loss(dense(table(ids)), target).backward()
        optimizer.step()


def one_process(ranks):
    """The truth: the same model, all rows, plain SGD."""
    table, dense = make_table(), make_dense()
    weights = [*table.parameters(), *dense.parameters()]
    optimizer = torch.optim.SGD(weights, lr=LR)
    for step in range(STEPS):
        ids, target = rows(step, ranks)
        optimizer.zero_grad()
        nn.functional.mse_loss(dense(table(ids)), target).backward()
        optimizer.step()
    return weights


@record
def main():
    with process_group() as (rank, world_size, device):
        # gloo's all_to_all works on host memory.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        table = Table(rank, world_size, device)
        dense = DDP(make_dense().to(device))
        train(table, dense, rank, world_size, device)
        expected_table, *expected = one_process(world_size)
        share = expected_table[table.first : table.first + table.each]
        torch.testing.assert_close(table.weight.cpu(), share, msg="the table differs")
        for p, e in zip(dense.parameters(), expected, strict=True):
            torch.testing.assert_close(p.cpu(), e, msg="the dense part differs")
        del dense  # DDP before its group, or torch up to 2.13 could wait for ever
        text = f"after {STEPS} steps of {world_size} ranks"
        print(f"[rank {rank}] {text}: table and dense part as one process", flush=True)
        facts = {"held": table.weight.numel(), "moved": table.moved}
        print(json.dumps({**facts, "rows": world_size * ROWS}), flush=True)


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
