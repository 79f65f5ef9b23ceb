"""Programs by RPC: they join and leave by `workers()`, and nobody hangs or stays."""

import pytest
from support import FULL, wait_until

from ddp_lab.kit import torchrun
from ddp_lab.kit.cell.compose import Order, whole
from whichrank.record.stacks import Frame
from whichrank.run import probe

PROGRAM = '''
"""Workers that do what the test says."""

import os
import threading
import time

from torch.distributed import rpc

OPTIONS = {"rpc_timeout": 4}


def main(rank, world_size):
    last = f"worker{world_size - 1}"
    print(f"[rank {rank}] joined", flush=True)
BODY
'''
SLEEP = "rpc.rpc_async(last, time.sleep, args=(3600,), timeout=0)"


def program(body: str) -> str:
    """Return the text of a program as a lesson's cell makes it, with the shared end."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    order = Order("program.py")
    return whole(order, PROGRAM.replace("BODY", lines), lambda path: None).text


@pytest.fixture
def run(tmp_path, survivors):
    """Run a program of three workers; none of its processes may stay behind."""

    def run(text: str, **options):
        path = tmp_path / "program.py"
        path.write_text(text)
        found = torchrun(f"--nproc-per-node 3 {path}", **options)
        assert wait_until(lambda: survivors() == 0)
        return found

    return run


FAILURES = {
    "an error of the caller": ("if rank == 0: raise ValueError('here')", 0),
    "an error of a callee": ("if rank == 2: raise ValueError('here')", 2),
    "with a call under way": (
        f"if rank == 0:\n    {SLEEP}\n    raise ValueError('here')",
        0,
    ),
    # rpc.shutdown() alone would wait for the call that it serves: an hour.
    "while it serves a call": (
        f"if rank == 0: {SLEEP}\nif rank == 2:\n    time.sleep(1)\n"
        "    raise ValueError('here')",
        2,
    ),
    "with a reference that is alive": (
        "if rank == 0:\n    rref = rpc.remote(last, dict)\n    rref.to_here()\n"
        "    raise ValueError('here')",
        0,
    ),
}


ALWAYS = "while it serves a call"


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == ALWAYS else FULL) for n in FAILURES]
)
def test_an_error_ends_all_workers(run, name):
    body, rank = FAILURES[name]
    found = run(program(body), timeout=30, expect_failure=True)
    assert found.failure.kind == "exception"
    assert (found.failure.rank, found.failure.cause) == (rank, "ValueError: here")


@FULL
@pytest.mark.processes
def test_whoever_hears_first_that_a_worker_has_gone_is_not_the_first(run):
    """Its own words come last: the others have lost it a second before."""
    body, rank = FAILURES["with a call under way"]
    text = program(body)
    leaves_late = text.replace("leave.join(2)", "leave.join(2); time.sleep(rank == 0)")
    assert leaves_late != text
    found = run(leaves_late, timeout=30, expect_failure=True)
    assert (found.failure.rank, found.failure.cause) == (rank, "ValueError: here")


@FULL
@pytest.mark.processes
def test_a_worker_that_does_not_come_is_told(run):
    joins = "    with workers("
    stays_away = f"    if os.environ['RANK'] == '1': return\n{joins}"
    text = program("pass").replace(joins, stays_away, 1)
    assert stays_away in text
    found = run(text, timeout=8, expect_failure=True)
    assert "init_rpc" in found.failure.report()


@pytest.mark.processes
def test_the_host_of_the_store_leaves_last(run, monkeypatch):
    """Here rank 0 hosts it, and the others still need it a second later."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    left = "rpc.shutdown()  #"
    late = "rpc.shutdown(); rank and (time.sleep(1), store.get('left 0'))  #"
    text = program("pass")
    assert left in text
    run(text.replace(left, late), timeout=30)


@pytest.mark.processes
def test_workers_that_have_met_are_not_told_that_they_have_not(run):
    assert run(program("pass")).notes == []


@pytest.mark.processes
@FULL
def test_a_chain_that_blocks_every_thread_is_told_with_the_calls_it_serves(variant):
    path = variant("ddp_lab/rpc/chain.py", "waits: 1}", "waits: 40}")
    command = f"--nproc-per-node 2 {path}"
    found = torchrun(command, timeout=8, expect_failure=True)
    assert found.failure.kind == "timeout"
    assert "a thread that serves a remote call at" in found.failure.report()


def test_a_thread_is_named_by_what_it_does():
    served = [Frame("a.py", 3, "f"), Frame("rpc/internal.py", 9, "_run_function")]
    assert probe.thread_name(None, served) == "a thread that serves a remote call"
    assert probe.thread_name(None, served[:1]) == "a thread without a name"
    assert probe.thread_name("feeder", served[:1]) == "thread feeder"
