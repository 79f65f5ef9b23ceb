"""Call one function of a cured program, each rank with its own arguments."""

import time

import torch
import torch.distributed as dist
from ranks import answer, give, inputs, process_group


def main() -> None:
    given = inputs()
    with process_group():
        program = answer(given["program"])
        arguments = dict(given["arguments"])
        for name in [name for name in given if name.startswith("tensor_")]:
            arguments[name.removeprefix("tensor_")] = torch.from_numpy(given[name])
        time.sleep(given["late"])  # not all ranks are equally fast
        results = getattr(program, given["call"])(**arguments)
        results = results if isinstance(results, tuple) else (results,)
        dist.barrier()  # who is late with a message finds everybody still there
        for name, result in zip(given["results"], results, strict=True):
            give(**{name: torch.as_tensor(result)})


if __name__ == "__main__":
    main()
