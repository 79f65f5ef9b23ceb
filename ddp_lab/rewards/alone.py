"""One process teaches a policy to sort three digits, by rewards alone.

    torchrun --standalone --nproc-per-node 1 ddp_lab/rewards/alone.py

Written by notebooks/25_generators_and_a_trainer.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, Config

CONFIG = Config(vocab=10, context=6, layers=2, heads=4, width=32)
DIGITS, PROMPTS, GROUP = 3, 12, 12  # of a prompt; prompts of a step; answers to each
CLIP = 0.2

STEPS = 100
RATE = 4e-3  # of learning


def draw(step, device):
    """Return the prompts of a step, and the noise that draws their answers."""
    generator = torch.Generator().manual_seed(step)
    prompts = torch.randint(10, (PROMPTS, DIGITS), generator=generator)
    noise = torch.empty(PROMPTS, GROUP, DIGITS, 10).exponential_(generator=generator)
    return prompts.to(device), -noise.log().to(device)


@torch.no_grad()
def generate(policy, prompts, noise):
    """Answer each prompt GROUP times; return each digit's log-probability as well."""
    rows, log_probs = prompts.repeat_interleave(GROUP, 0), []  # (answers, DIGITS)
    for place in range(DIGITS):
        log_p = policy(rows)[:, -1].log_softmax(-1)  # (answers, 10)
        # The largest sum of log-probability and noise: a draw, as multinomial makes.
        drawn = (log_p + noise[:, :, place].flatten(0, 1)).argmax(-1, keepdim=True)
        rows = torch.cat([rows, drawn], 1)
        log_probs.append(log_p.gather(1, drawn))
    return rows, torch.cat(log_probs, 1)  # (answers, 2 * DIGITS), (answers, DIGITS)


def reward(rows):
    """Return the share of digits in the right place, for each answer."""
    prompts, answers = rows.chunk(2, 1)
    return (answers == prompts.sort(1).values).float().mean(1)


def advantage(rewards):
    groups = rewards.view(-1, GROUP)
    centered = groups - groups.mean(1, keepdim=True)
    return (centered / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def learn(policy, optimizer, rows, old):
    """Step toward the better answers; return their mean reward, and the ratios."""
    rewards = reward(rows)
    log_p = policy(rows[:, :-1])[:, DIGITS - 1 :].log_softmax(-1)
    new = log_p.gather(2, rows[:, DIGITS:, None]).squeeze(2)  # (answers, DIGITS)
    ratio = (new - old).exp()  # 1 if the weights are those that wrote the answer
    weight = advantage(rewards)[:, None]
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    loss = -torch.min(ratio * weight, clipped * weight).mean()

    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return rewards.mean().item(), ratio.detach()


def make(device):
    torch.manual_seed(0)
    policy = GPT(CONFIG).to(device)
    return policy, torch.optim.AdamW(policy.parameters(), lr=RATE)


def check(step, ratio):
    """Refuse ratios that are not 1, where the weights are those that wrote."""
    if not (ratio - 1).abs().max() < 1e-3:
        told = f"ratios from {ratio.min():.3f} to {ratio.max():.3f}, expected 1"
        raise AssertionError(f"step {step}: {told}")


def mean(numbers):
    return sum(numbers) / len(numbers)


def main(rank, world_size, device):
    torch.set_num_threads(1)  # for matrices as small as these
    policy, optimizer = make(device)
    curve, generating, start = [], 0.0, time.process_time()
    for step in range(STEPS):
        begin = time.process_time()
        rows, old = generate(policy, *draw(step, device))
        generating += time.process_time() - begin
        reached, ratio = learn(policy, optimizer, rows, old)
        curve.append(reached)
        check(step, ratio)
    share = generating / (time.process_time() - start)
    first, last = mean(curve[:10]), mean(curve[-10:])
    print(f"[rank {rank}] mean reward {first:.1f}, at the end {last:.1f}", flush=True)
    if not last > 2 * first:
        raise AssertionError(f"from {first} to {last}: nothing was learned")
    return {"curve": curve, "share": share}


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
