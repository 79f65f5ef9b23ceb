"""Exercise: a launcher. Start ranks, tell them who they are, and let none outlive you.

    python ddp_lab/nodes/exercise_launcher.py --nproc-per-node 2

Fill in launch(). It is tried on ranks that fail, that are deaf, and on signals:

    [rank 0] not yet

Written by notebooks/22_many_machines.ipynb.
"""

import argparse
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

GRACE, PATIENCE, NOT_YET = 1.0, 10.0, 77  # seconds, seconds, an exit code


def launch(command, count):
    """Run `command`, a list of words, as `count` ranks; return how that ended.

    Each finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
    in its environment. Ask the system for a free port, at each launch anew.

    - All exit with 0: return 0.
    - One fails: SIGTERM to the others, SIGKILL to those that still run GRACE seconds
      later; return the exit code of the first to fail, or 1 if a signal killed it.
    - SIGTERM or SIGINT comes to the launcher: the same signal to all ranks, and GRACE
      seconds later SIGKILL as above; return 128 + the signal's number.

    When it returns, none of the ranks is left. Target: it passes all trials.
    """
    return None  # your code here


# Stands in for a rank, and starts faster than one: trial and folder are its arguments.
TOY = """
import os, pathlib, signal, socket, sys, time

trial, folder = sys.argv[1], pathlib.Path(sys.argv[2])
rank, size, port = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
assert local == (rank, size), f"local: {local}"
assert "PATH" in os.environ, "pass your own environment on to the ranks"

def told(number, frame):
    time.sleep(0.1)  # to put things in order
    (folder / f"told {rank} {number}").touch()
    if trial != "deaf":
        sys.exit(5)

signal.signal(signal.SIGTERM, told), signal.signal(signal.SIGINT, told)
(folder / f"rank {rank} {os.getpid()} {port}").touch()
while len(list(folder.glob("rank *"))) < size:
    time.sleep(0.01)
if trial == "well":
    address = os.environ["MASTER_ADDR"], port
    if rank == 0:
        socket.create_server(address).close()
    sys.exit(0)
if rank == size - 1 and trial in ("fails", "deaf"):
    sys.exit(3)
if rank == size - 1 and trial == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 0 and trial == "fails":
    time.sleep(1.5)
    sys.exit(7)  # not the first to fail
time.sleep(600)
"""
# By trial: the exit code that launch() should return.
TRIALS = {"well": 0, "fails": 3, "killed": 1, "deaf": 3, "SIGTERM": 143, "SIGINT": 130}


def play(trial, count, folder):
    """Run launch() in another process, to which signals can be sent; return its pid."""
    if pid := os.fork():
        return pid
    for name in ("bind", "connect", "connect_ex", "getsockname"):
        setattr(socket.socket, name, noting(getattr(socket.socket, name), folder))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal
    code = 1
    try:
        code = launch([sys.executable, "-IS", "-c", TOY, trial, str(folder)], count)
    except BaseException:
        traceback.print_exc()
    os._exit(NOT_YET if code is None else code)


def noting(method, folder):
    """Return a method of sockets that also notes the port it is about."""

    def noted(self, *args):
        place = args[0] if args else method(self)  # getsockname() returns it
        if isinstance(place, tuple):
            (folder / f"asked {place[1]}").touch()
        return method(self, *args)

    return noted


def attempt(trial, count, folder):
    """Return how launch() ended, None if it did not; and by rank, its pid and port."""
    pid, end, code = play(trial, count, folder), time.monotonic() + PATIENCE, None
    sent = not trial.startswith("SIG")
    while code is None and time.monotonic() < end:
        if not sent and len(list(folder.glob("rank *"))) == count:
            os.kill(pid, getattr(signal, trial))
            sent = True
        time.sleep(0.01)
        ended, status = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
    if code is None:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)  # a rank that is just being started signs in
    files = [file.name.split() for file in sorted(folder.glob("rank *"))]
    return code, [(int(pid), int(port)) for _, _, pid, port in files]


def was_there(pid):
    """End a process; return whether there was anything to end."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def judge(trial, count):
    """Raise unless launch() did in this trial what it should; return its port."""
    number = signal.SIGINT if trial == "SIGINT" else signal.SIGTERM
    others = {"well": 0, "SIGTERM": count, "SIGINT": count}.get(trial, count - 1)
    with TemporaryDirectory() as folder:
        code, ranks = attempt(trial, count, Path(folder))
        told = len(list(Path(folder).glob(f"told * {number:d}")))
        asked = {int(note.name.split()[1]) for note in Path(folder).glob("asked *")}
    if code == NOT_YET:
        return None
    said = f"ran on for {PATIENCE:.0f} s" if code is None else f"returned {code}"
    if left := [rank for rank, (pid, _) in enumerate(ranks) if was_there(pid)]:
        said += f", ranks left behind: {left}"
    if told < others:
        said += f", {told} of {others} ranks had the time to act on {number.name}"
    if said != f"returned {TRIALS[trial]}":
        raise AssertionError(f"{trial}: launch() {said}; expected {TRIALS[trial]}")
    port = ranks[0][1]
    if port not in asked:
        raise AssertionError(f"no socket of Python's has asked for port {port}")
    print(f"{trial}: launch() {said}, and no rank is left", flush=True)
    return port


def be_a_rank():
    """Be a real rank, if launch() has told us who we are."""
    with process_group() as (rank, world_size, device):
        total = torch.tensor(rank + 1.0, device=device)
        dist.all_reduce(total)  # every rank now holds 1 + 2 + ...
        told = f"started by my own launcher, as one of {world_size}: {total:.0f}"
        print(f"[rank {rank}] {told}", flush=True)
        print(json.dumps({"rank": rank, "solved": True}), flush=True)
        if total.item() != world_size * (world_size + 1) / 2:
            raise AssertionError(f"the sum is {total}")


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", type=int, default=2)
    count = parser.parse_args().nproc_per_node
    if "RANK" in os.environ:
        return be_a_rank()
    ports = set()
    for trial in TRIALS:
        port = judge(trial, count)
        if port is None:
            for rank in range(count):
                print(f"[rank {rank}] not yet", flush=True)
                print(json.dumps({"rank": rank, "solved": False}), flush=True)
            return None
        ports.add(port)
    if len(ports) == 1:
        raise AssertionError(f"always port {port}: two launches at once would collide")
    return launch([sys.executable, *sys.argv], count)


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


if __name__ == "__main__":
    main()
