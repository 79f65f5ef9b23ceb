"""Each rank has an early piece and a late one: all compute as many tiles.

    torchrun --standalone --nproc-per-node 2 ddp_lab/long/zigzag.py

Written by notebooks/20_long_sequences_and_experts.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

BATCH, HEADS, TIME, SIZE = 2, 4, 96, 8


class Rows:
    """Attention of some queries, to keys and values that come tile by tile."""

    def __init__(self, q):
        self.q, self.mixed = q, torch.zeros_like(q)
        self.total = torch.zeros_like(q[..., :1])  # of the powers so far
        self.largest = torch.full_like(self.total, float("-inf"))

    def see(self, k, v, diagonal):
        """Add a tile; on the diagonal, a query sees no later key."""
        scores = self.q @ k.mT / SIZE**0.5  # (batch, heads, queries, keys)
        if diagonal:
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        largest = torch.maximum(self.largest, scores.amax(-1, keepdim=True))
        powers = (scores - largest).exp()
        shrink = (self.largest - largest).exp()  # earlier tiles had a smaller largest
        self.total = self.total * shrink + powers.sum(-1, keepdim=True)
        self.mixed = self.mixed * shrink + powers @ v
        self.largest = largest

    def out(self):
        return self.mixed / self.total


def pieces_of(rank, n):
    """The sequence is cut into 2 n pieces: a rank has one from each end."""
    return [rank, 2 * n - 1 - rank]


def pass_on(kv):
    """Begin to send to the right, and to receive from the left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    send_buf, recv_buf = kv.contiguous(), torch.empty_like(kv)
    # Each rank will hold what its left neighbor held.
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, send_buf, (rank + 1) % n),
            dist.P2POp(dist.irecv, recv_buf, (rank - 1) % n),
        ]
    )
    return recv_buf, works, send_buf.nbytes


def ring_attention(q, k, v):
    """Return the attention of this rank's queries, tiles by turn, and bytes sent."""
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = [Rows(part) for part in q.chunk(2, dim=2)]
    kv, tiles, sent = torch.stack([k, v]), [0] * n, 0
    for turn in range(n):
        if turn < n - 1:  # on their way while this rank computes
            coming, works, size = pass_on(kv)
            sent += size
        owner = (rank - turn) % n
        for rows, piece in zip(parts, pieces_of(rank, n), strict=True):
            for other, (k, v) in zip(pieces_of(owner, n), kv.chunk(2, 3), strict=True):
                if other <= piece:  # all keys of a later piece are hidden
                    rows.see(k, v, diagonal=other == piece)
                    tiles[turn] += 1
        if turn < n - 1:
            for work in works:
                work.wait()
            kv = coming
    return torch.cat([rows.out() for rows in parts], 2), tiles, sent


def own(whole):
    """This rank's positions of a tensor (batch, heads, time, size)."""
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = whole.chunk(2 * n, dim=2)
    return torch.cat([pieces[piece] for piece in pieces_of(rank, n)], 2)


def main(rank, world_size, device):
    if TIME % (2 * world_size):
        raise SystemExit(f"{world_size} ranks cannot cut {TIME} positions: try 2 to 4")
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)  # the same numbers on every rank
    q, k, v = torch.randn(3, BATCH, HEADS, TIME, SIZE).to(device)
    q = q * 3  # some large scores, as trained models have
    expected = own(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    out, tiles, sent = ring_attention(own(q), own(k), own(v))
    off = (out - expected).abs().amax((0, 1, 3))  # by position
    right = (off < 1e-5).sum().item()
    told = f"pieces {pieces_of(rank, world_size)}: tiles by turn {tiles}"
    told += f", {right} of {len(off)} positions right"
    print(f"[rank {rank}] {told}", flush=True)
    if right < len(off):
        raise AssertionError(f"wrong: {told}")
    pieces, size = pieces_of(rank, world_size), own(k).nbytes
    return {"pieces": pieces, "tiles": tiles, "sent": sent, "own": size}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
