"""Train thin additions to frozen weights (LoRA), count what that saves, and merge.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tune/lora.py

Written by notebooks/24_fine_tune_a_model.ipynb.
"""

import argparse
import gc
import json
import os
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

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

STEPS, ROWS = 12, 12
RATE = 1e-2  # a LoRA wants a larger one than whole weights

THIN, SCALE = 4, 2.0


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


def build_lora(folder, mesh):
    with torch.device("meta"):
        model = with_lora(Llama(Config.read(folder)).bfloat16())  # as in the files
        model.model.rotary_emb.float()  # a rounded frequency would turn too far
    # What computes is float32 here, to be compared; at work it would be bf16.
    return shard(model, mesh, mp_policy=MixedPrecisionPolicy(torch.float32))


def in_files(model):
    return {name: w for name, w in model.named_parameters() if "lora_" not in name}


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


class LoRA(nn.Linear):
    """A frozen weight W and two thin ones that are trained: W + SCALE B A."""

    def __init__(self, wide, high, dtype):
        super().__init__(wide, high, bias=False, dtype=dtype)
        self.weight.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(THIN, wide))
        self.lora_B = nn.Parameter(torch.empty(high, THIN))

    def forward(self, x):
        thin = F.linear(x, self.lora_A)  # (batch, time, THIN)
        return super().forward(x) + SCALE * F.linear(thin, self.lora_B)


def with_lora(model):
    """Freeze a model, and put a LoRA in place of each Linear of its blocks."""
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in layer.self_attn, layer.mlp:
            for name, linear in list(part.named_children()):
                high, wide = linear.weight.shape
                setattr(part, name, LoRA(wide, high, linear.weight.dtype))
    return model


@torch.no_grad()
def fill_lora(model, mesh):
    """Fill what is in no file: A with small numbers, B with zeros."""
    for name, w in model.named_parameters():
        if "lora_A" in name:
            drawn = torch.randn(w.shape, device=mesh.device_type) / w.size(1) ** 0.5
            w.copy_(distribute_tensor(drawn, mesh, w.placements))  # rank 0's numbers
        elif "lora_B" in name:
            w.zero_()  # at first nothing is added


@torch.no_grad()
def merge(model):
    """Add B A to each frozen weight."""
    for module in model.modules():
        if isinstance(module, LoRA):
            module.weight += SCALE * (module.lora_B @ module.lora_A)


class Sent(TorchDispatchMode):
    """Adds up the bytes that all_gathers and reduce_scatters handle."""

    def __init__(self):
        super().__init__()
        self.gathered = self.reduced = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        if "allgather" in op.name():
            self.gathered += args[0].nbytes
        elif "reduce_scatter" in op.name():
            self.reduced += args[1].nbytes
        return op(*args, **(kwargs or {}))


def count(model, mesh):
    """Return the bytes that this rank holds and sends in one forward and backward."""
    x, y = mine(0, mesh)[0]
    with Sent() as sent:
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    trained = [w for w in model.parameters() if w.requires_grad]
    counts = {
        "weights": sum(w.to_local().nbytes for w in model.parameters()),
        "gradients": sum(w.grad.to_local().nbytes for w in trained),
        "Adam": sum(2 * w.to_local().nbytes for w in trained),
        "gathered": sent.gathered,
        "reduced": sent.reduced,
    }
    model.zero_grad()
    return counts


def whole_lora(model, folder, device):
    """Return the same in one process: the files' weights, and all ranks' A and B."""
    expected = with_lora(read(folder)).to(device)
    found = read(folder).state_dict()
    found |= {
        name: w.full_tensor() for name, w in model.named_parameters() if "lora_" in name
    }
    expected.load_state_dict(found)
    return expected


def try_lora(model, mesh, folder, out):
    """Train, merge and export; compare with one process at each stage."""
    device = mesh.device_type
    compare(model, folder, device)  # before the first step nothing is added
    expected = whole_lora(model, folder, device)
    losses = train(model, expected, mesh)
    merge(model)
    export(model, out)
    compare_files(model, out)
    x, y = padded(sentences(STEPS, ROWS), device)
    got, right = (
        F.cross_entropy(m(x).flatten(0, 1), y.flatten()).item()
        for m in (read(out).to(device), expected)
    )
    if not abs(got / right - 1) < 0.01:  # merging rounds to bf16
        raise AssertionError(f"merged: loss {got:.3f}, and {right:.3f} before")
    return losses


def main(rank, world_size, device):
    if ROWS // 2 < world_size or ROWS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share {ROWS} rows, two for each")
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    with given(rank) as (folder, out):
        models = {"all": build(folder, mesh), "LoRA": build_lora(folder, mesh)}
        for model in models.values():
            fill(model, folder)
            fill_lora(model, mesh)
        counts = {name: count(model, mesh) for name, model in models.items()}
        losses = try_lora(models["LoRA"], mesh, folder, out)
    told = f"loss {losses[0]:.2f}, after {STEPS} steps {losses[-1]:.2f}"
    print(f"[rank {rank}] {told}", flush=True)
    return {"counts": counts, "losses": losses}


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
