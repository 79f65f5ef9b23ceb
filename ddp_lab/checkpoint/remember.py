"""Everything that a run remembers, in one file.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/remember.py

Written by notebooks/06_checkpointing.ipynb.
"""

import argparse
import gc
import json
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, SAVE_EVERY = 12, 3  # 12 are 3 epochs

BATCHES = 4  # in an epoch
KEPT = "model", "optimizer", "scheduler"  # and the epoch, the batch, the random states


def save(parts, step, random, path):
    """Collect every rank's random state, and let rank 0 write everything."""
    rng = [None] * dist.get_world_size()
    dist.all_gather_object(rng, random.get_rng_state())  # all now hold every rank's
    if dist.get_rank() == 0:
        saved = {name: parts[name].state_dict() for name in KEPT}
        saved |= {"epoch": step // BATCHES, "batch": step % BATCHES, "rng": rng}
        write(saved, path)
        print(f"[rank 0] saved step {step}", flush=True)
    dist.barrier()  # no rank goes on before the file is there


def write(saved, path):
    """Replace the file at `path` as a whole, or not at all."""
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(saved, file)
            os.fsync(file.fileno())  # the bytes reach the disk before the name does
        os.replace(temporary, path)  # until here, the file before is whole
        names = os.open(path.parent, os.O_RDONLY)
        os.fsync(names)  # from here on, a power cut cannot bring that one back
        os.close(names)
    except (OSError, RuntimeError) as error:  # a full disk, say
        temporary.unlink(missing_ok=True)  # half a file is of no use
        first = error if isinstance(error, OSError) else error.__context__ or error
        raise OSError(f"cannot save in {path.parent}: {first.args[-1]}") from None


def build(rank, device):
    """Return DDP and, by name, the parts that remember something between steps."""
    torch.manual_seed(rank)  # one seed for all would give all ranks the same dropout
    layers = nn.Linear(2, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1)
    ddp = DDP(nn.Sequential(*layers).to(device))  # all ranks now hold rank 0's weights
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    ddp(torch.zeros(1, 2, device=device)).sum().backward()  # dry: DDP regroups after it
    return ddp, {"model": ddp.module, "optimizer": optimizer, "scheduler": scheduler}


@contextmanager
def shared_folder():
    """Yield the folder of --dir, or a temporary one: the same on all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    with TemporaryDirectory() as own:
        folder = [parser.parse_args().dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        yield Path(folder[0])
        dist.barrier()  # or rank 0 could delete what others have yet to read


def main(rank, world_size, device):
    with shared_folder() as folder:
        _, parts = build(rank, device)
        save(parts, 0, torch, folder / "run.pt")
        saved = torch.load(folder / "run.pt", map_location="cpu", weights_only=True)
    states = len({bytes(state.tolist()) for state in saved["rng"]})
    print(f"[rank {rank}] {', '.join(saved)}; {states} random states", flush=True)
    assert states == world_size, f"expected {world_size}, one for each rank"
    return {"kept": list(saved)}


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
