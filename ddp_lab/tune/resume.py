"""Stop in the middle of a fine-tuning, and go on with another number of ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tune/resume.py

Written by notebooks/24_fine_tune_a_model.ipynb.
"""

import argparse
import gc
import json
import os
import sys
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

from ddp_lab.gpt import batch
from ddp_lab.llama import (
    NO_TARGET,
    Config,
    Llama,
    padded,
    read,
    sentences,
    write,
    write_config,
)

LIMIT = 1.0  # of the norm of all gradients

STEPS, ROWS = 6, 12
RATE = 5e-3
HALF = STEPS // 2


def build(folder, mesh):
    """Return the model of a folder, with memory for this rank's rows only."""
    with torch.device("meta"):
        model = Llama(Config.read(folder))  # shapes, and no memory
    return shard(model, mesh)


def shard(model, mesh, **options):
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model.to_empty(device=mesh.device_type)  # this rank's rows, any values


class Count(dcp.DefaultLoadPlanner):
    """Counts the numbers that this rank reads."""

    numbers = 0

    def commit_tensor(self, read_item, tensor):
        self.numbers += tensor.numel()
        super().commit_tensor(read_item, tensor)


def fill(model, folder):
    """Read this rank's rows of each weight; return how many numbers that were."""
    weights, count = in_files(model), Count()
    # Each rank now holds its own rows of the files, as float32.
    dcp.load(weights, storage_reader=HuggingFaceStorageReader(folder), planner=count)
    model.fill_buffers()  # they are in no file
    return count.numbers


def in_files(model):
    """Return the weights that the files have; a tied one is there once."""
    return dict(model.named_parameters())


@contextmanager
def given(rank):
    """Yield the folders of --model, by default of an untrained one, and of --out."""
    parser = argparse.ArgumentParser()
    for name in "--model", "--out":
        parser.add_argument(name, help="a folder that all ranks see")
    args = parser.parse_args()
    with TemporaryDirectory() as own:
        folders = [args.model or f"{own}/model", args.out or f"{own}/out"]
        if rank == 0 and not args.model:
            torch.manual_seed(0)
            write(Llama(), folders[0])
        dist.broadcast_object_list(folders, src=0)  # all now hold rank 0's names
        yield folders
        dist.barrier()  # all have read; a temporary folder may go


def compare(model, folder, device):
    """Compare the logits with those of one process, which reads all files."""
    x, y = (tensor.to(device) for tensor in batch(0))
    with torch.no_grad():
        logits, expected = model(x), read(folder).to(device)(x)
    model.reshard()  # after a forward alone, the root is still gathered
    if not (off := (logits - expected).abs().max().item()) < 1e-3:
        got, right = (
            F.cross_entropy(each.flatten(0, 1), y.flatten()).item()
            for each in (logits, expected)
        )
        told = f"loss {got:.3f}, one process has {right:.3f}"
        raise AssertionError(f"logits are off by up to {off:.3f}: {told}")


def step(model, optimizer, micro_batches):
    """Take a step on the mean over the tokens of all ranks; return that mean."""
    tokens = sum((y != NO_TARGET).sum() for _, y in micro_batches)
    dist.all_reduce(tokens)  # every rank now holds the number of all ranks' tokens
    total = torch.zeros((), device=tokens.device)
    for x, y in micro_batches:
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        # fully_shard averages over ranks: times their number, this is a sum.
        (loss * dist.get_world_size() / tokens).backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)  # every rank now holds the sum over all tokens
    return (total / tokens).item()


def export(model, folder):
    """Write the model as it came: safetensors with the same names, in bf16."""
    weights = {name: w.detach().bfloat16() for name, w in in_files(model).items()}
    writer = HuggingFaceStorageWriter(
        folder, save_distributed=True, enable_consolidation=True
    )
    dcp.save(weights, storage_writer=writer)  # every rank its rows; rank 0 joins them
    if dist.get_rank() == 0:
        write_config(model.config, folder)
    dist.barrier()  # now any rank may read it


def mine(number, mesh):
    """Return this rank's two micro-batches of a step: short sentences come first."""
    size = ROWS // mesh.size()
    own = sentences(number, ROWS)[size * mesh.get_rank() :][:size]
    halves = own[: size // 2], own[size // 2 :]
    return [padded(half, mesh.device_type) for half in halves]


def one_step(model, optimizer, rows, device):
    """Take the step of one process, with all rows in one batch; return its loss."""
    x, y = padded(rows, device)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=NO_TARGET)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(model, expected, mesh):
    """Train the sharded model and the whole one, and compare; return the losses."""
    losses, device = [], mesh.device_type
    optimizer, other = (
        torch.optim.AdamW([w for w in m.parameters() if w.requires_grad], lr=RATE)
        for m in (model, expected)
    )
    for number in range(STEPS):
        loss = step(model, optimizer, mine(number, mesh))
        right = one_step(expected, other, sentences(number, ROWS), device)
        if not abs(loss / right - 1) < 1e-3:
            told = f"loss {loss:.4f}, one process has {right:.4f}"
            raise AssertionError(f"step {number + 1}: {told}")
        losses.append(loss)
    return losses


def compare_files(model, folder):
    """Compare what one process reads with the weights of all ranks, rounded."""
    found = dict(read(folder).named_parameters())
    for name, w in in_files(model).items():
        whole = w.detach().full_tensor().bfloat16().float().cpu()
        torch.testing.assert_close(found.pop(name), whole, rtol=0, atol=0)
    if found:
        raise AssertionError(f"in the files, and not in the model: {[*found]}")


def save(model, optimizer, done, folder):
    """Save what a training needs to go on: float32, and with Adam's averages."""
    weights, averages = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": averages, "done": done}
    dcp.save(state, checkpoint_id=folder)


def load(model, optimizer, folder):
    """Load it on any number of ranks; return how many steps were done."""
    weights, averages = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": averages, "done": 0}
    dcp.load(state, checkpoint_id=folder)  # each rank reads its own rows
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=averages
    )
    return state["done"]


def go_on(folder, out, mesh, right):
    """Train the first half and save it, or load it and train the second one."""
    model = build(folder, mesh)
    fill(model, folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    saved = os.path.exists(f"{out}/.metadata")  # the last file to be written
    done = load(model, optimizer, out) if saved else 0
    losses = []
    for number in range(done, STEPS if saved else HALF):
        losses.append(loss := step(model, optimizer, mine(number, mesh)))
        if not abs(loss / right[number] - 1) < 1e-3:
            told = f"loss {loss:.4f}, one process has {right[number]:.4f}"
            raise AssertionError(f"step {number + 1}: {told}")
    if not saved:
        save(model, optimizer, HALF, out)
    told = f"steps {done + 1} to {done + len(losses)}"
    print(f"[rank {mesh.get_rank()}] {told}", flush=True)
    return losses


def main(rank, world_size, device):
    if ROWS // 2 < world_size or ROWS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {ROWS} rows, two for each")
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    with given(rank) as (folder, out):
        whole = read(folder).to(kind)
        other = torch.optim.AdamW(whole.parameters(), lr=RATE)
        right = [one_step(whole, other, sentences(n, ROWS), kind) for n in range(STEPS)]
        losses = go_on(folder, out, mesh, right)
        dist.barrier()
        if "--out" not in sys.argv:  # else another launch goes on
            losses += go_on(folder, out, mesh, right)
    return {"losses": losses}


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
