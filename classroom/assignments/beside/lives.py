"""One life of a training: its steps are told, its weights pushed, and a rank may die.

Each life is a run of its own; what a life leaves in its folder is there in the next. A
program that has been imported can no longer change what is used here.
"""

import resource
import signal
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from os import fsdecode, getpid, kill, replace
from os.path import realpath
from pathlib import Path

import torch
from torch.distributed import barrier
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


def saved_in() -> Path:
    """Return where the program saves."""
    from ranks import RUN_FOLDER

    return RUN_FOLDER / "out" / "saved"


def die() -> None:
    """End as the system ends a process: without a word, and at once."""
    kill(getpid(), signal.SIGKILL)


def die_at_byte(count: int) -> None:
    """Let the system end this process as soon as it writes more than `count` bytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would ignore it


def die_at_rename(before: bool) -> None:
    """End this process when it next renames a file of the training's, before or after
    the deed. By whichever name a program calls it: Python itself tells of each rename.
    """
    renaming, saved = False, realpath(saved_in())

    def hear(event: str, args: tuple) -> None:
        nonlocal renaming
        if event != "os.rename" or renaming:
            return
        if not realpath(fsdecode(args[1])).startswith(saved):
            return  # it is ours
        renaming = True
        if not before:
            replace(*args[:2])
        die()

    sys.addaudithook(hear)


DEATHS: dict[str, Callable] = {
    "at once": die,
    "at byte": die_at_byte,
    "before the rename": lambda: die_at_rename(True),
    "after the rename": lambda: die_at_rename(False),
}


def contents(folder: Path) -> dict[str, str]:
    """Return {name: digest} of the files in `folder`, as `Outcome.files` names them."""
    return {
        str(path.relative_to(folder.parent)): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


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
    """Tells each step of a life, and each snapshot; pushes the weights, or dies.

    Args:
        rank: which this is.
        given: inputs: pushes, an array for each of pushed (steps of this life, from 1);
            plan, who dies when and how, or None; look, after which step rank 0 gives
            the folder's contents.
        folder: where the program saves.
    """

    def __init__(self, rank: int, given: dict, folder: Path):
        self.rank, self.given, self.folder = rank, given, folder
        self.took, self.seen = 0, {*contents(folder).values()} if rank == 0 else set()
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)

    def look(self) -> None:
        """See whether something has been written since the last look.

        Meanwhile no rank writes: a snapshot in several files would count twice, where
        one rank is ahead.
        """
        from ranks import say

        barrier()
        if self.rank == 0:
            now = {*contents(self.folder).values()}
            if now - self.seen:
                say("snapshot")
            self.seen |= now
        barrier()

    def before_step(self, optimizer: Optimizer, *_: object) -> None:
        """Tell with which weights this life begins."""
        from ranks import say

        if not self.took and not idles(optimizer):
            say("begun", weights=digest(parameters(optimizer)))

    def after_step(self, optimizer: Optimizer, *_: object) -> None:
        """Runs before the program gets to save this step."""
        from ranks import give

        if idles(optimizer):
            return
        self.took += 1
        self.look()
        if self.took in self.given["pushed"]:
            number = self.given["pushed"].index(self.took)
            rest = torch.from_numpy(self.given["pushes"][number])
            for parameter in parameters(optimizer):
                count = parameter.numel()
                parameter.data += rest[:count].view_as(parameter)
                rest = rest[count:]
        plan = self.given["plan"]
        if plan and self.took == plan["step"] and plan["rank"] in (self.rank, None):
            DEATHS[plan["how"]](*plan.get("with", []))
        if self.took == self.given.get("look"):
            give(contents=contents(self.folder))


def live(file: str) -> None:
    """Be one rank of one life of the student's program, which may refuse to begin."""
    from ranks import answer, give, inputs, process_group

    given, folder = inputs(), saved_in()
    with process_group() as (rank, _, _):
        program = answer(file)
        watch = Watch(rank, given, folder)
        try:
            run = program.train(folder, program.Job(**given["job"]))
        except (SystemExit, RuntimeError, ValueError) as error:
            if not given["may_refuse"] or isinstance(error, NotImplementedError):
                raise
            return give(refused=str(error))
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # nobody dies of ours
        watch.look()
        give(weights=parameters_to_vector(run.model.parameters()), refused=None)
