"""A rank is killed, and torchrun starts all ranks anew: what do they still know?

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 ddp_lab/elastic/restart.py

The last rank kills itself in life 0. In life 1 every rank compares itself with then:

    [rank 0] life 1: as before are ...
    [rank 0] life 1: new are ...

Written by notebooks/23_machines_that_fail.ipynb.
"""

import gc
import json
import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

DRAWS = 3
MEMORY = []  # what this process has drawn
STAYS = {"rank", "world size", "run id"}  # and the port, if the lives share a store


def look_round(rank, world_size, life):
    """Return what this rank knows of itself."""
    return {
        "process": os.getpid(),
        "memory": len(MEMORY),
        "next random number": torch.rand(1).item(),
        "rank": rank,
        "world size": world_size,
        "run id": os.environ["TORCHELASTIC_RUN_ID"],
        "life": life,
        "port": os.environ["MASTER_PORT"],
    }


def live(folder, rank, world_size, life):
    """Leave a note and die, or find it; return what is as before, and what is new."""
    note = folder / f"{rank}.json"
    torch.manual_seed(rank)
    if life == 0:
        for _ in range(DRAWS):
            MEMORY.append(torch.rand(1).item())
        # A file is the only thing that will be left.
        note.write_text(json.dumps(look_round(rank, world_size, life)))
        dist.barrier()  # all have left their notes
        if rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()  # which one never reaches
    before, now = json.loads(note.read_text()), look_round(rank, world_size, life)
    same = {name for name in now if now[name] == before[name]}
    return same, set(now) - same


def main(rank, world_size, device):
    if os.environ["TORCHELASTIC_MAX_RESTARTS"] == "0":
        raise SystemExit("one rank will die on purpose: say --max-restarts 3")
    folder = Path(gettempdir(), f"elastic_{os.environ['TORCHELASTIC_RUN_ID']}")
    folder.mkdir(exist_ok=True)  # the same in every life
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    same, new = live(folder, rank, world_size, life)
    print(f"[rank {rank}] life {life}: as before are {sorted(same)}", flush=True)
    print(f"[rank {rank}] life {life}: new are {sorted(new)}", flush=True)
    assert same - {"port"} == STAYS, f"as before are {same}, expected {STAYS}"
    dist.barrier()  # all have read their notes
    if rank == 0:
        shutil.rmtree(folder)
    return {"same": sorted(same), "new": sorted(new)}


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
