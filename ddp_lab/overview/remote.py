"""Remote calls: worker 0 has the rows, and calls the layers where they are.

    torchrun --standalone --nproc-per-node 2 ddp_lab/overview/remote.py

Written by notebooks/A3_which_road.ipynb.
"""

import gc
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import autograd as dist_autograd
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

BLOCKS, WIDTH, HIDDEN, ROWS = 4, 96, 384, 96
STEPS, RATE, MOMENTUM = 3, 1.0, 0.9

# On one machine a large tensor would be copied past TCP, and not be counted.
COUNTABLE = {"_channels": ["basic"]}
HERE = {}  # this worker's model and optimizer, for its callers


def forward(x):
    return HERE["model"](x)


def update(context):
    """What DistributedOptimizer calls everywhere: step with the context's gradients."""
    gradients = dist_autograd.get_gradients(context)
    for weight in HERE["model"].parameters():
        weight.grad = gradients[weight]
    HERE["optimizer"].step()


def call(name, function, argument):
    Calls.made += 1
    return rpc.rpc_sync(name, function, args=(argument,))


def road(rank, world_size, device):
    """Return the model as this rank has it, and how this rank takes a step."""
    if world_size > BLOCKS:
        raise SystemExit(f"{BLOCKS} blocks are too few for {world_size} ranks")
    first, end = (r * BLOCKS // world_size for r in (rank, rank + 1))
    model = HERE["model"] = network()[first:end].to(device)
    x, y = data(device)  # (96, 96) each
    others = [f"worker{other}" for other in range(1, world_size)]

    def step(optimizer):
        HERE["optimizer"] = optimizer
        dist.barrier()  # no worker is called before it is ready
        if rank == 0:
            with dist_autograd.context() as context:
                out = model(x)
                for name in others:
                    out = call(name, forward, out)  # (96, 96), and back again
                dist_autograd.backward(context, [F.mse_loss(out, y)])
                update(context)
                for name in others:
                    call(name, update, context)
        dist.barrier()  # the others serve calls meanwhile

    return model, step


def network():
    """The same weights in every process, and for every road."""
    torch.manual_seed(0)
    sizes = [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    blocks = [[nn.Linear(*size) for size in sizes] for _ in range(BLOCKS)]
    return nn.Sequential(*(nn.Sequential(a, nn.ReLU(), b) for a, b in blocks))


def data(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, ROWS, WIDTH, generator=generator).to(device)


def check(model):
    """Stop unless each weight here is where the textbook has it, in one process."""
    whole, (x, y) = network().double(), data("cpu").double()
    before, speeds = network(), [torch.zeros_like(w) for w in whole.parameters()]
    for _ in range(STEPS):
        gradients = torch.autograd.grad(F.mse_loss(whole(x), y), [*whole.parameters()])
        for w, v, g in zip(whole.parameters(), speeds, gradients, strict=True):
            w.data -= RATE * v.mul_(MOMENTUM).add_(g)
    for name, weight in model.named_parameters():
        name = name.removeprefix("module.")  # so DDP and DataParallel call them
        if isinstance(weight, DTensor):
            weight = weight.full_tensor()  # every rank now holds all of it
        end, start = whole.get_parameter(name), before.get_parameter(name)
        gap = (weight.cpu() - end).abs().max() / (end - start).abs().max()
        if not gap < 1e-3:  # true of nan as well
            raise AssertionError(f"{name} is {gap:.1e} of its way from the truth")


def bytes_sent(last=None):
    """What has left this process over TCP and has arrived, once that is all of it."""
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd") if sys.platform == "linux" else []):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as one:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                    total += struct.unpack("120xQ", info)[0]
        except OSError:
            pass  # closed by now, or a socket of another kind
    time.sleep(0.1)
    return total if total == last else bytes_sent(total)


def measure(model, optimizer, step):
    """Take a step; return the bytes held, kept and sent here, and the calls made."""
    kept, before = [], bytes_sent()
    for module in model.modules():
        if not list(module.children()):  # a Linear or ReLU: what comes out of it
            module.register_forward_hook(lambda _, __, out: kept.append(here(out)))
    Calls.made = 0
    with Calls():
        step(optimizer)
    sent = bytes_sent() - before
    held = 0
    for weight in model.parameters():
        momentum = optimizer.state[weight].values()
        held += sum(here(tensor) for tensor in (weight, weight.grad, *momentum))
    return {"held": held, "kept": sum(kept), "sent": sent, "calls": Calls.made}


def here(tensor):
    """The bytes of a tensor, or of this rank's part of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes


class Calls(TorchDispatchMode):
    """Count what torch.distributed is told to send, by any part of PyTorch."""

    made = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in function.namespace:
            others = ("recv", "wait", "wrap", "barrier")
            Calls.made += not any(word in str(function) for word in others)
        return function(*args, **(kwargs or {}))


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    with workers(**COUNTABLE):
        return train(rank, world_size, torch.device("cpu"))


def train(rank, world_size, device):
    """Take the steps on this road; measure the last one, check the end."""
    model, step = road(rank, world_size, device)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
    for _ in range(STEPS - 1):
        step(optimizer)
    facts = measure(model, optimizer, step)
    check(model)
    told = "holds {held} bytes, keeps {kept}, sends {sent} in {calls} calls"
    print(f"[rank {rank}]", told.format(**facts), flush=True)
    counted = sys.platform == "linux" and dist.get_backend() == "gloo"
    return facts | {"counted": counted}


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


@contextmanager
def workers(**options):
    """Join as worker0, worker1, ... over TCP: shared memory keeps a core busy."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = {"rpc_timeout": 20, "_transports": ["uv"], **options}
    options = rpc.TensorPipeRpcBackendOptions(**options)
    rpc.init_rpc(
        f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options
    )
    try:
        yield rank, world_size
    except BaseException:
        # Wait for nobody, and not long for a call that is still busy in this process.
        leave = threading.Thread(target=rpc.shutdown, args=(False,), daemon=True)
        leave.start()
        leave.join(2)
        raise
    if rpc._is_current_rpc_agent_set():  # not if the lesson has left by itself
        store = rpc.api._get_current_rpc_agent().store
        rpc.shutdown()  # waits until all are here, and no worker waits for a call
        store.set(f"left {rank}", "")
        if rank == 0:  # it may host the store, which the others use to the very end
            store.wait([f"left {other}" for other in range(world_size)])


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
