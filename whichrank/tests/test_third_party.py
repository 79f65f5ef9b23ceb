"""Scripts as they are found elsewhere run under the launcher, and are told faithfully.

None of them knows it: no facts, no rank in front of a line, no flush, no record.
"""

import textwrap

import pytest
from forked import let_torchrun_be_a_fork
from launched import python, torchrun
from support import FULL

pytestmark = pytest.mark.processes

WAYS = pytest.mark.parametrize(
    "cold",
    [pytest.param(False, id="warm"), pytest.param(True, id="cold", marks=FULL)],
)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return a function that writes a script into the folder that we work in."""
    let_torchrun_be_a_fork(monkeypatch)  # it does not know the script
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "train.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    return write


# Everything that scripts ask of the process which they run in.
WORKERS = """
    import argparse, inspect, logging, multiprocessing, os, pickle, sys, tempfile
    import torch
    import torch.distributed as dist
    from dataclasses import dataclass
    from torch.utils.data import DataLoader, Dataset

    @dataclass
    class Config:
        lr: float = 0.1

    class Squares(Dataset):
        def __len__(self):
            return 16
        def __getitem__(self, i):
            return torch.tensor([float(i)]), torch.tensor([float(i * i)])

    def double(x):
        return 2 * x

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.add_argument("name", nargs="+")
        args = parser.parse_args()
        logging.basicConfig(level=logging.INFO)
        dist.init_process_group(backend="gloo")
        rank = int(os.environ["RANK"])
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
        for x, y in DataLoader(Squares(), batch_size=4, num_workers=1):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sys.stderr.write(f"\\rloss {loss.item():.3f}")
        with tempfile.TemporaryFile() as file:
            pickle.dump(Config(args.lr), file)
            file.seek(0)
            assert pickle.load(file) == Config(args.lr)
        if rank == 0:  # a spawned process imports torch anew
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(double, [1, 2]) == [2, 4]
        assert "num_workers=1" in inspect.getsource(main)
        logging.info("rank %d has trained", rank)
        print(args.name, __file__, __name__, sys.path[0] == os.getcwd())

    if __name__ == "__main__":
        main()
"""


@WAYS
def test_workers_pickles_progress_bars(script, cold):
    name = script(WORKERS)
    run = torchrun(f"--nproc-per-node 2 {name} --lr 0.01 a 'b c'", cold=cold)
    assert run.lines == [["['a', 'b c'] train.py __main__ True"]] * 2
    for rank in range(2):
        said = "\n".join(run.warnings[rank])
        assert f"INFO:root:rank {rank} has trained" in said
        assert said.count("loss ") == 1, "of a progress bar the last state"
    assert run.notes == ["ranks 0 and 1 ended without dist.destroy_process_group()"]


# The form of the well-known tutorial: mp.spawn and a port of one's own.
SPAWN = """
    import os, sys, time, torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

    def demo(rank, world_size, mode):
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = sys.argv[2]
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        tensor = torch.ones(1) * rank
        dist.all_reduce(tensor)
        print(f"Rank {rank} has {tensor.item()}", flush=True)
        if mode == "raise" and rank == 1:
            raise KeyError("label")
        while mode == "hang" and rank == 1:
            time.sleep(0.01)
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        mode = sys.argv[1]
        mp.spawn(demo, args=(2, mode), nprocs=2, join=True)
"""


@FULL  # test_spawn_that_raises does as much, and more
@pytest.mark.parametrize("cold", [False, True])
def test_spawn(script, cold, free_port):
    run = python(f"{script(SPAWN)} fine {free_port}", cold=cold)
    assert sorted(run.lines[0]) == ["Rank 0 has 1.0", "Rank 1 has 1.0"]


def test_spawn_that_raises(script, free_port):
    command = f"{script(SPAWN)} raise {free_port}"
    run = python(command, expect_failure=True)
    assert sorted(run.lines[0]) == ["Rank 0 has 1.0", "Rank 1 has 1.0"]
    failure = run.failure
    assert (failure.kind, failure.rank) == ("exception", None), failure.report()
    assert "Process 1 terminated with the following error: KeyError" in failure.cause
    assert failure.where.endswith('in demo: raise KeyError("label")')


@FULL
def test_spawn_that_hangs(script, free_port):
    command = f"{script(SPAWN)} hang {free_port}"
    failure = python(command, timeout=8, expect_failure=True).failure
    assert (failure.kind, failure.rank) == ("timeout", None)
    assert "Rank " in failure.others[0]


MODULE = """
    import os, sys
    from pack.helper import name
    print(name, sys.argv[1:], __name__, __package__)
"""


@WAYS
def test_a_module(script, cold):
    script("name = 'helper'", "pack/helper.py")
    script("", "pack/__init__.py")
    script(MODULE, "pack/main.py")
    run = torchrun("--nproc-per-node 2 -m pack.main x y", cold=cold)
    assert run.lines == [["helper ['x', 'y'] __main__ pack"]] * 2


# The first attempt fails, and torchrun starts the ranks anew.
RESTART = """
    import os
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print("attempt", attempt)
    if attempt < {good} and os.environ["RANK"] == "1":
        raise OSError("a cosmic ray")
"""


@WAYS
def test_a_restart_succeeds(script, cold):
    name = script(RESTART.format(good=1))
    run = torchrun(f"--max-restarts 1 --nproc-per-node 2 {name}", cold=cold)
    assert run.lines == [["attempt 1"]] * 2


def test_a_restart_fails_again(script):
    name = script(RESTART.format(good=9))
    command = f"--max-restarts 1 --nproc-per-node 2 {name}"
    failure = torchrun(command, expect_failure=True).failure
    assert (failure.rank, failure.cause) == (1, "OSError: a cosmic ray")


# Saves when it is told to stop; its own handler takes the place of ours.
GRACEFUL = """
    import os, signal, sys, time

    def save_and_exit(number, frame):
        print("saved", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, save_and_exit)
    print("training", flush=True)
    if os.environ["RANK"] == "1":
        time.sleep(1)
        raise RuntimeError("no more data")
    time.sleep(600)
"""


@WAYS
def test_a_script_with_a_signal_handler(script, cold):
    run = torchrun(
        f"--nproc-per-node 2 {script(GRACEFUL)}", cold=cold, expect_failure=True
    )
    assert (run.failure.rank, run.failure.cause) == (1, "RuntimeError: no more data")
    assert run.lines[0] == ["training", "saved"]


def test_a_command_that_is_no_python(script):
    run = torchrun(
        "--nproc-per-node 2 --no-python sh -c 'echo $RANK; exit $RANK'",
        expect_failure=True,
    )
    assert run.lines == [["0"], ["1"]]
    assert (run.failure.rank, run.failure.cause) == (1, "exit code 1")
