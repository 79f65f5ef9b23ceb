"""Exercise: bring an old training to today's form; the program says what is left.

    torchrun --standalone --nproc-per-node 2 ddp_lab/old_pages/exercise.py

Each rank plays a node of its own, so its local rank is 0. The old training runs, and:

    [rank 0] not yet: ... complaints

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import argparse
import gc
import json
import os
import warnings
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS, SAMPLES = 2, 13
ARGUMENTS = argparse.Namespace(learning_rate=0.01)
DIARY = {"seen": [], "noise": [], "losses": [], "writes": 0}  # of this rank
OPTIMIZERS = []  # the one that has made a step last, at the end


def train(data, rank, local_rank, device, path):
    """Train; leave a checkpoint; return the DDP model, the loss and the accuracy.

    The file should hold the state at the end, so that training can go on from it: a
    plain model loads its "model". The loss is the last batch's, averaged over ranks.
    """
    torch.manual_seed(0)  # so that all models start equal
    ddp = DDP(torch.nn.Linear(1, 1).to(device))
    rate = ARGUMENTS.learning_rate
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    sampler = DistributedSampler(data)
    for _ in range(EPOCHS):
        if local_rank == 0:
            save({"model": ddp.state_dict(), "arguments": ARGUMENTS}, path)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            loss = error(ddp(augment(x.to(device))), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.reduce_op.SUM)
    return ddp, total.item(), test(ddp, data, device)


def test(ddp, data, device):
    """Return the share of all samples that are right: off by less than one."""
    right, sampler = torch.zeros(1, device=device), DistributedSampler(data)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        off = ddp(augment(x.to(device))) - y.to(device)
        right += (off.abs() < 1).sum()
    dist.all_reduce(right)
    return right.item() / dist.get_world_size() / len(sampler)


class Data(Dataset):
    """Sample i is (i / 4, 2 - i / 4), and notes that it was asked for."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        DIARY["seen"].append(i)
        return torch.tensor([i / 4]), torch.tensor([2 - i / 4])


def augment(x):
    """Training images with noise; stands for cropping and flipping."""
    noise = torch.randn_like(x)
    DIARY["noise"].append(noise.flatten()[0].item())
    return x + noise


def error(prediction, y):
    """The loss of one batch."""
    loss = (prediction - y).square().mean()
    DIARY["losses"].append(loss.item())
    return loss


def save(state, path):
    """Write a checkpoint, and note that this rank has written one."""
    DIARY["writes"] += 1
    torch.save(state, path)


def complaints(ddp, loss, accuracy, diaries, path, device):
    """What is not as it should be; the same list on every rank."""
    seen, share = diaries[0]["seen"], -(-SAMPLES // len(diaries))
    samples = torch.arange(SAMPLES, device=device).view(-1, 1) / 4
    with torch.no_grad():
        right = ((ddp.module(samples) - (2 - samples)).abs() < 1).sum().item()
    losses = [diary["losses"][EPOCHS * -(-share // 4) - 1] for diary in diaries]
    mean, orders = sum(losses) / len(losses), (seen[:share], seen[share : 2 * share])
    firsts = {i for diary in diaries for i in diary["seen"][:share]}
    noises = [noise for diary in diaries for noise in diary["noise"]]
    writes = [diary["writes"] for diary in diaries]
    found = {
        "an epoch has the order of the one before": orders[0] != orders[1],
        "an epoch leaves samples out": firsts == set(range(SAMPLES)),
        "the same noise is drawn twice": len(noises) == len(set(noises)),
        "the loss is not the mean of the ranks": abs(loss - mean) < 1e-5,
        f"the accuracy is not {right} of {SAMPLES}": round(accuracy, 4)
        == round(right / SAMPLES, 4),
        "torch warns of an old name": not any(d["warned"] for d in diaries),
        "more than one rank writes": sum(map(bool, writes)) == 1,
        "the test runs the wrapper, which may wait for others": not any(
            diary["wrapped"] for diary in diaries
        ),
    }
    return [what for what, fine in (found | in_file(ddp, path)).items() if not fine]


def in_file(ddp, path):
    """What the checkpoint should hold, and whether it does."""
    try:
        state = torch.load(path, map_location="cpu")
    except Exception:
        return {"torch.load() refuses the checkpoint": False}
    model, now = state.get("model", {}), ddp.module.state_dict()
    plain = set(model) == set(now)
    return {
        "a plain model refuses the names in the file": plain,
        "the file is older than the model": plain
        and all(torch.equal(model[name], now[name].cpu()) for name in now),
        "the optimizer's momentum is not in the file": has_momentum(state),
    }


def has_momentum(state):
    """Whether a checkpoint holds the momentum that the optimizer has at the end."""
    parts = [part.get("state", {}) for part in state.values() if type(part) is dict]
    found = [s.get("momentum_buffer") for part in parts for s in part.values()]
    now = [s["momentum_buffer"] for s in OPTIMIZERS[-1].state.values()]
    return len(found) == len(now) and all(
        torch.is_tensor(old) and torch.equal(old.cpu(), new.cpu())
        for old, new in zip(found, now, strict=True)
    )


def trained(rank, device, path):
    """Train, with a watch on optimizers; test once more, with one on the wrapper."""
    watch = register_optimizer_step_post_hook(lambda last, *_: OPTIMIZERS.append(last))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        end = train(Data(), rank, 0, device, path)  # model, loss, accuracy
    watch.remove()
    DIARY["warned"] = any("reduce_op" in str(w.message) for w in caught)
    DIARY["wrapped"] = False
    watch = end[0].register_forward_pre_hook(lambda *_: DIARY.update(wrapped=True))
    test(end[0], Data(), device)
    watch.remove()
    return end


def main(rank, world_size, device):
    with TemporaryDirectory() as own:
        path = [f"{own}/model.pt"]
        dist.broadcast_object_list(path, src=0)  # all ranks now name rank 0's file
        end = trained(rank, device, path[0])
        diaries = [None] * world_size
        dist.all_gather_object(diaries, DIARY)  # every rank now holds all diaries
        left, right = (
            complaints(*end, diaries, path[0], device),
            round(end[2] * SAMPLES),
        )
        del end  # before its group, or torch up to 2.13 could wait forever
        votes = [None] * world_size
        dist.all_gather_object(votes, left)  # every rank now knows all verdicts
        left = sorted(set(sum(votes, [])))
        if 0 < len(left) < 5:  # begun, so no longer the page's
            raise AssertionError(f"still: {'; '.join(left)}")
        told = f"no complaint is left, {right} of {SAMPLES} right"
        told = f"not yet: {len(left)} complaints" if left else told
        print("\n".join(f"[rank {rank}] {line}" for line in [told, *left]), flush=True)
        print(
            json.dumps({"solved": not left, "complaints": left, "right": right}),
            flush=True,
        )


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
