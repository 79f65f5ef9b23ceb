"""One life of a training: it ends well, or a rank dies where the plan says.

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

FOLDER = RUN_FOLDER / "out" / "snapshots"


def die() -> None:
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


def contents() -> list[tuple[str, str]]:
    """Return what there is in the folder."""
    files = [path for path in sorted(FOLDER.rglob("*")) if path.is_file()]
    return [(str(path), sha256(path.read_bytes()).hexdigest()) for path in files]


class Watch:
    """Counts this life's steps, and the snapshots; dies in the step that is planned."""

    def __init__(self, rank: int, plan: dict | None):
        self.rank, self.plan, self.took, self.snapshots = rank, plan, 0, 0
        self.last = contents() if rank == 0 else []
        register_optimizer_step_post_hook(self.after_step)

    def look(self) -> None:
        """See whether the folder has changed since the last look."""
        if self.rank == 0 and (now := contents()) != self.last:
            self.snapshots, self.last = self.snapshots + 1, now

    def after_step(self, *_: object) -> None:
        """Runs before the program gets to save this step."""
        self.took += 1
        self.look()
        plan = self.plan
        if plan and self.took == plan["step"] and plan["rank"] in (self.rank, None):
            DEATHS[plan["how"]](*plan["with"])


def main() -> None:
    given = inputs()
    with process_group() as (rank, _, _):
        program = answer("survive.py")
        watch = Watch(rank, given["plan"])
        run = program.train(FOLDER, program.Job(**given["job"]))
        watch.look()
        weights = parameters_to_vector(run.model.parameters())
        give(weights=weights, took=watch.took, snapshots=watch.snapshots)


if __name__ == "__main__":
    main()
