"""Call the student's all_reduce once, between all ranks; give what each one then holds.
Or only ask for the bounds of chunks.

The ranks are connected by a wire that carries messages, and no collective.
"""

import torch
from ranks import answer, give, inputs
from wire import wired


def main() -> None:
    given = inputs()
    if "questions" in given:
        bounds = answer("ring.py").bounds
        return give(bounds=[[int(b) for b in bounds(*q)] for q in given["questions"]])
    with wired(given) as line:
        if line is None:
            return  # this was the machine
        x = torch.from_numpy(given.pop("x")).to(getattr(torch, given["dtype"]))
        place = x.data_ptr()
        result = answer("ring.py").all_reduce(x)
        result = x if result is None else result
        same = x.data_ptr() == result.data_ptr() == place
        waited = all(work.asked for work in line.lazy)
        result = x if same else result
        give(result=result, same=same, waited=waited, intact=line.intact)


if __name__ == "__main__":
    main()
