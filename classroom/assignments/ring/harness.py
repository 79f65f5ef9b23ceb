"""Call the student's all_reduce once, between all ranks; give what each one then holds.

The ranks are connected by a wire that carries messages, and no collective.
"""

import torch
from ranks import answer, give, inputs
from wire import wired


def main() -> None:
    given = inputs()
    with wired(given) as line:
        if line is None:
            return  # this was the machine
        x = torch.from_numpy(given.pop("x")).to(getattr(torch, given["dtype"]))
        result = answer("ring.py").all_reduce(x)
        same = result is None or result.data_ptr() == x.data_ptr()
        give(result=x if same else result, same=same)


if __name__ == "__main__":
    main()
