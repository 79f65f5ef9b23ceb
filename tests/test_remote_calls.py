"""Programs by RPC: they join and leave by `workers()`, and nobody hangs or stays."""

import re

import pytest
from conftest import FULL, wait_until

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from ddp_lab.kit.explain.stacks import Frame
from ddp_lab.kit.run import probe

CALLS = ROOT / "ddp_lab" / "rpc" / "calls.py"
PROGRAM = """
import json, os, socket, sys, threading, time, warnings
from contextlib import contextmanager

from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    with workers(rpc_timeout=4) as (rank, world_size):
        last = f"worker{world_size - 1}"
        print(f"[rank {rank}] joined", flush=True)
BODY


"""
BLOCK = CALLS.read_text()[CALLS.read_text().index("# --- the same") :]
SLEEP = "rpc.rpc_async(last, time.sleep, args=(3600,), timeout=0)"


@pytest.fixture
def run(tmp_path, survivors):
    """Run a program whose workers do what `body` says; nobody may stay behind."""

    def run(body: str, block: str = BLOCK, **options):
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace("BODY\n", lines) + block)
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


@pytest.mark.processes
@pytest.mark.parametrize("name", FAILURES)
def test_an_error_ends_all_workers(run, name):
    body, rank = FAILURES[name]
    found = run(body, timeout=30, expect_failure=True)
    assert found.failure.kind == "exception"
    assert (found.failure.rank, found.failure.cause) == (rank, "ValueError: here")


@pytest.mark.processes
def test_whoever_hears_first_that_a_worker_has_gone_is_not_the_first(run):
    """Its own words come last: the others have lost it a second before."""
    block = BLOCK.replace("leave.join(2)", "leave.join(2); time.sleep(rank == 0)")
    assert block != BLOCK
    body, rank = FAILURES["with a call under way"]
    found = run(body, block, timeout=30, expect_failure=True)
    assert (found.failure.rank, found.failure.cause) == (rank, "ValueError: here")


@pytest.mark.processes
def test_a_worker_that_does_not_come_is_told(tmp_path, survivors):
    path = tmp_path / "program.py"
    text = PROGRAM.replace("BODY", "        pass") + BLOCK
    late = "    with workers("
    text = text.replace(late, f"    if os.environ['RANK'] == '1': return\n{late}", 1)
    path.write_text(text)
    found = torchrun(f"--nproc-per-node 3 {path}", timeout=8, expect_failure=True)
    assert re.search(r"init_rpc", found.failure.report())
    assert wait_until(lambda: survivors() == 0)


@pytest.mark.processes
def test_workers_that_have_met_are_not_told_that_they_have_not(run):
    assert run("pass").notes == []


@pytest.mark.processes
@FULL
def test_a_chain_that_blocks_every_thread_is_told_with_the_calls_it_serves(variant):
    path = variant(
        "ddp_lab/rpc/chain.py", "chain(waits, SHORT, world", "chain(waits, LONG, world"
    )
    command = f"--nproc-per-node 2 {path}"
    found = torchrun(command, timeout=8, expect_failure=True)
    assert found.failure.kind == "timeout"
    assert "a thread that serves a remote call at" in found.failure.report()


def test_a_thread_is_named_by_what_it_does():
    served = [Frame("a.py", 3, "f"), Frame("rpc/internal.py", 9, "_run_function")]
    assert probe._thread(None, served) == "a thread that serves a remote call"
    assert probe._thread(None, served[:1]) == "a thread without a name"
    assert probe._thread("feeder", served[:1]) == "thread feeder"
