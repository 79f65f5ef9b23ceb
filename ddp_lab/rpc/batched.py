"""The agent answers all observers by one pass of its policy, or each by its own.

    torchrun --standalone --nproc-per-node 4 ddp_lab/rpc/batched.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import functools
import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

POLES, STEPS, ROUNDS = 8, 16, 6  # STEPS: of each pole in a round

WIDTH, RATE, FADE = 128, 2.0, 0.7  # FADE: how much less a fall counts a step earlier

LARGE, PAIRS = 2048, 2  # the width of a large policy; rounds of it


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


class Desk:
    """Where questions wait until all observers have asked."""

    def __init__(self, agent):
        self.agent, self.lock = agent, threading.Lock()
        self.asked, self.answers = {}, torch.futures.Future()


@rpc.functions.async_execution
def choose_together(rref, states):
    """Run by the agent: return a promise at once; no thread waits until it is kept."""
    desk = rref.local_value()
    with desk.lock:
        promise = desk.answers  # the same for all of this step
        desk.asked |= states
        if len(desk.asked) == POLES:
            asked, desk.asked, desk.answers = desk.asked, {}, torch.futures.Future()
            promise.set_result(desk.agent.choose(asked))  # now all are answered
    return promise


def observe_together(rref, number, seed):
    call = functools.partial(rpc.rpc_sync, rref.owner(), choose_together)
    return balance(lambda states: call(args=(rref, states)), number, seed)


def compare(width, rounds, observers):
    """Play both ways in turn, so that a busy moment hits both; the small ones learn."""
    agents = Agent(width), Agent(width)
    ways = (observe, agents[0]), (observe_together, Desk(agents[1]))
    falls, speed = ([], []), ([], [])
    for turn in range(rounds):
        for i, (function, owned) in enumerate(ways):
            start = time.monotonic()
            paths = play(function, rpc.RRef(owned), turn, observers)
            speed[i].append(round(POLES * STEPS / (time.monotonic() - start)))
            falls[i].append(agents[i].learn(paths) if width == WIDTH else 0)
    passes, speed = [agent.passes for agent in agents], [*map(max, speed)]
    print(f"[rank 0] width {width}: {passes} passes, {falls[1]} falls", flush=True)
    return {"passes": passes, "falls": falls, "speed": speed}


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] is an observer", flush=True)
    expected, facts = one_process(), {}
    for width, rounds in {WIDTH: ROUNDS, LARGE: PAIRS}.items():
        facts[width] = found = compare(width, rounds, world_size - 1)
        passes = [rounds * POLES * STEPS, rounds * STEPS]
        assert found["passes"] == passes, f"{found['passes']}, expected {passes}"
    assert facts[WIDTH]["falls"] == (expected, expected), f"{facts}, not {expected}"
    return facts


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
