"""Call the student's all_reduce once, between all ranks; give what each one then holds.

torchrun --nproc-per-node N ring.py RUN_FOLDER
"""

import torch
import torch.distributed as dist
from ranks import answer, give, inputs, process_group, say, say_calls


def main() -> None:
    given = inputs()
    say_calls()
    with process_group() as (_, _, device):
        if dist.get_backend() == "gloo":
            device = torch.device("cpu")
        program = answer("ring.py")
        dtype = getattr(torch, given["dtype"])
        if given["x"] is None:  # too many numbers to be sent around: made here
            x = torch.full(
                (given["length"],), float(given["value"]), dtype=dtype
            )  # (length,)
        else:
            x = torch.from_numpy(given["x"]).to(dtype)
        x = x.to(device)
        dist.barrier()
        say("begin")
        result = program.all_reduce(x)
        say("end")
        dist.barrier()  # who is late with a message finds everybody still there
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
