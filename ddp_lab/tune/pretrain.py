"""Train a small Llama from nothing, and leave it as models are published.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tune/pretrain.py

Written by notebooks/24_fine_tune_a_model.ipynb.
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
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_lab.gpt import batch
from ddp_lab.llama import Llama, read, write

STEPS, ROWS, TIME = 200, 12, 64


def train(model, rank, world_size, device):
    """Take DDP's steps on a text; return the last loss."""
    ddp = DDP(model)  # every rank now holds rank 0's weights
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    for number in range(STEPS):
        x, y = (t[rank::world_size].to(device) for t in batch(number, ROWS, TIME))
        loss = loss_of(ddp, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def main(rank, world_size, device):
    if ROWS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {ROWS} rows equally")
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", help="where the model is left")
    torch.manual_seed(0)  # every rank builds the same model
    model = Llama().to(device)
    x, y = (t.to(device) for t in batch(STEPS, ROWS, TIME))
    before = loss_of(model, x, y).item()
    train(model, rank, world_size, device)
    with TemporaryDirectory() as own:
        folder = Path(parser.parse_args().folder or own)
        if rank == 0:
            write(model, folder)
            names = sorted(path.name for path in folder.iterdir() if path.is_file())
            losses = [loss_of(m, x, y).item() for m in (model, read(folder).to(device))]
            if not abs(losses[1] - losses[0]) < 0.02:  # the rounding to bf16
                raise AssertionError(f"losses {losses} before and after writing")
            if not losses[1] < before / 3:
                raise AssertionError(f"loss {losses[1]:.2f} after {before:.2f}")
            print(f"[rank 0] loss {losses[1]:.2f}", flush=True)
    dist.barrier()
    return {"files": names, "loss": losses[1]} if rank == 0 else None


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
