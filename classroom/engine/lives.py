"""What the harnesses share whose ranks are killed: deaths, a push, a look at a folder.

A program that has been imported can no longer change what is used here.
"""

import resource
import signal
import sys
from collections.abc import Callable
from hashlib import sha256
from os import getpid, kill, replace
from pathlib import Path

import numpy as np
import torch


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
    """End this process when it next renames a file, before or after the deed.

    By whichever name a program calls it: Python itself tells of each rename.
    """
    renaming = False

    def hear(event: str, args: tuple) -> None:
        nonlocal renaming
        if event != "os.rename" or renaming:
            return
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


def add(optimizer: torch.optim.Optimizer, push: np.ndarray) -> None:
    """Add `push`, (parameters,), to the weights."""
    rest = torch.from_numpy(push)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            mine, rest = rest.split([parameter.numel(), len(rest) - parameter.numel()])
            parameter.data += mine.view_as(parameter)
