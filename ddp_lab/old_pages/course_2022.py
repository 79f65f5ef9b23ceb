"""What a course of 2022 promises, and what today's PyTorch brings.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/course_2022.py

    [rank 0] row 13 misleads: 1, not 3

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager
from io import BytesIO

import torch
import torch.distributed as dist
import torchvision
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DistributedSampler
from torchvision import transforms

ROWS = {}  # each line that is tried, and the fate that it had last
SEEN = {}  # more numbers for the notebook


def today(fate):
    """Note the fate of a line; main fails when the line no longer has it."""
    return lambda line: ROWS.update({line: fate}) or line


def judge(line, *given):
    """Try an old line; return its fate, and what it says or brings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            brings, promised = line(*given)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return ("hangs" if "timed out" in said else "stops"), said
    said = [str(w.message) for w in caught if "deprecated" in str(w.message)]
    if said and "_single" not in said[0]:  # 2.13 and 2.14 say it of row 5's
        return "warns", said[0]
    if brings == promised:
        return "holds", str(brings)
    return "misleads", f"{brings}, not {promised}"


def told(fact):
    """Return what each rank tells, in a list that every rank now holds."""
    facts = [None] * dist.get_world_size()
    dist.all_gather_object(facts, fact)
    return facts


@today("misleads")
def row_9(rank, world_size):
    """A picture of scatter, called Broadcast: rank r would hold piece r."""
    pieces = torch.arange(world_size) * (rank == 0)
    dist.broadcast(pieces, src=0)  # every rank now holds all that rank 0 had
    return told(pieces.tolist()), [[piece] for piece in range(world_size)]


@today("misleads")
def row_13(rank, world_size):
    """A sampler that is told of no epoch: how many orders do three epochs have?"""
    sampler = DistributedSampler(range(12 * world_size))
    return len({tuple(sampler) for _ in range(3)}), 3


@today("misleads")
def row_15(rank, world_size):
    """Saving at the top of the loop: how many of three epochs are in the file?"""
    epochs = torch.zeros(1)  # stands for the weights
    for _ in range(3):
        file = BytesIO()
        torch.save(epochs, file)
        epochs += 1  # stands for the training
    file.seek(0)
    SEEN["saved"] = int(torch.load(file))
    return SEEN["saved"], 3


@today("warns")
def row_10(rank, world_size):
    """A network, by pretrained=False."""
    return type(torchvision.models.resnet18(pretrained=False)).__name__, "ResNet"


@today("misleads")
def row_11(rank, world_size):
    """The unchanged network on a small image: for how many classes does it answer?"""
    net = torchvision.models.resnet18(weights=None).eval()
    image = torch.zeros(1, 3, 32, 32)
    blocks = torch.nn.Sequential(*list(net.children())[:-2])
    SEEN["last_map"] = [*blocks(image).shape[2:]]
    return net(image).shape[1], 10


@today("misleads")
def row_12(rank, world_size):
    """Test images, cropped and flipped: is a model still right that always is?"""
    torch.manual_seed(0)
    images, layer = torch.rand(200, 3, 32, 32), torch.nn.Linear(3072, 10)
    change = transforms.Compose(
        [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    )
    tests = [[change(image) for image in images] for _ in range(2)]
    tests = [layer(torch.stack(test).flatten(1)).argmax(1) for test in tests]
    right = layer(images.flatten(1)).argmax(1)
    SEEN["accuracy"] = [(test == right).float().mean().item() for test in tests]
    return [f"{share:.0%}" for share in SEEN["accuracy"]], ["100%", "100%"]


def main(rank, world_size, device):
    found, other = {}, []
    for line, last in ROWS.items():
        row = line.__name__.removeprefix("row_")
        fate, said = found[row] = judge(line, rank, world_size)
        if rank == 0:
            print(f"[rank 0] row {row} {fate}: {said}", flush=True)
        other += [f"row {row} {fate}, expected: {last}"] * (fate != last)
    if other:
        raise AssertionError("; ".join(other))
    return {"rows": found} | SEEN


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
