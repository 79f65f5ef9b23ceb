"""Positions for heads: a GPT learns from a cut sequence what the uncut one does.

    torchrun --standalone --nproc-per-node 2 ddp_lab/long/ulysses.py

    [rank 0] positions 0 to ... of 24: loss ..., 44 gradients as uncut

Written by notebooks/20_long_sequences_and_experts.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, Attention, Config, batch, loss_of

CONFIG, TIME = Config(), 24
HEADS, POSITIONS = 1, 2  # dimensions of (batch, heads, time, size)
sent = []  # bytes that left this rank, by call


def exchange(x, cut, join):
    """Cut x in n along one dimension; join what comes along the other."""
    send_buf = torch.stack(x.chunk(dist.get_world_size(), cut))
    recv_buf = torch.empty_like(send_buf)
    # Rank r ends up with part r of every rank, in the order of ranks.
    dist.all_to_all_single(recv_buf, send_buf)
    sent.append(send_buf[1:].nbytes)  # a rank's own part stays
    return torch.cat(list(recv_buf), join)


class Exchange(torch.autograd.Function):
    """Its backward is the exchange the other way around."""

    @staticmethod
    def forward(ctx, x, cut, join):
        ctx.way = join, cut
        return exchange(x, cut, join)

    @staticmethod
    def backward(ctx, grad):
        return exchange(grad, *ctx.way), None, None


class UlyssesAttention(Attention):
    """Each rank has its positions of all heads; then its heads, of all positions."""

    def forward(self, x):  # (batch, time / n, width)
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )  # (batch, heads, time / n, head_size)
        q, k, v = (Exchange.apply(part, HEADS, POSITIONS) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = Exchange.apply(y, POSITIONS, HEADS)  # (batch, heads, time / n, head_size)
        return self.out(y.transpose(1, 2).flatten(-2))


def spread(net):
    """Let a GPT read this rank's positions only, and attend to those of all."""
    for block in net.blocks:
        attention = UlyssesAttention(CONFIG).to(block.attention.out.weight)
        attention.load_state_dict(block.attention.state_dict())
        block.attention = attention
    net.positions.register_forward_pre_hook(
        lambda _, at: at[0] + dist.get_rank() * len(at[0])  # where its positions begin
    )


def main(rank, world_size, device):
    if CONFIG.heads % world_size or TIME % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 heads: try 2, 3 or 4")
    # Ranks that share a GPU: not all of gloo's calls take what is in its memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)  # the same weights on every rank
    expected = GPT(CONFIG).double().to(device)
    spread(net := copy.deepcopy(expected))
    tokens, targets = (rows.to(device) for rows in batch(0, time=TIME))
    (right := loss_of(expected(tokens), targets)).backward()
    own = [rows.chunk(world_size, 1)[rank] for rows in (tokens, targets)]
    loss = loss_of(net(own[0]), own[1]) / world_size  # a part of the mean over all
    forward = len(sent)
    loss.backward()
    dist.all_reduce(whole := loss.detach().clone())  # every rank now holds the mean
    wrong = [] if torch.allclose(whole, right, rtol=0, atol=1e-12) else ["loss"]
    pairs = zip(net.named_parameters(), expected.parameters(), strict=True)
    for (name, p), e in pairs:
        dist.all_reduce(p.grad)  # the sum over all positions
        if not torch.allclose(p.grad, e.grad, rtol=0, atol=1e-12):
            wrong.append(name)
    if wrong:
        raise AssertionError(f"these differ: {', '.join(wrong)}")
    first, size = rank * TIME // world_size, own[0].numel() * CONFIG.width * 8
    told = f"positions {first} to {first + TIME // world_size - 1} of {TIME}"
    print(f"[rank {rank}] {told}: loss {whole:.4f}, 44 gradients as uncut", flush=True)
    return {"forward": sent[:forward], "backward": sent[forward:], "own": size}


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
