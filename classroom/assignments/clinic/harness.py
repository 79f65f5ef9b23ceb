"""Call one function of a cured program, each rank with its own arguments."""

from typing import Any

import torch
import torch.distributed as dist
from ranks import answer, ask, give, inputs, process_group, say, say_calls
from torch.overrides import TorchFunctionMode


class Look(TorchFunctionMode):
    """Tells the judge of the first thing that is done to a tensor once a call is out.

    Args:
        called: what is appended to with each call of the communication library.
    """

    def __init__(self, called: list[int]):
        super().__init__()
        self.called, self.told = called, False

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        after = bool(self.called)  # for some calls come this way themselves
        result = function(*args, **(kwargs or {}))
        if after and not self.told:
            self.told = True
            ask()
        return result


def call(function: Any, arguments: dict, watched: bool) -> Any:
    """Call the function; if it is watched, all ranks but the first come late."""
    if not watched:
        return function(**arguments)
    called = say_calls()
    say("begin")
    if dist.get_rank() == 0:
        with Look(called):
            results = function(**arguments)
    else:
        ask()
        results = function(**arguments)
    say("end")
    return results


def main() -> None:
    given = inputs()
    with process_group():
        program = answer(given["program"])
        arguments = dict(given["arguments"])
        for name in [name for name in given if name.startswith("tensor_")]:
            arguments[name.removeprefix("tensor_")] = torch.from_numpy(given[name])
        results = call(getattr(program, given["call"]), arguments, given["watched"])
        results = results if isinstance(results, tuple) else (results,)
        dist.barrier()  # who is late with a message finds everybody still there
        for name, result in zip(given["results"], results, strict=True):
            give(**{name: torch.as_tensor(result)})


if __name__ == "__main__":
    main()
