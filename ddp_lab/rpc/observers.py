"""Reinforcement learning by remote calls: observers play, one agent decides and learns.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/observers.py

Worker 0 is the agent; every other worker observes an environment of its own:

    [rank 0] ... observer(s): ... steps to the exit at first, ... after ... calls

Written by notebooks/12_remote_calls.ipynb.
"""

import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

CELLS, START, LIMIT = 6, 2, 15  # a corridor with its exit at the right; most steps
ROUNDS, EPISODES, RATE = 10, 12, 0.2  # episodes of a round, of all observers together


class Agent:
    """Holds the policy; draws for each episode from a random stream of its own."""

    def __init__(self):
        self.logits = torch.zeros(CELLS, 2, requires_grad=True)  # of left and right
        self.streams = [torch.Generator().manual_seed(i) for i in range(EPISODES)]
        self.calls = 0

    def act(self, episode, cell):
        """Say 0 for left or 1 for right."""
        self.calls += 1
        chances = self.logits[cell].detach().softmax(0)  # (2,)
        return torch.multinomial(chances, 1, generator=self.streams[episode]).item()

    def learn(self, episodes):
        """REINFORCE: the actions of shorter episodes become likelier."""
        steps = torch.tensor([float(len(episode)) for episode in episodes])
        logs = self.logits.log_softmax(1)  # (CELLS, 2)
        for better, episode in zip(steps.mean() - steps, episodes, strict=True):
            cells, actions = torch.tensor(episode).T
            (better * logs[cells, actions].mean()).backward(retain_graph=True)
        with torch.no_grad():
            self.logits += RATE * self.logits.grad
        self.logits.grad = None


class Observer:
    """Walks from START to the exit, or LIMIT steps; `agent` may be far away."""

    def __init__(self, agent):
        self.agent = agent

    def play(self, episodes):
        return [list(self.walk(episode)) for episode in episodes]

    def walk(self, episode):
        cell = START
        for _ in range(LIMIT):
            action = self.agent.act(episode, cell)
            yield cell, action
            cell = max(cell + 2 * action - 1, 0)  # there is a wall at the left
            if cell == CELLS:
                return


def observe(agent):
    """Run by an observer's worker: whenever it has to act, it calls the agent."""
    return Observer(agent.rpc_sync())


def train(agent, play):
    """Play and learn in turn; return the expected steps before and after each round."""
    worth = [expected_steps(agent.logits)]
    for _ in range(ROUNDS):
        agent.learn(play())
        worth.append(expected_steps(agent.logits))
    return worth


def expected_steps(logits):
    """The mean length of an episode, from the chances of all: nothing is played."""
    right = logits.detach().softmax(1)[:, 1]
    chance, steps = torch.eye(CELLS)[START], 0.0  # (CELLS,)
    for _ in range(LIMIT):
        steps += chance.sum().item()  # who is still inside makes one step more
        left, chance = chance * (1 - right), torch.roll(chance * right, 1)
        chance[0] = left[0]  # not from the exit, but from the wall
        chance[:-1] += left[1:]
    return steps


def remote_play(agent, observers):
    """Let `observers` workers play at the same time; return what starts a round."""
    shares = [range(EPISODES)[i::observers] for i in range(observers)]
    args = (rpc.RRef(agent),)  # worker 0 owns it, and hands out references
    them = [rpc.remote(f"worker{i + 1}", observe, args) for i in range(observers)]

    def play():
        asked = zip(them, shares, strict=True)
        playing = [one.rpc_async().play(share) for one, share in asked]
        played = [future.wait() for future in playing]
        return [played[i % observers][i // observers] for i in range(EPISODES)]

    return play


@record
def main():
    with workers() as (rank, world_size):
        if rank != 0:
            return print(f"[rank {rank}] is an observer", flush=True)
        alone = Agent()  # the truth: agent and observer in one process
        expected = train(alone, lambda: Observer(alone).play(range(EPISODES)))
        if expected[-1] > 0.6 * expected[0]:
            raise AssertionError(f"nothing is learned: {expected}")
        facts = {"worth": expected, "seconds": {}}
        for observers in sorted({1, world_size - 1}):
            agent, start = Agent(), time.monotonic()
            worth = train(agent, remote_play(agent, observers))
            facts["seconds"][observers] = time.monotonic() - start
            told = f"{worth[0]:.2f} steps to the exit at first, {worth[-1]:.2f} after"
            text = f"{observers} observer(s): {told} {agent.calls} calls"
            print(f"[rank 0] {text}", flush=True)
            if worth != expected:  # to the last bit, whoever was faster
                raise AssertionError(f"steps {worth}, expected {expected}")
        print(json.dumps(facts | {"calls": agent.calls}), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def workers(rpc_timeout=20, **options):
    """Join as worker0, worker1, ...; on one machine, nobody outside can reach us."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, **options)
    rpc.init_rpc(
        f"worker{rank}",
        rank=rank,
        world_size=world_size,
        rpc_backend_options=options,
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
        rpc.shutdown()  # waits until all are here, and nobody waits for a call


if __name__ == "__main__":
    main()
