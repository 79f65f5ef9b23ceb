from bisect import bisect_left

import torch.distributed._functional_collectives as funcol


def median(mine):
    def total(count):
        return funcol.all_reduce(count, "sum", dist.group.WORLD).item()

    half = (total(torch.tensor(mine.numel())) + 1) // 2
    return bisect_left(range(TOP - 1), half, key=lambda top: total((mine <= top).sum()))
