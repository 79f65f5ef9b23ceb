"""Build a model on meta, shard it, and read only one's own rows of its files.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tune/load.py

Written by notebooks/24_fine_tune_a_model.ipynb.
"""

import argparse
import gc
import json
import os
import weakref
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import batch
from ddp_lab.llama import Config, Llama, read, write


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


class Memory(TorchDispatchMode):
    """Keeps the most bytes of new tensors that were there at once."""

    def __init__(self):
        super().__init__()
        self.new, self.most = {}, 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        out = op(*args, **(kwargs or {}))
        for tensor in [*args, out]:
            real = type(tensor) in (torch.Tensor, torch.nn.Parameter)
            # What is not float32 here is mapped from a file, or only a shape.
            if real and tensor.dtype == torch.float32 and not tensor.is_meta:
                memory = tensor.untyped_storage()
                self.new[memory.data_ptr()] = weakref.ref(memory)
        there = [memory() for memory in self.new.values()]
        self.most = max(self.most, sum(m.nbytes() for m in there if m))
        return out


def load_all(folder, mesh):
    """The other way: every rank reads all of it, then keeps its rows."""
    model = read(folder).to(mesh.device_type)
    numbers = sum(weight.numel() for weight in model.parameters())
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh), numbers


def load_own(folder, mesh):
    model = build(folder, mesh)
    return model, fill(model, folder)


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


def main(rank, world_size, device):
    # gloo, with GPUs that ranks share, can gather only what is in host memory.
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh, facts = dist.init_device_mesh(kind, (world_size,)), {}
    with given(rank) as (folder, _):
        for name, load in {"all of it": load_all, "own rows": load_own}.items():
            with Memory() as memory:
                model, numbers = load(folder, mesh)
            compare(model, folder, kind)
            facts[name] = {"read": numbers, "held": memory.most}
            print(f"[rank {rank}] {name}: {facts[name]}", flush=True)
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
