"""Loss, accuracy and median over all ranks: exactly those of one process.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/evaluate.py

    [rank 0] loss: ... exactly, ... as a mean of means

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional as F

from ddp_lab.gpt import GPT, TEXT, Config, batch, loss_of

BINS, TOP = 512, 16.0  # of the histogram of losses, up to this loss
STEPS = 40


def summed(numbers):
    """The sums over all ranks of a few numbers, in float64."""
    total = torch.stack([torch.as_tensor(n, dtype=torch.float64) for n in numbers])
    dist.all_reduce(total)  # every rank now holds the sums of all
    return total.tolist()


def exact(losses, right):
    """Loss and accuracy from sums and counts: one call."""
    loss, hits, count = summed([losses.sum(), right.sum(), len(losses)])
    return loss / count, hits / count


def gathered(losses):
    """What all ranks have, however much each: two calls, and all of the numbers."""
    most = torch.tensor(len(losses))
    dist.all_reduce(most, dist.ReduceOp.MAX)  # every rank now knows the longest
    row = F.pad(losses, (0, most.item() - len(losses)), value=torch.nan)
    everyone = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, row)  # every rank now holds all numbers, and padding
    numbers = torch.cat(everyone)
    return numbers[~numbers.isnan()]


def mean_of_means(lines, statistic):
    """The statistic of each line, then its mean over lines, then over ranks."""
    mine = torch.stack([statistic(line.float()) for line in lines]).mean()
    return summed([mine / dist.get_world_size()])[0]


def by_histogram(losses):
    """The median to half a bin: one call, of as many counts as there are bins."""
    counts = torch.histc(losses, BINS, 0, TOP)
    dist.all_reduce(counts)  # every rank now holds the histogram of all
    middle = (counts.cumsum(0) < counts.sum() / 2).sum()  # the bin with the median
    return (middle.item() + 0.5) * TOP / BINS


def trained():
    """A model that every rank trains alike: only its evaluation is shared out."""
    torch.manual_seed(0)
    model = GPT(Config(layers=1, width=48, heads=4, context=176))
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(STEPS):
        adam.zero_grad()
        loss_of(model(batch(step)[0]), batch(step)[1]).backward()
        adam.step()
    return model


@torch.no_grad()
def tested(model, lines):
    """By line, the loss at each character, and whether it was the likeliest one."""
    losses, right = [], []
    for line in lines:
        logits = model(line[None, :-1])[0]  # (characters, vocab)
        losses.append(F.cross_entropy(logits, line[1:], reduction="none"))
        right.append(logits.argmax(1) == line[1:])
    return losses, right


def main(rank, world_size, device):
    ends = [0, *((TEXT == 0).nonzero().flatten() + 1).tolist()]
    lines = [TEXT[a:b] for a, b in zip(ends, ends[1:], strict=False) if b - a > 1]
    lines.sort(key=len)  # rank 0 gets the short ones
    model = trained()
    truth = [torch.cat(lists) for lists in tested(model, lines)]  # in one process
    first, end = (len(lines) * r // world_size for r in (rank, rank + 1))
    by_line = tested(model, lines[first:end])
    losses, right = map(torch.cat, by_line)
    facts = {"lines": end - first, "characters": len(losses)}
    for name, statistic, which in (
        ("loss", torch.mean, 0),
        ("accuracy", torch.mean, 1),
        ("median", torch.median, 0),
    ):
        facts[name] = {"truth": statistic(truth[which].float()).item()}
        facts[name]["means"] = mean_of_means(by_line[which], statistic)
    facts["loss"]["ours"], facts["accuracy"]["ours"] = exact(losses, right)
    facts["median"]["ours"] = gathered(losses).median().item()
    facts["histogram"] = by_histogram(losses)
    for name in ("loss", "accuracy", "median"):
        ours, means, truth = (facts[name][key] for key in ("ours", "means", "truth"))
        told = f"{ours:.4f} exactly, {means:.4f} as a mean of means"
        print(f"[rank {rank}] {name}: {told}", flush=True)
        if abs(ours - truth) > 1e-5:
            raise AssertionError(f"{name}: {ours}, expected {truth}")
    if abs(facts["histogram"] - facts["median"]["truth"]) > TOP / BINS / 2 + 1e-6:
        raise AssertionError(f"the median by histogram is {facts['histogram']}")
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
