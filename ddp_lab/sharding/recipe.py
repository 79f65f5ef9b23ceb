"""Train a model that fits on no GPU: meta, shard, fill, train, save, resume.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/recipe.py

Written by notebooks/16_fully_shard.ipynb.
"""

import argparse
import gc
import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ddp_lab.gpt import GPT, batch, loss_of

LIMIT = 1.0  # of the norm of all gradients

STEPS, SAVED_AFTER, MICRO_BATCHES = 4, 2, 2


class WaveGPT(GPT):
    """The GPT with fixed waves for positions: a buffer that is in no checkpoint."""

    def __init__(self):
        super().__init__()
        self.positions = None
        self.register_buffer("waves", waves(), persistent=False)

    def fill_buffers(self):
        self.waves.copy_(waves())

    def forward(self, tokens):  # (batch, time)
        x = self.tokens(tokens) + self.waves[: tokens.size(1)]  # (batch, time, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # (batch, time, vocab)


def waves(time=32, width=96):
    steps = 10000 ** -(torch.arange(0, width, 2) / width)  # (width / 2,)
    angles = torch.arange(time)[:, None] * steps  # (time, width / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (time, width)


def build(mesh, weights, half=torch.bfloat16):
    """Return model and optimizer; rank 0 has all weights in host memory, others {}."""
    with torch.device("meta"):
        model = WaveGPT()  # shapes, and no memory
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for block in model.blocks:
        if mesh.device_type != "cpu":  # there it would take too long for a lesson
            block.compile()
        fully_shard(block, mesh=mesh, mp_policy=policy)
    to_float32 = replace(policy, output_dtype=torch.float32)  # the loss needs it
    fully_shard(model, mesh=mesh, mp_policy=to_float32)

    model.to_empty(device=mesh.device_type)  # memory for this rank's rows, any values
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    # Each rank now holds its rows of rank 0's weights.
    set_model_state_dict(model, weights, options=options)
    model.fill_buffers()  # they are in no state_dict
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model, optimizer, micro_batches):
    """Take a step; return the mean loss of this rank's rows, and the whole norm."""
    mean = 0.0
    for i, (x, y) in enumerate(micro_batches):
        is_last = i == len(micro_batches) - 1
        model.set_requires_gradient_sync(is_last)  # one reduce_scatter a group
        loss = loss_of(model(x), y) / len(micro_batches)
        loss.backward()
        mean += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    return mean, norm.full_tensor().item()


def state_of(model, optimizer, done):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "done": done}


def save(model, optimizer, done, folder, group):
    """Copy the state, and write it while training goes on; return a future."""
    state = state_of(model, optimizer, done)
    return dcp.async_save(state, checkpoint_id=folder, process_group=group)


def load(model, optimizer, folder):
    """Load on any number of ranks; return how many steps were done."""
    state = state_of(model, optimizer, done=0)
    dcp.load(state, checkpoint_id=folder)  # each rank reads its own rows
    model_state, optimizer_state = state["model"], state["optimizer"]
    set_state_dict(
        model,
        optimizer,
        model_state_dict=model_state,
        optim_state_dict=optimizer_state,
    )
    return state["done"]


def rows(number, kind, ranks=1, rank=0):
    """Return a rank's rows of the micro-batches of a step."""
    numbers = range(MICRO_BATCHES * number, MICRO_BATCHES * (number + 1))
    return [[t.chunk(ranks)[rank].to(kind) for t in batch(n)] for n in numbers]


def whole(kind):
    """Return the losses and norms of one process with the uncut model and all rows."""
    torch.manual_seed(0)
    model, told = WaveGPT().to(kind), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for number in range(STEPS):
        losses = [loss_of(model(x), y) for x, y in rows(number, kind)]
        loss = sum(losses) / MICRO_BATCHES
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
        told.append([loss.item(), norm.item()])
    return told


def train(mesh, folder, group, expected, half=torch.float32):
    """Resume from folder if there is a checkpoint, else save one; return the losses."""
    torch.manual_seed(0)
    weights = WaveGPT().state_dict() if mesh.get_rank() == 0 else {}
    model, optimizer = build(mesh, weights, half)
    saved = os.path.exists(f"{folder}/.metadata")  # the last file to be written
    first = load(model, optimizer, folder) if saved else 0
    losses, future, seen = [], None, set()
    model.norm.register_forward_pre_hook(lambda _, args: seen.add(args[0].dtype))
    for number in range(first, STEPS):
        mine = rows(number, mesh.device_type, mesh.size(), mesh.get_rank())
        loss, norm = step(model, optimizer, mine)
        dist.all_reduce(loss)  # every rank now holds the sum of the ranks' means
        losses.append(loss.item() / mesh.size())
        compare(number, (losses[-1], norm), expected[number], half)
        assert loss.dtype == torch.float32, f"the loss is {loss.dtype}"
        if not saved and number + 1 == SAVED_AFTER:
            future = save(model, optimizer, SAVED_AFTER, folder, group)
    if future:
        future.result()  # the folder is complete
    assert seen == {half}, f"the blocks computed in {seen}"
    digits = 3 if half is torch.float32 else 1
    return [first, [round(loss, digits) for loss in losses]]


def compare(number, told, expected, half):
    """Refuse more than rounding, which is coarse in bf16."""
    tolerance = 1e-3 if half is torch.float32 else 3e-2
    for name, got, right in zip(("loss", "norm"), told, expected, strict=True):
        if not abs(got / right - 1) < tolerance:  # NaN is not, either
            differs = f"{name} {got:.3f}, expected {right:.3f}"
            raise AssertionError(f"step {number + 1}: {differs}")


def try_out(mesh, folder):
    """Train, save and resume; in an old folder resume only."""
    expected, facts = whole(mesh.device_type), {}
    group = dist.new_group(backend="gloo")
    if not os.path.exists(f"{folder}/.metadata"):
        facts["from the start"] = train(mesh, folder, group, expected)
    facts["resumed"] = train(mesh, folder, group, expected)
    facts["in bf16"] = train(mesh, folder, group, expected, torch.bfloat16)
    return facts


def main(rank, world_size, device):
    if 12 % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 rows equally")
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    # The logits are a view; a warning says not to change them in place. We do not.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    # gloo, with GPUs that ranks share, can gather only what is in host memory.
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    with TemporaryDirectory() as own:
        folder = [parser.parse_args().dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        facts = try_out(mesh, folder[0])
        dist.barrier()  # all have read; a temporary folder may go
    for name, (first, losses) in facts.items():
        told = f"{name}, {first} steps done: losses {losses}"
        print(f"[rank {rank}] {told}", flush=True)
    return facts


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
