"""Two lines of a course of 2022: who writes, and who fetches, a file that all share?

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/course_2022_files.py

    [rank 0] row 18 misleads: 4, not 1

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import time
import warnings
from contextlib import contextmanager, redirect_stderr
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from tempfile import TemporaryDirectory
from threading import Thread

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torchvision.datasets.utils import download_url

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook

MACHINES = int(os.environ.get("GROUP_WORLD_SIZE", 1))


def today(fate):
    """Note the fate of a line; main fails when the line no longer has it."""
    return lambda line: ROWS.update({line: fate}) or line


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    said = [str(w.message) for w in caught if "deprecated" in str(w.message)]
    if said and "_single" not in said[0]:  # 2.13 and 2.14 say it of row 5's
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, not {promised}"


def told(fact):
    """Return what each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


class Server(BaseHTTPRequestHandler):
    """It has a data set far away: a download takes a second."""

    downloads = []

    def do_GET(self):
        if "Method" not in self.headers:  # torchvision's question for another address
            self.downloads.append(self.path)
            time.sleep(1)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        """Be quiet."""


@today("misleads" if MACHINES > 1 else "holds")
def row_16(rank, world_size):
    """`if local_rank == 0: save`, on a disk that all machines see: how many write?"""
    local_ranks = told(int(os.environ["LOCAL_RANK"]))
    SEEN["writers"] = [r for r in range(world_size) if local_ranks[r] == 0]
    return len(SEEN["writers"]), 1


@today("misleads")
def row_18(rank, world_size):
    """`download=True` on every rank, into one folder: how many download?"""
    os.environ["no_proxy"] = host = os.environ["MASTER_ADDR"]
    place = host if rank == 0 else "localhost", 0
    with TemporaryDirectory() as own, redirect_stderr(StringIO()):
        with ThreadingHTTPServer(place, Server) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            port, folder = told((server.server_port, own))[0]
            download_url(f"http://{host}:{port}/images", folder)
            SEEN["fetched"] = told(len(Server.downloads))[0]  # all have their files
            server.shutdown()
    return SEEN["fetched"], 1


def main(rank, world_size, device):
    found, other = {}, []
    for line, last in ROWS.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        other += [f"row {row} {fate}, expected: {last}"] * (fate != last)
    if other:
        raise AssertionError("; ".join(other))
    return {"rows": found} | SEEN


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
