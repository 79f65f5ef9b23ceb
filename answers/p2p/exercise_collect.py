"""Hints for ddp_lab/p2p/exercise_collect.py, and an answer.

1. A buffer must have the size of the message that it receives. How can rank 0 learn
   that size before it calls recv?
2. Every other rank sends two messages: how many numbers it has, then the numbers.
   Between two ranks messages keep their order.
3. On rank 0, for each other rank in turn: receive one number into mine.new_empty(1),
   make a buffer of that length, and receive into it. Then torch.cat the pieces, your
   own first.
"""


def collect(mine, rank, world_size):
    if rank != 0:
        dist.send(mine.new_tensor([len(mine)]), dst=0)  # how many are to come
        dist.send(mine, dst=0)
        return None
    pieces = [mine]
    for other in range(1, world_size):
        length = mine.new_empty(1)
        dist.recv(length, src=other)
        pieces.append(mine.new_empty(length.item()))
        dist.recv(pieces[-1], src=other)  # between two ranks, messages keep their order
    return torch.cat(pieces)
