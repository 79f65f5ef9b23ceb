"""One life of a training, in which the judge pushes the weights, and a rank may die.

What a life leaves in its folder is there in the next. Nothing here waits for a clock: a
rank dies in a step, at a byte of a file, or before a change of the folder. The others
are asked to end as usual, and do not listen: they come as far as they can without it.
"""

import os
import resource
import signal
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

CHANGES = "open", "os.mkdir", "os.remove", "os.rename", "os.truncate", "shutil.rmtree"
"""What Python tells of before it does it: see sys.addaudithook."""
WRITES = os.O_WRONLY | os.O_RDWR


def die() -> None:
    """End as the system ends a process: without a word, and at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_byte(count: int) -> None:
    """Let the system end this process as soon as it writes more than `count` bytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would ignore it


def die_before_change(number: int, folder: Path) -> None:
    """End this process before it changes something in `folder` for that many times.

    A change is a file that is opened for writing, renamed or removed, or a folder that
    is made or removed.
    """
    place, made = os.path.realpath(folder), 0

    def hear(event: str, args: tuple) -> None:
        nonlocal made
        if event not in CHANGES or event == "open" and not args[2] & WRITES:
            return
        path = args[1 if event == "os.rename" else 0]
        if isinstance(path, int) or place not in os.path.realpath(os.fsdecode(path)):
            return  # not the training's
        made += 1
        if made == number:
            die()

    sys.addaudithook(hear)


def tell_of_saving() -> None:
    """Let torch.save tell of a file that it opens, as Python's `open` does."""
    save = torch.save

    def saves(obj: object, f: object, *args: object, **more: object) -> None:
        if isinstance(f, str | os.PathLike):
            sys.audit("open", os.fspath(f), "wb", WRITES)
        save(obj, f, *args, **more)

    torch.save = saves


def parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def idles(optimizer: Optimizer) -> bool:
    """Tell whether a step can do nothing: so the library has an optimizer make the
    state into which it loads another.
    """
    slow = all(float(group["lr"]) == 0 for group in optimizer.param_groups)
    grads = [p.grad for p in parameters(optimizer) if p.grad is not None]
    return slow and not any(grad.any() for grad in grads)


def digest(tensors: Sequence[torch.Tensor]) -> str:
    """Return what is equal if and only if all numbers are, in every bit."""
    whole = b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
    return sha256(whole).hexdigest()


class Watch:
    """Sees each step of a life: tells how it begins, pushes the weights, or dies.

    Args:
        rank: which this is.
        given: inputs: pushes, an array for each of pushed (steps of this life, from 1);
            plan, who dies when and how, or None.
        folder: where the program saves.
    """

    def __init__(self, rank: int, given: dict, folder: Path):
        self.given, self.folder, self.took = given, folder, 0
        plan = given["plan"] or {"rank": -1}
        self.plan = plan if plan["rank"] in (rank, None) else {}
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)

    def before_step(self, optimizer: Optimizer, *_: object) -> None:
        from ranks import give

        if not self.took and not idles(optimizer):
            give(begun=digest(parameters(optimizer)))

    def after_step(self, optimizer: Optimizer, *_: object) -> None:
        """Runs before the program gets to save this step."""
        if idles(optimizer):
            return
        self.took += 1
        if self.took in self.given["pushed"]:
            number = self.given["pushed"].index(self.took)
            rest = torch.from_numpy(self.given["pushes"][number])
            for parameter in parameters(optimizer):
                count = parameter.numel()
                parameter.data += rest[:count].view_as(parameter)
                rest = rest[count:]
        if self.plan and self.took >= self.plan["step"]:
            self.meet_the_end(self.took - self.plan["step"])

    def meet_the_end(self, later: int) -> None:
        """Die as planned; who changes too little to die of it dies a step later."""
        if "byte" in self.plan and not later:
            die_at_byte(self.plan["byte"])
        elif "change" in self.plan and not later:
            die_before_change(self.plan["change"], self.folder)
        elif "byte" not in self.plan:
            die()


def live() -> None:
    """Be one rank of one life of the student's program, which may refuse to begin."""
    from ranks import RUN_FOLDER, answer, give, inputs, process_group

    given, folder = inputs(), RUN_FOLDER / "out" / "saved"
    if given["plan"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with process_group() as (rank, _, _):
        if rank == 0:  # a copy of the folder: times say nothing
            for age, path in enumerate(sorted(folder.rglob("*"))):
                os.utime(path, (10**9 - age, 10**9 - age))
        tell_of_saving()
        program = answer("resume.py")
        Watch(rank, given, folder)
        try:
            run = program.train(folder, program.Job(**given["job"]))
        except (SystemExit, RuntimeError, ValueError) as error:
            if not given["may_refuse"] or isinstance(error, NotImplementedError):
                raise
            return give(refused=str(error))
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # nobody dies of ours
        give(weights=parameters_to_vector(run.model.parameters()), refused=None)


if __name__ == "__main__":
    live()
