"""Count the bytes that a step keeps on a rank, and its CPU time, in six ways.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/memory.py

Written by notebooks/16_fully_shard.ipynb.
"""

import functools
import gc
import json
import os
import time
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from ddp_lab.gpt import GPT, batch, loss_of

KINDS = "weights", "gradients", "Adam", "activations", "of a block", "gathered"
WAYS = {  # what fully_shard is told
    "sharded": {},
    "kept": {"reshard_after_forward": False},
    "half": {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)},
    "recomputed": {},
    "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
}


def build(mesh):
    """Return the same whole model on every rank."""
    torch.manual_seed(0)
    return GPT().to(mesh.device_type)


def shard(model, mesh, **options):
    """Make a group of each block, and one more of what is left at the root."""
    # A warning: the logits are a view, so leave them unchanged. We do.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    # The root comes last: it takes what no group has taken before.
    return fully_shard(model, mesh=mesh, **options)


def part(number, mesh):
    """Return this rank's rows of a batch, and their targets."""
    x, y = batch(number)
    if len(x) % mesh.size():
        raise ValueError(f"{mesh.size()} ranks cannot share {len(x)} rows equally")
    mine = (tensor.chunk(mesh.size())[mesh.get_rank()] for tensor in (x, y))
    return [tensor.to(mesh.device_type) for tensor in mine]


def recompute(model):
    """Let each block keep only its input, and compute the rest again in backward."""
    for layer in model.blocks:
        forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        layer.forward = forward
    return model


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def check(model, expected, tolerance):
    """Compare each gradient with the uncut model's, relative to its length."""
    for p, e in zip(model.parameters(), expected.parameters(), strict=True):
        apart = (p.grad.full_tensor().to(e.device) - e.grad).norm() / e.grad.norm()
        if not apart <= tolerance:
            raise AssertionError(f"a gradient is {apart:.0e} of its length off")


def cpu_ms(model, x, y):
    """CPU time of forward and backward, which depends little on what else runs."""
    began = time.process_time()
    loss_of(model(x).float(), y).backward()
    return 1000 * (time.process_time() - began)


def try_out(mesh, *mine):
    nets = {"one process": build(mesh)}
    for name, options in WAYS.items():
        net = recompute(build(mesh)) if name == "recomputed" else build(mesh)
        nets[name] = shard(net, mesh, **options)
    rows = dict.fromkeys(nets, mine)
    rows["one process"] = [tensor.to(mesh.device_type) for tensor in batch(0)]
    facts = {name: measure(net, *rows[name]) for name, net in nets.items()}
    for name in WAYS:
        check(nets[name], nets["one process"], 3e-2 if name == "half" else 1e-4)
    one, cut, kept, half, recomputed, _ = facts.values()
    if kept["gathered"] != one["weights"] or 2 * half["gathered"] != cut["gathered"]:
        raise AssertionError("kept or half gathers other bytes than it should")
    if recomputed["of a block"] > cut["of a block"] / 5:
        raise AssertionError("recomputed, a block keeps too much")
    turns = [{n: cpu_ms(nets[n], *rows[n]) for n in nets} for _ in range(3)]
    for name, fact in facts.items():
        fact["CPU ms"] = sorted(turn[name] for turn in turns)[1]
    return facts


class Watch(torch.autograd.graph.saved_tensors_hooks):
    """Counts what autograd keeps, and at each such moment the gathered weights."""

    def __init__(self, model):
        super().__init__(self.keep, self.give)
        self.model, self.kept, self.gathered, self.so_far = model, {}, 0, []
        for block in model.blocks[1:3]:  # what is kept when it begins
            block.register_forward_pre_hook(lambda *_: self.so_far.append(self.bytes()))

    def look(self):
        plain = [p for p in self.model.parameters() if not isinstance(p, DTensor)]
        self.gathered = max(self.gathered, sum(p.nbytes for p in plain))
        return {p.untyped_storage().data_ptr() for p in plain}

    def bytes(self):
        return sum(self.kept.values())

    def keep(self, tensor):
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in self.look():  # a weight is no activation
            self.kept[memory.data_ptr()] = memory.nbytes()
        return tensor

    def give(self, tensor):
        self.look()
        return tensor


def measure(model, x, y):
    """Take a step with Adam; return its bytes by kind."""
    adam, watch = torch.optim.Adam(model.parameters(), lr=0), Watch(model)
    with watch:
        mean = loss_of(model(x).float(), y)
    mean.backward()
    adam.step()  # the weights stay
    weights = [*model.parameters()]
    states = [t for w in weights for t in adam.state[w].values() if t.ndim]
    tensors = weights, [w.grad for w in weights], states
    held = [sum(local(t).nbytes for t in kind) for kind in tensors]
    held += [watch.bytes(), watch.so_far[1] - watch.so_far[0], watch.gathered]
    return dict(zip(KINDS, held, strict=True))


def main(rank, world_size, device):
    # gloo, with GPUs that ranks share, can gather only what is in host memory.
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    facts = try_out(mesh, *part(0, mesh))
    for name, fact in facts.items():
        print(f"[rank {rank}] {name}: {fact}", flush=True)
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
