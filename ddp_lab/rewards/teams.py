"""Half of the ranks generate, the others train, and both do what one process does.

    torchrun --standalone --nproc-per-node 4 ddp_lab/rewards/teams.py

Written by notebooks/25_generators_and_a_trainer.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ddp_lab.gpt import GPT, Config

CONFIG = Config(vocab=10, context=6, layers=2, heads=4, width=32)
DIGITS, PROMPTS, GROUP = 3, 12, 12  # of a prompt; prompts of a step; answers to each
CLIP = 0.2

STEPS = 10
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


def answer(teams, rank, policy, step, device):
    """Return this generator's groups: (prompts, GROUP, 3 * DIGITS)."""
    whole = draw(step, device)
    mine = (each.tensor_split(len(teams.generators))[rank] for each in whole)
    return torch.cat(generate(policy, *mine), 1).unflatten(0, (-1, GROUP))


class Teams:
    """Which ranks generate, which train, and the groups in which they talk."""

    def __init__(self, rank, world_size):
        half = world_size // 2
        self.generators, self.trainers = [*range(half)], [*range(half, world_size)]
        self.generates, self.refreshed = rank < half, [*range(half + 1)]
        if any(PROMPTS % len(team) for team in (self.generators, self.trainers)):
            told = f"{world_size} ranks cannot share {PROMPTS} prompts equally"
            raise SystemExit(told)
        # All ranks make both groups, even those that they are not in.
        self.train_group = dist.new_group(self.trainers)
        self.refresh_group = dist.new_group(self.refreshed)
        self.received = {"answers": 0, "weights": 0}  # bytes


def hand_over(teams, rank, packed, device):
    """Each group of answers goes to the trainer that learns from it."""
    mine, arrived = iter(packed), []
    for prompt in range(PROMPTS):
        source = teams.generators[prompt * len(teams.generators) // PROMPTS]
        target = teams.trainers[prompt * len(teams.trainers) // PROMPTS]
        if rank == source:
            dist.send(next(mine), dst=target)
        elif rank == target:
            arrived.append(torch.empty(GROUP, 3 * DIGITS, device=device))
            # This trainer now holds one more group: rows, and log-probabilities.
            dist.recv(arrived[-1], src=source)
            teams.received["answers"] += arrived[-1].nbytes
    return torch.cat(arrived) if arrived else None


def refresh(teams, rank, policy):
    """Give every generator the weights of the first trainer."""
    if rank not in teams.refreshed:
        return
    weights = parameters_to_vector(policy.parameters()).detach()
    # Every generator now holds the weights of the first trainer.
    dist.broadcast(weights, src=teams.trainers[0], group=teams.refresh_group)
    if teams.generates:
        vector_to_parameters(weights, policy.parameters())
        teams.received["weights"] += weights.nbytes


def train(teams, rank, device):
    """Return the policy after all steps."""
    policy, optimizer = make(device)
    model = policy if teams.generates else DDP(policy, process_group=teams.train_group)
    for step in range(STEPS):
        packed = answer(teams, rank, policy, step, device) if teams.generates else []
        arrived = hand_over(teams, rank, packed, device)
        if not teams.generates:
            rows, old = arrived.split([2 * DIGITS, DIGITS], 1)
            _, ratio = learn(model, optimizer, rows.long(), old)
            check(step, ratio)
        refresh(teams, rank, policy)
    return policy


def alone(device):
    """Return the policy that one process has after the same steps."""
    policy, optimizer = make(device)
    for step in range(STEPS):
        learn(policy, optimizer, *generate(policy, *draw(step, device)))
    return policy


def compare(policy, expected):
    """Refuse other weights than those of one process."""
    weights = zip(policy.named_parameters(), expected.parameters(), strict=True)
    for (name, weight), right in weights:
        same = torch.allclose(weight, right, rtol=0, atol=1e-4)  # a step is 4e-3 long
        assert same, f"{name} is not that of one process"


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    teams = Teams(rank, world_size)
    policy = train(teams, rank, device)
    compare(policy, alone(device))
    does = "generates" if teams.generates else "trains"
    print(f"[rank {rank}] {does}, and has the weights of one process", flush=True)
    return {"generates": teams.generates, **teams.received}


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
