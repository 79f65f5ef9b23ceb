"""Exercise: make ZeRO-2 of ZeRO-1, for two micro-batches and a gradient at a time.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/exercise_zero2.py

Once `shard_gradients` is written, the ranks train with it and count. Until then:

    [rank 0] not yet

Written by notebooks/15_sharding.ipynb.
"""

import gc
import json
import os
import random
import weakref
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, Config, batch, loss_of

ROWS, MICRO_BATCHES = 2, 2  # rows of each rank in a micro-batch


def shard_gradients(weights, parts):
    """Register hooks that reduce each gradient when it is made; return True.

    weights: all weights of a GPT. parts: a tensor of zeros for each, as long as this
    rank's shard of its gradient. Stage 1 does this, after the last backward():

        for w, part in zip(weights, parts, strict=True):
            part.copy_(reduce_scatter(w.grad))  # given: my shard of the ranks' mean
            w.grad = None

    You do it within each of two calls of backward(), and their gradients add up.
    """
    return None  # your code here


def reduce_scatter(gradient):
    """Return this rank's part of the mean over all ranks, flat; any shape will do."""
    # A copy: when the call returns, gloo's thread may still hold what was sent.
    n, row = dist.get_world_size(), gradient.detach().clone().flatten()
    row = F.pad(row, (0, -len(row) % n))
    versions = torch.empty_like(row)
    with Calls.allowed(row.numel()):
        dist.all_to_all_single(versions, row)
    return versions.view(n, -1).mean(0)


def part_of(row):
    """This rank's part of a row, with zeros behind it where the parts differ."""
    row = F.pad(row, (0, -len(row) % dist.get_world_size()))
    return row.chunk(dist.get_world_size())[dist.get_rank()]


class Calls(TorchDispatchMode):
    """Keep how many numbers each reduce_scatter got, and refuse all other calls."""

    made, inside = [], False

    @classmethod
    def allowed(cls, numbers):
        cls.made.append(numbers)
        cls.inside = True
        return cls()

    def __exit__(self, *error):
        Calls.inside = False
        return super().__exit__(*error)

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if "c10d" in op.namespace and not Calls.inside:
            raise AssertionError(f"{op.name()}: only reduce_scatter may communicate")
        return op(*args, **(kwargs or {}))


class Witness:
    """Look at each gradient when it is made: which others still exist in whole?"""

    def __init__(self, weights):
        self.most, self.looks, self.alive = 0, 0, []
        self.before, self.weights = in_memory(), len(weights)
        for w in weights:
            w.register_post_accumulate_grad_hook(self.look)

    def look(self, w):
        self.alive.append(weakref.ref(w.grad.untyped_storage()))
        there = {id(s): s.nbytes() for s in (each() for each in self.alive) if s}
        self.most = max(self.most, sum(there.values()))
        # A hook of the gradient itself is called before this one.
        if len(Calls.made) - self.looks not in (0, 1):
            late = f"{self.looks} gradients made, {len(Calls.made)} reduced"
            raise AssertionError(f"not one at a time: {late}, and the next is here")
        self.looks += 1
        if self.looks % self.weights == 0:  # the last one of this backward()
            self.most = max(self.most, in_memory() - self.before)


def in_memory():
    """The bytes of all tensors of floating-point numbers that Python can reach."""
    gc.collect()
    found = (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
    storages = (each.untyped_storage() for each in found if each.is_floating_point())
    return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


def train(config, dtype, device, rank, world_size):
    """Go through all micro-batches; return what the ranks hold and sent, or None."""
    torch.manual_seed(0)
    model, expected = (GPT(config).to(device, dtype) for _ in range(2))
    expected.load_state_dict(model.state_dict())
    weights = list(model.parameters())
    parts = [torch.zeros_like(part_of(w.detach().flatten())) for w in weights]
    witness, Calls.made = Witness(weights), []
    if shard_gradients(weights, parts) is None:
        return None
    for step in range(MICRO_BATCHES):
        tokens, targets = (t.to(device) for t in batch(step, ROWS * world_size, 16))
        mine = loss_of(model(tokens[rank::world_size]), targets[rank::world_size])
        with Calls():
            (mine / MICRO_BATCHES).backward()
        (loss_of(expected(tokens), targets) / MICRO_BATCHES).backward()
    for part, e in zip(parts, expected.parameters(), strict=True):
        true = part_of(e.grad.flatten())
        torch.testing.assert_close(part, true, msg="a part of a gradient is wrong")
    sent = [4 * (n // world_size + (n % world_size > 0)) for n in Calls.made]
    held = witness.most + sum(part.nbytes for part in parts)
    return {"held": held, "sent": (world_size - 1) * sum(sent)}


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    drawn = torch.tensor([random.choice([1, 2, 3]), random.choice([24, 48, 72])])
    drawn = drawn.to(device)
    dist.broadcast(drawn, src=0)  # the same sizes on every rank
    layers, width = drawn.tolist()
    sizes = Config(layers=layers, width=width, context=16)
    facts = train(sizes, torch.float64, device, rank, world_size)
    if facts is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return
    facts = train(Config(), torch.float32, device, rank, world_size)
    told = "holds {held} bytes of gradients at most, sends {sent}".format(**facts)
    print(f"[rank {rank}] {told}", flush=True)
    weights = list(GPT().parameters())
    parts = sum(-(-w.numel() // world_size) for w in weights)
    expected = 4 * (parts + max(w.numel() for w in weights))
    if facts["held"] != expected:
        raise AssertionError(f"holds {facts['held']} bytes, expected {expected}")
    return {"solved": True} | facts


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
