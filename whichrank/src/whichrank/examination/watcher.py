"""All that is watched of one rank, and where it leaves what it has seen."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.optim import optimizer as optimizers

from whichrank.examination.facts import Witnessed, as_json
from whichrank.examination.watch.batches import Batches
from whichrank.examination.watch.chance import Chance
from whichrank.examination.watch.collectives import Collectives
from whichrank.examination.watch.frames import wrap
from whichrank.examination.watch.outside import Outside
from whichrank.examination.watch.restored import Restored
from whichrank.examination.watch.training import Training

OFTEN = 100  # steps after each of which the facts are written
GROWTH = 1.2  # of the number of steps, from one time to the next, later
PATIENCE = 10.0  # seconds that a rank waits after its steps for the others'
LAUNCHED = (
    "RANK",
    "LOCAL_",
    "GROUP_",
    "ROLE_",
    "WORLD_SIZE",
    "MASTER_",
    "TORCHELASTIC",
)
SOURCE = str(Path(__file__).absolute().parents[2])


class Witness:
    """What one rank has seen, and where it leaves it."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.facts = Witnessed()
        self.training = Training(self.facts)
        self.collectives = Collectives(self.training)
        self.pid = os.getpid()
        self.rank = int(os.environ.get("RANK", 0))
        self.next = 1  # number of a step after which the facts are written

    def watch(self) -> None:
        """See all that there is a question for."""
        self.training.watch()
        Batches(self.training).watch()
        self.collectives.watch()
        Restored(self.training).watch()
        Chance(self.training).watch()
        Outside(self.facts, self.folder).watch()
        spawns = sys.modules["torch.multiprocessing.spawn"]  # a function has its name
        wrap(spawns, "start_processes", self.spawned)
        torch.multiprocessing.start_processes = spawns.start_processes
        optimizers.register_optimizer_step_post_hook(
            torch.compiler.disable(self.after_step)
        )

    def write(self) -> None:
        """Leave word."""
        if os.getpid() != self.pid:
            return  # a fork that the script has made
        if dist.is_available() and dist.is_initialized():
            self.rank = dist.get_rank()
        self.collectives.look()
        self.training.look()
        part = self.folder / f"{self.rank}.part"
        part.write_text(as_json(self.facts))
        part.replace(self.folder / f"{self.rank}.json")

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has taken a step."""
        facts = self.training.of(optimizer)
        steps = len(facts.steps)
        tied = not self.facts.models or any(map(any, facts.within))
        enough = self.steps * (1 if tied else 5)  # one rank alone may have another one
        if self.steps and steps >= enough:
            self.leave()
        if steps >= self.next:
            self.write()
            self.next = steps + 1 if steps < OFTEN else int(steps * GROWTH)

    def leave(self) -> None:
        """Leave the script when the other ranks have come as far; go on if they do not.

        One rank alone may be the one that steps, and the others wait for its weights.
        """
        self.facts.left = True
        self.write()
        here = self.folder / f"{self.rank}.done"
        here.touch()
        until = time.monotonic() + PATIENCE
        joined = dist.is_available() and dist.is_initialized()
        world = (
            dist.get_world_size() if joined else int(os.environ.get("WORLD_SIZE", 1))
        )
        while time.monotonic() < until:
            if len([*self.folder.glob("*.done")]) == world:
                sys.exit(0)
            time.sleep(0.05)
        here.unlink()
        self.facts.left = False
        self.steps *= 5

    def spawned(
        self, original: Any, fn: Any, args: tuple = (), *rest: Any, **kw: Any
    ) -> Any:
        """The script starts ranks of its own: each of them gets a witness instead.

        One process starts them, as without torchrun; the others leave.
        """
        self.pid = -1  # no rank any more
        if os.environ.get("RANK", "0") != "0":
            sys.exit(0)
        for name in [n for n in os.environ if n.startswith(LAUNCHED)]:
            del os.environ[name]
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, path)))
        words = str(self.folder), self.steps, fn, *args
        return original(watched, words, *rest, **kw)


def watched(local: int, folder: str, steps: int, function: Callable, *args: Any) -> Any:
    """Be a rank that a script has spawned."""
    witness = Witness(Path(folder), steps)
    witness.rank, witness.facts.spawned = local, True
    witness.watch()
    try:
        return function(local, *args)
    except Exception:
        witness.facts.failed = True
        raise
    finally:
        witness.write()
