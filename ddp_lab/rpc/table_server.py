"""An embedding table on a server, by remote calls; the dense part under DDP.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/table_server.py

Rank 0 is the master and serves the table; the others are trainers, with a group of
their own:

    [rank 0] after ... steps of ... trainers: table and dense part as one process

Written by notebooks/13_training_over_rpc.ipynb.
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


class LockedSGD(torch.optim.SGD):
    """DistributedOptimizer has a lock for classes that it does not know, and only so.

    It swaps SGD itself for a version of its own, which several trainers may step at
    the same time, as in HogWild: now and then an update is lost.
    """


# It warns of each class that it does not swap, which is the point of ours.
logging.getLogger("torch.distributed.optim.optimizer").setLevel(logging.ERROR)


def look_up(table, ids):
    return table.local_value()(ids)


def weights_of(table):
    return [rpc.RRef(p) for p in table.local_value().parameters()]


def train(table, trainer, trainers):
    """What a trainer does when the master calls it."""
    members = range(1, trainers + 1)
    group = dist.new_group(members, backend="gloo", use_local_synchronization=True)
    dense = DDP(make_dense(), process_group=group)
    ours = [rpc.RRef(p) for p in dense.parameters()]
    theirs = rpc.rpc_sync(table.owner(), weights_of, (table,))
    # DDP takes the mean over trainers; the table gets a step from each, of a part.
    dense_step = DistributedOptimizer(LockedSGD, ours, lr=LR)
    table_step = DistributedOptimizer(LockedSGD, theirs, lr=LR / trainers)
    moved = 0  # bytes between this trainer and the table
    for step in range(STEPS):
        ids, target = (part.chunk(trainers)[trainer] for part in rows(step, trainers))
        with dist_autograd.context() as context:
            found = rpc.rpc_sync(table.owner(), look_up, (table, ids))  # (ROWS, WIDTH)
            moved += ids.nbytes + 2 * found.nbytes  # there, back, and its gradient
            loss = nn.functional.mse_loss(dense(found), target)
            # In it DDP's all_reduce: it ends on no trainer before all have looked up.
            dist_autograd.backward(context, [loss])
            dense_step.step(context)
            table_step.step(context)
        dist.barrier(group)  # nobody looks up again before all have taken their step
    weights = [p.detach() for p in dense.parameters()]
    del dense  # DDP before its group, or torch up to 2.13 could wait for ever
    return weights, moved


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


@record
def main():
    with process_group() as (rank, world_size, _), workers():
        if rank > 0:
            print(f"[rank {rank}] trains when the master calls", flush=True)
            return
        trainers, table = world_size - 1, rpc.RRef(make_table())
        calls = [
            rpc.rpc_async(f"worker{t + 1}", train, (table, t, trainers))
            for t in range(trainers)
        ]
        weights, moved = zip(*torch.futures.wait_all(calls), strict=True)
        found = table.local_value().weight
        expected_table, *expected = one_process(trainers)
        torch.testing.assert_close(found, expected_table, msg="the table differs")
        for dense in weights:
            torch.testing.assert_close(dense, expected, msg="the dense part differs")
        text = f"after {STEPS} steps of {trainers} trainers"
        print(f"[rank 0] {text}: table and dense part as one process", flush=True)
        facts = {"held": found.numel(), "moved": sum(moved), "rows": trainers * ROWS}
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


@contextmanager
def workers(rpc_timeout=20, **options):
    """Join as worker0, worker1, ...; on one machine, nobody outside can reach us."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, **options)
    rpc.init_rpc(
        f"worker{rank}",
        rank=rank,
        world_size=world_size,
        rpc_backend_options=options,
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
        rpc.shutdown()  # waits until all are here, and nobody waits for a call


if __name__ == "__main__":
    main()
