"""Call one function of a cured program, each rank with its own arguments."""

import threading
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from ranks import RANK, answer, ask, give, inputs, process_group
from torch.overrides import TorchFunctionMode
from wire import Line, wired

GLANCES = "__get__", "__len__", "dim", "is_complex", "numel", "size"  # at no number
THREAD = 5.0  # seconds that a thread may take to make its call


class Look(TorchFunctionMode):
    """Tells the judge when first, once a call is out, all numbers are looked at.

    Args:
        line: over which calls go.
        count: how many numbers there are.
    """

    def __init__(self, line: Line, count: int):
        super().__init__()
        self.line, self.before, self.count = line, line.made, count
        self.told, self.threads = False, threading.active_count()

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        sees = getattr(function, "__name__", "") not in GLANCES and not self.told
        given = [*args, *(kwargs or {}).values()]
        tensors = [thing for thing in given if isinstance(thing, torch.Tensor)]
        sees &= any(tensor.numel() >= self.count for tensor in tensors)
        end = time.monotonic() + THREAD
        while sees and not self.out() and threading.active_count() > self.threads:
            if time.monotonic() > end:
                break
            time.sleep(0.01)  # its thread is about to make the call
        sees, made = sees and self.out(), self.line.made
        result = function(*args, **(kwargs or {}))
        if sees and made == self.line.made:  # for calls come this way themselves
            self.told = True
            self.line.order("look")  # behind the call, on the same line
            ask()
        return result

    def out(self) -> bool:
        return self.line.made > self.before


def call(given: dict, line: Line | None = None) -> None:
    """Call the function; over a line it is watched, and all but rank 0 come late."""
    function = getattr(answer(given["program"]), given["call"])
    arguments = {name: given[name] for name in given["takes"]}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            arguments[name] = torch.from_numpy(value)
    if line and RANK == 0:
        with Look(line, len(arguments["x"])):
            results = function(**arguments)
    else:
        if line:
            ask()
        results = function(**arguments)
    results = results if isinstance(results, tuple) else (results,)
    dist.barrier()  # who is late with a message finds everybody still there
    for name, result in zip(given["results"], results, strict=True):
        give(**{name: torch.as_tensor(result)})


def main() -> None:
    given = inputs()
    if "machine" not in given:
        with process_group():
            return call(given)
    with wired(given) as line:
        if line:
            call(given, line)


if __name__ == "__main__":
    main()
