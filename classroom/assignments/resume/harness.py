"""One life of a training: it ends well, or this rank dies where the plan says.

Each life is a run of its own; what a life leaves in its folder is there in the next.
"""

import os
import resource
import signal
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from ranks import RUN_FOLDER, answer, give, inputs, process_group
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


def watch_steps(rank: int, plan: dict | None, look: int | None) -> list[int]:
    """Count this life's steps; die, or look around, in the one that is planned."""
    took = [0]  # a list, for the hook to count in

    def after_step(*_: object) -> None:
        took[0] += 1
        if plan and took[0] == plan["step"] and plan["rank"] in (rank, None):
            DEATHS[plan["how"]](*plan.get("with", []))
        if took[0] == look:
            give(contents=contents())

    register_optimizer_step_post_hook(after_step)
    return took


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("resume.py")
        took = watch_steps(rank, given["plan"], given["look"])
        try:
            run = program.train(CHECKPOINTS, program.Job(**given["job"]))
        except (SystemExit, RuntimeError, ValueError) as error:
            if not given["may_refuse"] or isinstance(error, NotImplementedError):
                raise
            give(refused=str(error))
            return
        weights = parameters_to_vector(run.model.parameters())
        give(weights=weights, took=took[0], refused=None)


if __name__ == "__main__":
    main()
