"""Count what a training step needs, by kind: whole, under DDP, and cut by layers.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/budget.py

Written by notebooks/14_model_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

KINDS = "weights", "gradients", "Adam", "activations"

LAYERS, WIDTH, SAMPLES = 12, 64, 240


def budget(net, x):
    """Take one step with Adam; return the bytes that it needs, by kind."""
    weights, saved = list(net.parameters()), {}
    own = {w.untyped_storage().data_ptr() for w in weights}

    def save(tensor):  # called for each tensor that autograd saves for backward
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:  # a weight is counted as a weight
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    optimizer = torch.optim.Adam(weights)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        out = net(x)
    out.mean().backward()
    optimizer.step()
    state = [t for w in weights for t in optimizer.state[w].values()]
    adam = sum(tensor.nbytes for tensor in state if tensor.ndim > 0)
    gradients = sum(w.grad.nbytes for w in weights if w.grad is not None)
    held = sum(w.nbytes for w in weights), gradients, adam, sum(saved.values())
    return dict(zip(KINDS, held, strict=True))


def expected_bytes(layers, samples):
    """The same by arithmetic: float32, and what goes into and comes out of a layer."""
    weights = 4 * layers * (WIDTH + 1) * WIDTH
    activations = 4 * (layers + 1) * samples * WIDTH
    return dict(zip(KINDS, (weights, weights, 2 * weights, activations), strict=True))


def network(device):
    torch.manual_seed(0)  # the same on every rank
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*layers).to(device)


def data_parallel(whole, x, rank, world_size):
    """All layers, but only this rank's samples; check that the gradients are equal."""
    ddp = DDP(network(x.device))
    held = budget(ddp, x[rank::world_size].clone())  # a view would keep all of x
    for p, e in zip(ddp.parameters(), whole.parameters(), strict=True):
        most = e.grad.abs().max()  # many layers make small gradients
        torch.testing.assert_close(p.grad / most, e.grad / most, msg="gradient differs")
    return held


def main(rank, world_size, device):
    if SAMPLES % world_size or world_size > LAYERS:
        raise ValueError(f"{world_size} ranks cannot share {SAMPLES}, or {LAYERS}")
    torch.manual_seed(0)  # the same samples on every rank
    x = torch.randn(SAMPLES, WIDTH).to(device)
    first, end = (r * LAYERS // world_size for r in (rank, rank + 1))
    whole = network(device)
    held = {"whole": budget(whole, x)}
    held["data parallel"] = data_parallel(whole, x, rank, world_size)
    # Only the shapes matter, so x can stand for what the rank before would send.
    held["stage"] = budget(network(device)[first:end], x.clone())

    layers = {"whole": LAYERS, "data parallel": LAYERS, "stage": end - first}
    for part, kinds in held.items():
        samples = SAMPLES // world_size if part == "data parallel" else SAMPLES
        if kinds != (expected := expected_bytes(layers[part], samples)):
            raise AssertionError(f"{part}: {kinds}, expected {expected}")
    print(f"[rank {rank}] all counts as expected", flush=True)
    return held


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
