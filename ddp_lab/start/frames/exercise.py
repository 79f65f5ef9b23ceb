"""Exercise: share numbers among the ranks, then let every rank know their sum.

Once `add_up` is written, three ranks print:

    [rank 0] read 4 numbers, knows the sum ...
    [rank 1] read 4 numbers, knows the sum ...
    [rank 2] read 3 numbers, knows the sum ...
"""

import secrets

import torch
import torch.distributed as dist


def add_up(shelf):
    return None  # the cell's function stands here


class Shelf:
    """Numbers that appear when they are read; a rank may read once."""

    def __init__(self, length, known, device):
        self.length, self.known, self.device = length, known, device
        self.places, self.numbers = None, []

    def __len__(self):
        return self.length

    def read(self, places):
        if self.places is not None:
            raise AssertionError("this rank has read already")
        self.places = [range(self.length)[place] for place in places]
        # They appear only now: no rank can look at the numbers of another one.
        drawn = [secrets.randbelow(1000) for _ in self.places]
        self.numbers = self.places if self.known else drawn
        return torch.tensor(self.numbers, dtype=torch.int64, device=self.device)


def check_places(read, length):
    """Each place was read once, and the shares are equal, or differ by one."""
    if sorted(sum(read, [])) != list(range(length)):
        raise AssertionError(f"of {length} numbers the ranks read the places {read}")
    sizes = [len(places) for places in read]
    if max(sizes) > min(sizes) + 1:
        raise AssertionError(f"the ranks read {sizes} numbers: share them evenly")


def main(rank, world_size, device):
    # 11 numbers whose sum is known; at random, as many as rank 0 draws, and too few.
    drawn = secrets.randbelow(12)
    lengths = [11, (7 + drawn) * world_size + 1, world_size - 1]  # 1 is left over
    dist.broadcast_object_list(lengths, src=0)  # every rank now holds rank 0's lengths
    facts = {}
    for length in lengths:
        shelf = Shelf(length, not facts, device)
        total = add_up(shelf)
        mine = shelf.places or [], sum(shelf.numbers)
        answers = [None] * world_size
        # Every rank ends with the answers of all, so all come to one verdict.
        answer = (*mine, None if total is None else int(total))
        dist.all_gather_object(answers, answer)
        read, sums, totals = (list(column) for column in zip(*answers, strict=True))
        if totals == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        check_places(read, length)
        if totals != [sum(sums)] * world_size:
            raise AssertionError(f"the sums {totals}, expected {sum(sums)} everywhere")
        if not facts:
            knows = f"read {len(read[rank])} numbers, knows the sum {totals[rank]}"
            print(f"[rank {rank}] {knows}", flush=True)
            facts = {"solved": True, "read": read[rank], "total": totals[rank]}
    return facts
