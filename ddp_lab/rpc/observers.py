"""Reinforcement learning by remote calls: observers play, one agent learns.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/observers.py

Written by notebooks/18_remote_calls.ipynb.
"""

import functools
import json
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

CELLS, START, LIMIT = 6, 2, 15  # a corridor with its exit at the right; most steps
ROUNDS, EPISODES, RATE = 10, 12, 0.2  # episodes of a round, of all observers together


class Agent:
    """Holds the policy; draws for each episode from its own random stream."""

    def __init__(self):
        self.logits = torch.zeros(CELLS, 2, requires_grad=True)  # of left and right
        self.streams = [torch.Generator().manual_seed(i) for i in range(EPISODES)]
        self.calls = 0

    def act(self, episode, cell):
        self.calls += 1
        chances = self.logits[cell].detach().softmax(0)  # of 0, left, and 1, right
        return torch.multinomial(chances, 1, generator=self.streams[episode]).item()

    def learn(self, paths):
        """REINFORCE: the actions of shorter episodes become likelier."""
        steps = torch.tensor([float(len(path)) for path in paths])
        logs = self.logits.log_softmax(1)  # (CELLS, 2)
        chosen = [logs[tuple(torch.tensor(path).T)].mean() for path in paths]
        loss = ((steps - steps.mean()) * torch.stack(chosen)).sum()
        (gradient,) = torch.autograd.grad(loss, self.logits)
        self.logits.data -= RATE * gradient

    def expected_steps(self):
        """The mean length of an episode, from all chances: nothing is played."""
        left, right = self.logits.detach().softmax(1).T
        move = torch.diag(right[:-1], 1) + torch.diag(left[1:], -1)  # (CELLS, CELLS)
        move[0, 0] = left[0]  # there is a wall at the left
        return sum(move.matrix_power(n)[START].sum().item() for n in range(LIMIT))


def walk(agent, episode):
    """Walk from START to the exit, or LIMIT steps; `agent` may be far away."""
    cell, path = START, []
    while cell < CELLS and len(path) < LIMIT:
        action = agent.act(episode, cell)
        path.append((cell, action))
        cell = max(cell + 2 * action - 1, 0)
    return path


def observe(rref, episodes):
    """Run by an observer: whenever it has to act, it calls the agent."""
    return [walk(rref.rpc_sync(), episode) for episode in episodes]


def play(rref, observers):
    """One round: so many workers walk at the same time; return all paths."""
    shares = [range(EPISODES)[i::observers] for i in range(observers)]
    calls = [
        rpc.rpc_async(f"worker{i}", observe, args=(rref, share))
        for i, share in enumerate(shares, 1)
    ]
    paths = [call.wait() for call in calls]
    return [paths[i % observers][i // observers] for i in range(EPISODES)]


def train(agent, play_round):
    """Play and learn in turn; return the expected steps before and after each round."""
    worth = [agent.expected_steps()]
    for _ in range(ROUNDS):
        agent.learn(play_round())
        worth.append(agent.expected_steps())
    return worth


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] is an observer", flush=True)
    one = Agent()  # the truth: agent and observer in one process
    expected = train(one, lambda: [walk(one, i) for i in range(EPISODES)])
    for observers in sorted({1, world_size - 1}):
        agent = Agent()  # worker 0 owns it, and hands out a reference
        worth = train(agent, functools.partial(play, rpc.RRef(agent), observers))
        text = f"{worth[0]:.2f} steps, then {worth[-1]:.2f}, by {agent.calls} calls"
        print(f"[rank 0] {observers} observer(s): {text}", flush=True)
        # Equal to the last bit, whichever observer was faster.
        assert worth == expected and worth[-1] < worth[0] / 2, (worth, expected)
    return {"worth": worth, "calls": agent.calls}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def workers(rpc_timeout=20, **options):
    """Join as worker0, worker1, ...; on one machine, TensorPipe listens on loopback."""
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
