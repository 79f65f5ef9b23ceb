"""A run that was stopped and resumed ends bit-equal to one that never stopped.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/resume.py

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

STEPS, SAVE_EVERY = 60, 9

LEARNING_RATE, MOMENTUM = 1.0, 0.5

KEPT = "model", "optimizer", "scheduler"
BATCHES, BATCH = 4, 8  # in an epoch; samples on each rank

STOP = 47


def save(parts, step, random, path):
    """Collect every rank's random state, and let rank 0 write everything."""
    rng = [None] * dist.get_world_size()
    dist.all_gather_object(rng, random.get_rng_state())  # all now hold every rank's
    if dist.get_rank() == 0:
        saved = {name: parts[name].state_dict() for name in KEPT}
        write(saved | {"step": step, "rng": rng}, path)
        print(f"[rank 0] saved step {step}", flush=True)
    dist.barrier()  # no rank goes on before the file is there


def write(saved, path):
    """Replace the file at `path` as a whole, or not at all."""
    temporary = path.with_suffix(".tmp")
    torch.save(saved, temporary)
    os.replace(temporary, path)  # until here, the checkpoint before is whole


def decay(step):
    return 0.1 ** (step / 30)  # of the learning rate, a tenth is left after 30 steps


def build(rank, device):
    """Return DDP and, by name, the parts that have a state."""
    torch.manual_seed(rank)  # one seed for all would give all ranks the same dropout
    layers = nn.Linear(2, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)
    ddp = DDP(nn.Sequential(*layers).to(device))  # all ranks now hold rank 0's weights
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
    ddp(torch.zeros(1, 2, device=device)).sum().backward()  # dry: DDP regroups after it
    return ddp, {"model": ddp.module, "optimizer": optimizer, "scheduler": scheduler}


def train_step(ddp, optimizer, device):
    """Take one step whose gradient is 1 for every weight; return how far they moved."""
    before = ddp.module.weight.detach().clone()
    optimizer.zero_grad()
    ddp(torch.ones(1, 8, device=device)).sum().backward()
    optimizer.step()
    return round((before - ddp.module.weight).mean().item(), 4)


def train_and_load(path, rank, device):
    """Train and save; load; take one more step, in the old run and in the new one."""
    ddp, optimizer = build(device)
    for step in range(1, STEPS + 1):
        train_step(ddp, optimizer, device)
        if step % SAVE_EVERY == 0:
            save(ddp, step, path, rank)

    saved = torch.load(path, map_location=device, weights_only=True)
    step = saved["step"]
    print(f"[rank {rank}] loaded step {step}", flush=True)
    assert step == STEPS, f"the step in the file is {step}, expected {STEPS}"
    resumed, new_optimizer = build(device)
    resumed.module.load_state_dict(saved["model"])
    assert torch.equal(resumed.module.weight, ddp.module.weight), "not the saved ones"

    moved = train_step(ddp, optimizer, device)
    anew = train_step(resumed, new_optimizer, device)
    told = f"moves each weight by {moved}; in the new run by {anew}"
    print(f"[rank {rank}] step {STEPS + 1} {told}", flush=True)
    # Velocity is 1, then 1 + m, 1 + m + m², ...; a new optimizer begins with 1.
    expected = round(sum(MOMENTUM**s for s in range(STEPS + 1)), 4), 1.0
    assert (moved, anew) == expected, f"it {told}, expected {expected}"
    return {"step": step, "moved": [moved, anew], "ddp_keys": list(ddp.state_dict())}


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


def restore(parts, random, path, rank):
    """Put everything back; return how many steps are done."""
    # By way of the CPU: random states have to stay there, the parts move their own.
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if len(saved["rng"]) != dist.get_world_size():
        raise SystemExit(f"{path} is from {len(saved['rng'])} ranks")
    for name in KEPT:
        parts[name].load_state_dict(saved[name])
    random.set_rng_state(saved["rng"][rank])
    print(f"[rank {rank}] resumes after step {saved['step']}", flush=True)
    return saved["step"]


def make_data(samples, device):
    """The samples of y = 2a - b, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 2, generator=generator).to(device)
    return x, x @ torch.tensor([[2.0], [-1.0]], device=device)  # (samples, 1)


@torch.no_grad()
def loss_of_all(model, x, y):
    """Return the loss over all samples, without dropout, which draws nothing."""
    loss = nn.functional.mse_loss(model.eval()(x), y).item()
    model.train()
    return loss


def train(rank, world_size, device, path=None, until=STEPS):
    """Start, or resume from `path` if it is there; return step, losses, weights."""
    ddp, parts = build(rank, device)
    random = torch if device.type == "cpu" else torch.get_device_module(device)
    x, y = make_data(BATCHES * BATCH * world_size, device)
    sampler = torch.utils.data.DistributedSampler(x)
    start = restore(parts, random, path, rank) if path and path.exists() else 0
    losses = []
    for step in range(start, until):
        sampler.set_epoch(step // BATCHES)
        mine = list(sampler)[step % BATCHES * BATCH :][:BATCH]  # this step's samples
        parts["optimizer"].zero_grad()
        nn.functional.mse_loss(ddp(x[mine]), y[mine]).backward()
        parts["optimizer"].step()
        parts["scheduler"].step()
        losses.append(loss_of_all(ddp.module, x, y))
        if path and (step + 1) % SAVE_EVERY == 0:
            save(parts, step + 1, random, path)
    return start, losses, torch.cat([p.detach().flatten() for p in ddp.parameters()])


def main(rank, world_size, device):
    with shared_folder() as folder:
        path = folder / "run.pt"
        if not path.exists():  # all look before one can save, in nine steps
            train(rank, world_size, device, path, until=STOP)  # 46 and 47 get lost
        start, losses, weights = train(rank, world_size, device, path)
        _, whole, expected = train(rank, world_size, device)  # never stops
        apart = (weights - expected).abs().max().item()
        print(f"[rank {rank}] ends {apart:.1g} away from an unstopped run", flush=True)
        facts = {"start": start, "apart": apart, "losses": losses, "whole": whole}
        print(json.dumps(facts), flush=True)
        assert apart == 0, f"the weights are {apart:.1g} off, expected 0.0"


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
