"""Reinforcement learning by remote calls: observers balance poles, one agent learns.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/observers.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

POLES, STEPS, ROUNDS = 8, 16, 6  # STEPS: of each pole in a round

WIDTH, RATE, FADE = 128, 2.0, 0.7  # FADE: how much less a fall counts a step earlier


def push(angle, speed, action):
    """Push a pole to the left, 0, or right, 1, for 0.2 s; return angle and speed."""
    speed += 0.2 * (angle + 2 * action - 1)  # the more it leans, the faster it falls
    return angle + 0.2 * speed, speed


def balance(choose, number, seed):
    """Play a round with one pole; `choose` asks an agent, here or far away."""
    stream, states, actions, falls = torch.Generator().manual_seed(seed), [], [], [True]
    for _ in range(STEPS):
        if falls[-1]:  # at the beginning, too: another pole is stood up
            pole = (torch.rand(2, generator=stream) - 0.5).tolist()  # angle, speed
        states.append(pole)
        actions.append(choose({number: pole})[number])
        pole = push(*pole, actions[-1])
        falls.append(abs(pole[0]) > 1)
    return states, actions, falls[1:]


def observe(rref, number, seed):
    """Run by an observer: whenever it has to act, it calls the agent."""
    return balance(rref.rpc_sync().choose, number, seed)


class Agent:
    """Holds the policy, and a random stream for the actions of each pole."""

    def __init__(self, width=WIDTH):
        torch.manual_seed(0)
        layers = [nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
        self.policy = nn.Sequential(*layers, nn.Linear(width, 2)).double()
        self.optimizer = torch.optim.SGD(self.policy.parameters(), RATE)
        self.streams = [torch.Generator().manual_seed(n) for n in range(POLES)]
        self.passes, self.lock = 0, threading.Lock()  # calls come on several threads

    def choose(self, states):
        """One forward pass for all of {number: state}; return {number: action}."""
        with self.lock:
            self.passes += 1
        x = torch.tensor([*states.values()], dtype=torch.float64)  # (asked, 2)
        with torch.no_grad():
            chances = self.policy(x).softmax(1)
        pairs = zip(states, chances, strict=True)
        return {n: c.multinomial(1, generator=self.streams[n]).item() for n, c in pairs}

    def learn(self, paths):
        """Learn from a round; return how many poles fell in it."""
        parts = [torch.tensor(p, dtype=torch.float64) for p in zip(*paths, strict=True)]
        states, actions, falls = parts  # (POLES, STEPS), and the states (..., 2)
        steps = torch.arange(STEPS)
        fades = (FADE ** (steps[:, None] - steps)).tril().double()
        blame = falls @ fades  # (POLES, STEPS): for the falls that were still to come
        logs = self.policy(states).log_softmax(2)
        chosen = logs.gather(2, actions.long().unsqueeze(2)).squeeze(2)
        loss = (chosen * (blame - blame.mean()) / (blame.std() + 1e-9)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return int(falls.sum())


def play(function, rref, turn, observers):
    """A round by all observers at the same time; return a path for each pole."""
    given = [(rref, number, turn * POLES + number) for number in range(POLES)]
    names = [f"worker{1 + number % observers}" for number in range(POLES)]
    calls = map(rpc.rpc_async, names, [function] * POLES, given)
    return torch.futures.wait_all(list(calls))


def one_process():
    """The truth: agent and poles in one process; return the falls of each round."""
    one, falls = Agent(), []
    for turn in range(ROUNDS):
        given = [(number, turn * POLES + number) for number in range(POLES)]
        falls.append(one.learn([balance(one.choose, *each) for each in given]))
    return falls


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] is an observer", flush=True)
    agent, falls = Agent(), []  # worker 0 owns it, and hands out a reference
    for turn in range(ROUNDS):
        paths = play(observe, rpc.RRef(agent), turn, world_size - 1)
        falls.append(agent.learn(paths))
    print(f"[rank 0] falls by round: {falls}", flush=True)
    expected, steps = one_process(), POLES * STEPS * ROUNDS
    assert falls == expected and falls[-1] < falls[0] / 4, (falls, expected)
    assert agent.passes == steps, f"{agent.passes} passes, expected {steps}"
    return {"falls": falls, "passes": agent.passes}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def workers(**options):
    """Join as worker0, worker1, ... over TCP: shared memory keeps a core busy."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = {"rpc_timeout": 20, "_transports": ["uv"], **options}
    options = rpc.TensorPipeRpcBackendOptions(**options)
    rpc.init_rpc(
        f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options
    )
    try:
        yield rank, world_size
    except BaseException:
        # Wait for nobody, and not long for a call that is still busy in this process.
        leave = threading.Thread(target=rpc.shutdown, args=(False,), daemon=True)
        leave.start()
        leave.join(2)
        raise
    if rpc._is_current_rpc_agent_set():  # not if the lesson has left by itself
        store = rpc.api._get_current_rpc_agent().store
        rpc.shutdown()  # waits until all are here, and no worker waits for a call
        store.set(f"left {rank}", "")
        if rank == 0:  # it may host the store, which the others use to the very end
            store.wait([f"left {other}" for other in range(world_size)])


@record
def run():
    with workers() as (rank, world_size):
        if facts := main(rank, world_size):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
