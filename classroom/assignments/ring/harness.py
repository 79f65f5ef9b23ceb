"""Call the student's all_reduce once, between all ranks; give what each one then holds.

The ranks are connected by a wire that carries messages, and no collective.
"""

import torch
from ranks import answer, give, inputs
from wire import wired


def main() -> None:
    given = inputs()
    with wired(given, calls=[]) as line:
        if line is None:
            return  # this was the machine
        program = answer("ring.py")
        dtype = getattr(torch, given["dtype"])
        if given["x"] is None:  # too many numbers to be sent around: made here
            value = float(given["value"])
            x = torch.full((given["length"],), value, dtype=dtype)  # (length,)
        else:
            x = torch.from_numpy(given["x"]).to(dtype)
        result = program.all_reduce(x)
        same = result is None or result is x
        give(same=same)
        x = x if same else result
        if given["x"] is None:
            give(length=x.numel())
            if x.numel():
                low, high = x.aminmax()
                give(lowest=low.item(), highest=high.item())
        else:
            give(result=x)


if __name__ == "__main__":
    main()
