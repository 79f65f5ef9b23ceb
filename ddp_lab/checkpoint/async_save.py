"""A checkpoint written while training goes on: by dcp.async_save, and by a thread.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/async_save.py

Written by notebooks/A3_sharded_checkpoints.ipynb.
"""

import gc
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import Shard, distribute_tensor

ROWS = 12


def state_of(step, mesh):
    """A weight whose rows are sharded over the ranks, and all say `step`."""
    rows = torch.full((ROWS,), float(step))  # (12,)
    return {"weight": distribute_tensor(rows, mesh, [Shard(0)])}


def load(folder, mesh):
    """Load the newest step that says it is complete; return the step of each row."""
    complete = [file.parent for file in sorted(folder.glob("*/.metadata"))]
    state = state_of(0, mesh)
    dcp.load(state, checkpoint_id=complete[-1])
    # All ranks now hold all rows, for us to look at.
    return [int(step) for step in state["weight"].full_tensor()]


def try_ways(expected, rank, world_size):
    """Save in each way; return the steps of the rows that all ranks then load."""
    mesh, steps_of = dist.init_device_mesh("cpu", (world_size,)), {}
    with TemporaryDirectory() as own:
        name = [own]
        dist.broadcast_object_list(name, src=0)  # all now hold rank 0's name
        for save, rows in expected.items():
            folder = Path(name[0], save.__name__)
            save(folder, mesh)
            steps = steps_of[save.__name__] = load(folder, mesh)
            what = f"rows of the steps {steps}"
            print(f"[rank {rank}] {save.__name__}: {what}", flush=True)
            assert steps == rows, f"expected {rows}"
        dist.barrier()  # or rank 0 could delete what others have yet to load
    return steps_of


class SlowDisk(dcp.FileSystemWriter):
    """Writes nothing until training has gone on."""

    def write_data(self, plan, planner):
        assert self.trained.wait(20), "training waits for the disk"
        return super().write_data(plan, planner)


def save_and_go_on(save, folder, mesh):
    """Begin to save step 1, take two steps more, then wait for the save."""
    state, writer = state_of(1, mesh), SlowDisk(folder / "1")
    writer.trained = threading.Event()
    group = dist.new_group(backend="gloo")  # apart from the training's messages
    future = save(state, storage_writer=writer, process_group=group)
    for _ in (2, 3):
        state["weight"].to_local().add_(1)  # in place, as an optimizer does
    assert not (folder / "1" / ".metadata").exists(), "complete before it is written"
    writer.trained.set()
    future.result()  # waits, and raises what went wrong


def async_save(folder, mesh):
    save_and_go_on(dcp.async_save, folder, mesh)


def save_in_a_thread(folder, mesh):
    thread = ThreadPoolExecutor(1)
    save_and_go_on(partial(thread.submit, dcp.save), folder, mesh)


def main(rank, world_size, device):
    expected = {async_save: [1] * ROWS, save_in_a_thread: [3] * ROWS}
    return try_ways(expected, rank, world_size)


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
