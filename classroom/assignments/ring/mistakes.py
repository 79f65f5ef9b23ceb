"""What students get wrong in Ring."""

from classroom.engine.assignment import Mistake

WHOLE_VECTORS = """    total, send_buf = x.clone(), x.clone()
    for _ in range(world_size - 1):
        recv_buf = torch.empty_like(x)
        exchange(send_buf, recv_buf)
        total += recv_buf
        send_buf = recv_buf
    x.copy_(total)
"""
COLLECTIVE = "    dist.all_reduce(x)\n"
MISTAKES = [
    Mistake(
        "rest dropped",
        "any_length",
        [
            (
                "[length * i // parts for i in range(parts + 1)]",
                "[length // parts * i for i in range(parts + 1)]",
            )
        ],
    ),
    Mistake(
        "buffer of float32",
        "any_dtype",
        [("torch.empty_like(mine)", "torch.empty(mine.shape)")],
    ),
    Mistake(
        "new tensor",
        "in_place",
        [
            (
                "    world_size = dist.get_world_size()\n    b = bounds",
                "    x, world_size = x.clone(), dist.get_world_size()\n    b = bounds",
            ),
            ("    all_gather(chunks)\n", "    all_gather(chunks)\n    return x\n"),
        ],
    ),
    Mistake(
        "a collective",
        "messages",
        [("    reduce_scatter(chunks)\n    all_gather(chunks)\n", COLLECTIVE)],
        "fail: rank 0: RuntimeError: all_reduce is not allowed here",
        also=(
            *("right", "any_length", "any_dtype", "in_place"),
            *("bytes_sent", "no_deadlock"),
        ),
    ),
    Mistake(
        "whole vectors",
        "bytes_sent",
        [("    reduce_scatter(chunks)\n    all_gather(chunks)\n", WHOLE_VECTORS)],
        also=("no_deadlock",),
    ),
    Mistake(
        "send first if it is much",
        "no_deadlock",
        [
            (
                "    works = [",
                "    if send_buf.numel() > 5_000_000:\n"
                "        dist.send(send_buf, dst=right)\n"
                "        dist.recv(recv_buf, src=left)\n"
                "        return\n"
                "    works = [",
            )
        ],
    ),
]
