"""A worker runs what its peers send: any function, any text, and any pickle.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/endpoint.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import gc
import json
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

NOTES = []  # of this process


def leave_note(text):
    NOTES.append(f"{text}, in process {os.getpid()}")


def notes():
    return NOTES


class Parcel:
    """Unpacking it calls `leave_note`: it could name any function."""

    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        return leave_note, (self.text,)


def by_call(to):
    """Three ways to make `to` do something that it never offered."""
    pid = rpc.rpc_sync(to, os.getpid)
    answer = rpc.rpc_sync(to, eval, args=("6 * 7",))
    try:
        rpc.rpc_sync(to, len, args=(Parcel("a call"), "and one argument too many"))
    except Exception as error:
        failed = type(error).__name__  # the call has failed, yet its argument...
    found = rpc.rpc_sync(to, notes)
    print(f"[rank 0] there: {pid}, {answer}; {failed}, but left {found}", flush=True)
    assert answer == 42 and found == [f"a call, in process {pid}"]
    return pid


def by_collective(rank):
    """A collective for objects unpacks as well, on every rank that receives."""
    parcels = [Parcel("a broadcast") if rank == 0 else None]
    dist.broadcast_object_list(parcels, src=0)
    print(f"[rank {rank}] notes here: {NOTES}", flush=True)
    if (f"a broadcast, in process {os.getpid()}" in NOTES) != (rank != 0):
        raise AssertionError(f"the notes are {NOTES}")


def answers(port):
    """Is this port open on another address of this machine, which we never named?"""
    try:
        socket.create_connection(("127.0.0.2", port), timeout=2).close()
        return True
    except OSError:
        return False


def main(rank, world_size, device):
    with workers():
        store = dist.PrefixStore("addrs", rpc.api._get_current_rpc_agent().store)
        mine = store.get(f"worker{rank}").decode()  # where the others call this worker
        ports = int(mine.split(":")[-1]), int(os.environ["MASTER_PORT"])
        is_open = [answers(port) for port in ports]
        print(f"[rank {rank}] at {mine}; worker, store open: {is_open}", flush=True)
        if os.environ["LOCAL_WORLD_SIZE"] == str(world_size) and is_open[0]:
            raise AssertionError("another machine can call this worker")
        pid = by_call(f"worker{world_size - 1}") if rank == 0 else None
        by_collective(rank)
        return {"pid": os.getpid(), "called": pid, "at": mine, "open": is_open}


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
