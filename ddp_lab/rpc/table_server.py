"""An embedding table on a server, by remote calls; the dense part under DDP.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/table_server.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import gc
import json
import logging
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.optim import DistributedOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing import assert_close as close

ITEMS, WIDTH, ROWS = 200, 16, 12  # ROWS: of each trainer in each step
STEPS, LR = 3, 0.5


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


TABLE = make_table()  # in every process; that of rank 0 is called


class LockedSGD(torch.optim.SGD):
    """DistributedOptimizer steps a class of ours under a lock, torch's own without."""


def look_up(ids):
    return TABLE(ids)


def weights_there():
    return [rpc.RRef(p) for p in TABLE.parameters()]


def train(dense, trainer, trainers, group):
    """Make all steps; return the bytes between this trainer and the table."""
    # It warns of each class that is not torch's own.
    logging.getLogger("torch.distributed.optim.optimizer").setLevel(logging.ERROR)
    weights, moved = rpc.rpc_sync("worker0", weights_there), 0
    # DDP takes the mean over trainers; the table gets a step from each, of a part.
    table_step = DistributedOptimizer(LockedSGD, weights, lr=LR / trainers)
    ours = [rpc.RRef(p) for p in dense.parameters()]
    dense_step = DistributedOptimizer(LockedSGD, ours, lr=LR)
    for step in range(STEPS):
        ids, target = (part.chunk(trainers)[trainer] for part in rows(step, trainers))
        with dist_autograd.context() as context:
            found = rpc.rpc_sync("worker0", look_up, (ids,))  # (ROWS, WIDTH)
            moved += ids.nbytes + 2 * found.nbytes  # there, back, and its gradient
            loss = nn.functional.mse_loss(dense(found), target)
            dist_autograd.backward(context, [loss])  # in it DDP's all_reduce
            dense_step.step(context)
            table_step.step(context)
        dist.barrier(group)  # no trainer looks up again before all have stepped
    return moved


def main(rank, world_size, device):
    group = dist.new_group(range(1, world_size))  # the trainers; every rank makes it
    moved, (expected_table, *expected) = 0, one_process(world_size - 1)
    with workers():
        if rank > 0:  # rank 0 serves
            dense = DDP(make_dense(), process_group=group)
            moved = train(dense, rank - 1, world_size - 1, group)
            close([*dense.parameters()], expected, msg="the dense part differs")
        dist.barrier()  # all have trained
        if rank == 0:
            close(TABLE.weight, expected_table, msg="the table differs")
        print(f"[rank {rank}] ends as one process does", flush=True)
        return {"moved": moved}


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


@contextmanager
def workers(**options):
    """Join as worker0, worker1, ... over TCP: shared memory keeps a core busy."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = {"rpc_timeout": 20, "_transports": ["uv"], **options}
    options = rpc.TensorPipeRpcBackendOptions(**options)
    rpc.init_rpc(
        f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options
    )
    try:
        yield rank, world_size
    except BaseException:
        # Wait for nobody, and not long for a call that is still busy in this process.
        leave = threading.Thread(target=rpc.shutdown, args=(False,), daemon=True)
        leave.start()
        leave.join(2)
        raise
    if rpc._is_current_rpc_agent_set():  # not if the lesson has left by itself
        store = rpc.api._get_current_rpc_agent().store
        rpc.shutdown()  # waits until all are here, and no worker waits for a call
        store.set(f"left {rank}", "")
        if rank == 0:  # it may host the store, which the others use to the very end
            store.wait([f"left {other}" for other in range(world_size)])


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
