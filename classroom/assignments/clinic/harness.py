"""Call one function of a cured program, each rank with its own arguments."""

from typing import Any

import torch
import torch.distributed as dist
from ranks import RANK, answer, ask, give, inputs, process_group
from torch.overrides import TorchFunctionMode
from wire import Line, wired

GLANCES = "__get__", "__len__", "dim", "numel", "size"  # at no number of a tensor


class Look(TorchFunctionMode):
    """Tells the judge of the first thing that is done to a tensor once a call is out.

    Args:
        line: over which calls go.
    """

    def __init__(self, line: Line):
        super().__init__()
        self.line, self.before, self.told = line, line.made, False

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        after = self.line.made > self.before  # for some calls come this way themselves
        result = function(*args, **(kwargs or {}))
        glance = getattr(function, "__name__", "") in GLANCES
        if after and not glance and not self.told:
            self.told = True
            self.line.order("look")  # behind the call, on the same line
            ask()
        return result


def call(given: dict, line: Line | None = None) -> None:
    """Call the function; over a line it is watched, and all but rank 0 come late."""
    function = getattr(answer(given["program"]), given["call"])
    arguments = dict(given["arguments"])
    for name in [name for name in given if name.startswith("tensor_")]:
        arguments[name.removeprefix("tensor_")] = torch.from_numpy(given[name])
    if line and RANK == 0:
        with Look(line):
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
