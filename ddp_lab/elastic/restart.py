"""A rank is killed, and torchrun starts all ranks anew: what do they still know?

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 ddp_lab/elastic/restart.py

The last rank kills itself in life 0. In life 1 every rank compares itself with then:

    [rank 0] life 1: as before are ...
    [rank 0] life 1: new are ...

Written by notebooks/11_machines_that_fail.ipynb.
"""

import argparse
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
STAYS = {"rank", "world size", "run id"}
GOES = {"process", "memory", "next random number", "life"}


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


def meet_in_the_store(life):
    """Count this life in the ranks' store; return the lives that it has seen."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, is_master=False)
    store.add(f"life {life}", 1)
    return [each for each in range(life + 1) if store.add(f"life {each}", 0)]


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
            os.kill(os.getpid(), signal.SIGKILL)  # no word, no finally
        dist.barrier()  # which one never reaches
    before, now = json.loads(note.read_text()), look_round(rank, world_size, life)
    same = {name for name in now if now[name] == before[name]}
    return same, set(now) - same


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, help="a folder that outlives the ranks")
    args = parser.parse_args()
    own = Path(gettempdir(), f"elastic_{os.environ['TORCHELASTIC_RUN_ID']}")
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if os.environ["TORCHELASTIC_MAX_RESTARTS"] == "0":
        raise SystemExit("one rank will die on purpose: say --max-restarts 3")
    folder = args.dir or own  # the same in every life
    folder.mkdir(parents=True, exist_ok=True)
    with process_group() as (rank, world_size, _):
        lives = meet_in_the_store(life)
        same, new = live(folder, rank, world_size, life)
        print(f"[rank {rank}] life {life}: as before are {sorted(same)}", flush=True)
        print(f"[rank {rank}] life {life}: new are {sorted(new)}", flush=True)
        facts = {"same": sorted(same), "new": sorted(new), "store": lives}
        print(json.dumps(facts), flush=True)
        assert same - {"port"} == STAYS, f"as before are {same}, expected {STAYS}"
        assert new - {"port"} == GOES, f"new are {new}, expected {GOES}"
        dist.barrier()  # all have read their notes
        if rank == 0 and not args.dir:
            shutil.rmtree(folder)


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
