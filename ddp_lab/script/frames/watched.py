"""Run a training script on this rank, and report what has gone through its network.

    torchrun --nproc-per-node 2 watched.py SCRIPT [--epochs 4] [--output FOLDER]

Of each step of the optimizer the last line has the samples that this rank trained on,
how often the rank has written a file, and whether it has joined and left a group.
With FAILS=12 rank 1 raises in step 12.
"""

import json
import os
import runpy
import sys

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddp_lab.script.frames.throws import throws

TRAINED = throws(965, seed=1)  # what throws.py trains on


def watch():
    """Return lists that fill up as a script trains: samples, groups and writes."""
    number = {tuple(sample): i for i, sample in enumerate(TRAINED.tensors[0].tolist())}
    steps, groups, writes, since, save = [], [], [], [], torch.save

    def forward(module, inputs):
        first = isinstance(module, torch.nn.Linear) and module.in_features == 3
        if first and torch.is_grad_enabled():
            since.extend(number.get(tuple(x), -1) for x in inputs[0].tolist())

    def stepped(optimizer, args, options):
        steps.append([*since])
        groups.append(dist.is_initialized())
        since.clear()

    def steps_soon(optimizer, args, options):
        if len(steps) == int(os.environ.get("FAILS", -1)) and os.environ["RANK"] == "1":
            raise RuntimeError("an error that the judge has planted on rank 1")

    def saved(*args, **options):
        writes.append(1)
        return save(*args, **options)

    register_module_forward_pre_hook(forward)
    register_optimizer_step_pre_hook(steps_soon)
    register_optimizer_step_post_hook(stepped)
    torch.save = saved
    return steps, groups, writes


if __name__ == "__main__":
    seen, joined, files = watch()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    facts = {"steps": seen, "joined": any(joined), "left": not dist.is_initialized()}
    print(json.dumps(facts | {"writes": len(files)}), flush=True)
