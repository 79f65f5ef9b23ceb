"""Play a script of pushes and leaves; say after each who was answered, and with what.

Rank 0 keeps the student's Server, the others are trainers and push by remote calls.
One thing happens at a time, so a script has one right course.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from ranks import answer, give, inputs, process_group
from torch.distributed import rpc

ANSWER_WITHIN = 15.0  # seconds until a call is given up
QUIET = 0.05  # seconds for a server that answers from a thread of its own


class Trainer:
    """What a trainer's process holds: weights, and a push that is under way."""

    def __init__(self, rank: int, given: dict):
        self.rank, self.target = rank, torch.from_numpy(given["target"])
        self.version, self.weights = 0, torch.from_numpy(given["weights"])
        self.pending: torch.futures.Future | None = None


trainer: Trainer
server: Any = None
futures: dict[int, torch.futures.Future] = {}  # of pushes that wait for an answer
raised: list[BaseException] = []
arrived = threading.Semaphore(0)


@rpc.functions.async_execution
def push(rank: int, version: int, gradient: torch.Tensor) -> torch.futures.Future:
    """Runs on rank 0, by a trainer's call."""
    try:
        futures[rank] = server.push(rank, version, gradient)
        return futures[rank]
    except BaseException as error:
        raised.append(error)
        raise
    finally:
        arrived.release()


def begin() -> None:
    """Runs on a trainer: compute a gradient, and let it go."""
    gradient = trainer.weights - trainer.target
    arguments = trainer.rank, trainer.version, gradient
    trainer.pending = rpc.rpc_async("worker0", push, arguments)


def take() -> tuple[int, torch.Tensor]:
    """Runs on a trainer: wait for the answer, and go on with it."""
    assert trainer.pending is not None
    trainer.version, trainer.weights = trainer.pending.wait()
    return trainer.version, trainer.weights


def play(script: list) -> None:
    """Runs on rank 0: play the script, as far as the server lets it go on."""
    course: list[list[int] | None] = []
    told, kept = [], []
    for what, rank in script:
        if rank in futures:
            break  # by the script it should have been answered
        if what == "leave":
            server.leave(rank)
        else:
            rpc.rpc_sync(f"worker{rank}", begin)
            if not arrived.acquire(timeout=ANSWER_WITHIN):
                raise TimeoutError(f"push() of trainer {rank} does not return")
            if raised:
                raise raised[0]
        time.sleep(QUIET)
        answered = sorted(r for r, future in futures.items() if future.done())
        for r in answered:
            kept.append(futures.pop(r).value()[1])
            version, weights = rpc.rpc_sync(f"worker{r}", take)
            told.append(weights)
            course.append([len(told) - 1, r, int(version)])
        course.append(None)  # the end of this event
    give(course=course, told=torch.stack(told) if told else torch.zeros(0))
    give(after=torch.stack(kept) if kept else torch.zeros(0))
    give(ages=[[int(n) for n in pair] for pair in server.ages])
    for future in futures.values():  # whom the script leaves waiting, in RPC's shutdown
        with suppress(RuntimeError):  # it has been answered meanwhile
            future.set_result((0, torch.zeros(0)))


def storm(program: Any, given: dict) -> None:
    """Runs on rank 0: push from many threads of this process, with all speed."""
    sys.setswitchinterval(1e-6)
    threads, pushes = given["threads"], given["pushes"]
    brought = torch.from_numpy(given["brought"]).double()  # by thread, a gradient
    weights = torch.zeros_like(brought[0])
    mode = given["mode"], given["bound"]
    crowded = program.Server(weights, 1.0, list(range(threads)), *mode)
    versions: list[int] = []

    def run(rank: int) -> None:
        try:
            for _ in range(pushes):
                future = crowded.push(rank, 0, brought[rank].clone())
                end = time.monotonic() + ANSWER_WITHIN
                while not future.done() and not raised:
                    if time.monotonic() > end:
                        raise TimeoutError(f"a push of trainer {rank} has no answer")
                    time.sleep(1e-5)
                versions.append(int(future.wait()[0]))
        except BaseException as error:
            raised.append(error)

    all_threads = [threading.Thread(target=run, args=(r,)) for r in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    if raised:
        raise raised[0]
    give(versions=sorted(versions), weights=crowded.weights)


@contextmanager
def workers(rank: int, world_size: int) -> Iterator[None]:
    """Join as worker0, worker1, ...; leave at once if something is wrong."""
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    options = rpc.TensorPipeRpcBackendOptions(
        rpc_timeout=ANSWER_WITHIN, _transports=["uv"], _channels=["basic"]
    )
    name = f"worker{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    try:
        yield
    except BaseException:
        leave = threading.Thread(target=rpc.shutdown, args=(False,), daemon=True)
        leave.start()
        leave.join(2)
        raise
    try:
        rpc.shutdown()
    except RuntimeError:
        time.sleep(
            ANSWER_WITHIN
        )  # a rank has left early: let it be the one that says why
        raise


def main() -> None:
    global server, trainer
    given = inputs()
    with process_group() as (rank, world_size, _):
        program = answer("server.py")
        trainer = Trainer(rank, given)
        with workers(rank, world_size):
            if rank == 0 and given["threads"]:
                storm(program, given)
            elif rank == 0:
                weights = torch.from_numpy(given["weights"].copy())
                trainers = list(range(1, world_size))
                settings = weights, given["lr"], trainers, given["mode"], given["bound"]
                server = program.Server(*settings)
                play(given["script"])
                give(brought=weights)  # what Server was made with
        give(done=True)


if __name__ == "__main__":
    main()
