"""One life of a training: it ends well, or this rank dies where the plan says.

Each life is a run of its own; what a life leaves in its folder is there in the next.
"""

import os
import resource
import signal
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from ranks import RUN_FOLDER, answer, give, inputs, process_group, say
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import register_optimizer_step_post_hook

CHECKPOINTS = RUN_FOLDER / "out" / "checkpoints"


def die(*_: object) -> None:
    """End as the system ends a process: without a word, and at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_byte(count: int) -> None:
    """Let the system end this process as soon as it writes more than `count` bytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would ignore it


def die_at_rename(before: bool) -> None:
    """End this process when it next renames a file, before or after the deed."""
    replace = os.replace

    def renamed(*args: Any, **kwargs: Any) -> None:
        if not before:
            replace(*args, **kwargs)
        die()

    os.rename = os.replace = renamed


DEATHS: dict[str, Callable] = {
    "at once": die,
    "at byte": die_at_byte,
    "before the rename": lambda: die_at_rename(True),
    "after the rename": lambda: die_at_rename(False),
}


def contents() -> dict[str, str]:
    """Return {name: digest} of the files that there are, as the judge names them."""
    return {
        str(path.relative_to(CHECKPOINTS.parent)): sha256(path.read_bytes()).hexdigest()
        for path in CHECKPOINTS.rglob("*")
        if path.is_file()
    }


def add(optimizer: torch.optim.Optimizer, push: np.ndarray) -> None:
    """Add `push`, (parameters,), to the weights."""
    rest = torch.from_numpy(push)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            mine, rest = rest.split([parameter.numel(), len(rest) - parameter.numel()])
            parameter.data += mine.view_as(parameter)


def watch_steps(rank: int, given: dict) -> None:
    """Say each step; in some push the weights, die or look around, as given."""
    plan, took = given["plan"], 0

    def after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        nonlocal took
        took += 1
        say("step")
        if took == 1 and given["push"] is not None:
            add(optimizer, given["push"])
        if plan and took == plan["step"] and plan["rank"] in (rank, None):
            DEATHS[plan["how"]](*plan.get("with", []))
        if took == given["look"]:
            give(contents=contents())

    register_optimizer_step_post_hook(after_step)


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("resume.py")
        watch_steps(rank, given)
        try:
            run = program.train(CHECKPOINTS, program.Job(**given["job"]))
        except (SystemExit, RuntimeError, ValueError) as error:
            if not given["may_refuse"] or isinstance(error, NotImplementedError):
                raise
            give(refused=str(error))
            return
        give(weights=parameters_to_vector(run.model.parameters()), refused=None)


if __name__ == "__main__":
    main()
