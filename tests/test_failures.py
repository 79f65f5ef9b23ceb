"""Every way in which a run can go wrong: the right rank, the right line, the cause.

Each row really happens, on 2 and on 4 ranks, and leaves no process behind.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from conftest import wait_until

from ddp_lab import ROOT
from ddp_lab.kit import RunFailed, suspect, torchrun
from ddp_lab.kit.cell.display import bundle
from ddp_lab.kit.explain.failure import find_failure
from ddp_lab.kit.explain.logs import RankLog

RANKS = pytest.mark.parametrize("ranks", [2, 4])
ODD = 1  # the rank that misbehaves

PROGRAM = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
odd = rank == 1


def misbehave(tensor):
{body}


def main():
    dist.init_process_group("gloo")
    print(f"[rank {{rank}}] is here", flush=True)
    print(json.dumps({{"process_group": os.getpgid(0)}}), flush=True)
    dist.all_reduce(torch.ones(4))
    misbehave(torch.ones(8))
    dist.barrier()
    dist.destroy_process_group()


main()
"""


@pytest.fixture
def program(tmp_path):
    """Return a function that writes PROGRAM with one misbehaviour in it."""

    def write(body: str) -> Path:
        indented = "\n".join("    " + line for line in body.strip().splitlines())
        path = tmp_path / "sick.py"
        path.write_text(PROGRAM.format(body=indented))
        return path

    return write


@pytest.fixture
def fail(program, survivors):
    """Return a function that runs a misbehaviour and returns the failed run."""

    def run(body: str, ranks: int, **options):
        path = program(body)
        options = {"timeout": 4, "expect_failure": True} | options
        result = torchrun(f"--nproc-per-node {ranks} {path}", **options)
        # A killed process is there until the system has taken it down.
        assert wait_until(lambda: nobody_left(survivors, result), 3)
        return result

    return run


def nobody_left(survivors, run) -> bool:
    """Tell whether no process of `run` is alive, by mark and by process group."""
    groups = {facts["process_group"] for facts in run.facts if facts}
    assert groups
    alive = [pid for pid in psutil.pids() if _group(pid) in groups]
    return not alive and survivors() == 0


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def number_of(path: Path, text: str) -> int:
    """Return the number of the one line of `path` that holds `text`."""
    lines = path.read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(found) == 1
    return found[0]


def others(ranks: int) -> list[int]:
    return [rank for rank in range(ranks) if rank != ODD]


# --- a rank fails ---


@RANKS
def test_a_rank_raises(fail, tmp_path, ranks):
    run = fail('if odd: raise ValueError("no such sample")', ranks)
    failure = run.failure
    assert (failure.kind, failure.rank) == ("exception", ODD)
    assert failure.cause == "ValueError: no such sample"
    assert failure.line == number_of(tmp_path / "sick.py", "raise ValueError")
    assert "Traceback" in failure.traceback
    assert failure.others == {}, "the victims are folded away"
    assert "ddp_lab/kit" not in failure.report(), "frames of the kit"


@RANKS
@pytest.mark.parametrize(
    "name, symptom, says",
    [
        ("SIGKILL", "killed", "memory runs out"),
        ("SIGABRT", "crash", "a crash in native code"),
        ("SIGSEGV", "crash", "a crash in native code"),
        ("SIGBUS", "crash", "/dev/shm"),
    ],
)
def test_a_rank_is_killed_by_a_signal(fail, ranks, name, symptom, says):
    run = fail(f"if odd: os.kill(os.getpid(), signal.{name})", ranks)
    assert (run.failure.kind, run.failure.rank) == ("signal", ODD)
    assert run.failure.symptom == symptom
    assert name in run.failure.cause and says in run.failure.cause
    assert run.exit_codes[ODD] == -signal.Signals[name]


@RANKS
def test_a_rank_leaves_with_an_exit_code(fail, ranks):
    run = fail("if odd: sys.exit(3)", ranks)
    assert (run.failure.kind, run.failure.rank) == ("exit", ODD)
    assert run.failure.cause == "exit code 3"
    assert run.exit_codes[ODD] == 3


@RANKS
@pytest.mark.parametrize("leave", ["sys.exit()", "os._exit(0)"])
def test_a_rank_leaves_while_the_others_still_need_it(fail, tmp_path, ranks, leave):
    run = fail(f"if odd: {leave}", ranks)
    assert (run.failure.rank, run.failure.symptom) == (ODD, "absent")
    assert run.failure.cause.startswith("has left")
    assert run.failure.line == number_of(tmp_path / "sick.py", "dist.barrier()")
    assert "has left" in run.failure.others[ODD]


@RANKS
def test_a_rank_leaves_without_destroying_the_group(program, survivors, ranks):
    path = program("dist.barrier()\nif odd: dist.destroy_process_group = lambda: None")
    run = torchrun(f"--nproc-per-node {ranks} {path}")
    assert run.notes == ["rank 1 ended without dist.destroy_process_group()"]
    assert "rank 1 ended without" in bundle(run)["text/plain"]


# --- a rank waits in vain ---


@RANKS
@pytest.mark.parametrize("busy", ["time.sleep(600)", "while True: sum(range(9))"])
def test_a_rank_skips_a_collective(fail, tmp_path, ranks, busy):
    run = fail(f"if odd:\n    {busy}\ndist.all_reduce(tensor)", ranks)
    failure = run.failure
    assert (failure.kind, failure.rank, failure.symptom) == ("timeout", ODD, "absent")
    assert failure.line == number_of(tmp_path / "sick.py", busy)
    assert failure.cause.startswith("has not come, and rank")
    waits = number_of(tmp_path / "sick.py", "dist.all_reduce(tensor)")
    for rank in others(ranks):
        assert "waits in all_reduce of float32 (8,)" in failure.others[rank]
        assert f"sick.py:{waits} in misbehave" in failure.others[rank]
    assert busy in failure.others[ODD]
    assert all(stand.peers == (ODD,) for stand in failure.stands if stand.rank != ODD)


@RANKS
@pytest.mark.parametrize("way", ["exception", "timeout"])
def test_ranks_make_different_calls(fail, tmp_path, ranks, way, monkeypatch):
    if way == "exception":  # PyTorch compares the calls itself, at a price
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    body = "if odd:\n    dist.broadcast(tensor, src=0)\nelse:\n    dist.barrier()"
    run = fail(body, ranks)
    failure, path = run.failure, tmp_path / "sick.py"
    assert (failure.kind, failure.symptom) == (way, "different calls")
    assert failure.rank == (ODD if ranks > 2 else None)
    assert failure.cause.startswith("call 2 is") or way == "exception"
    assert "broadcast" in failure.cause and "barrier" in failure.cause
    told = failure.report()
    assert f"sick.py:{number_of(path, 'dist.broadcast')} in" in told
    assert re.search(r"sick\.py:\d+ in misbehave: dist\.barrier\(\)", told)


@RANKS
def test_ranks_name_different_roots(fail, tmp_path, ranks):
    failure = fail("dist.broadcast(tensor, src=rank)", ranks).failure
    assert (failure.kind, failure.symptom) == ("timeout", "different calls")
    words = "in broadcast with different src: 0 on rank 0, 1 on rank 1"
    assert words in failure.cause
    assert failure.line == number_of(tmp_path / "sick.py", "dist.broadcast")


@RANKS
@pytest.mark.parametrize("what", ["16 if odd else 8", "8, dtype=dtype"])
def test_ranks_bring_different_tensors(fail, tmp_path, ranks, what):
    body = f"""
dtype = torch.int32 if odd else torch.float32
dist.all_reduce(torch.zeros({what}))
assert "dtype" not in "{what}", "a wrong sum"
"""
    run = fail(body, ranks)
    failure = run.failure
    assert failure.symptom == "different tensors"
    line = number_of(tmp_path / "sick.py", "dist.all_reduce(torch.zeros(")
    assert f"sick.py:{line}" in failure.report()


@RANKS
def test_silently_wrong_tensors_are_noted(program, ranks):
    path = program("dist.all_reduce(tensor.int() if odd else tensor)")
    run = torchrun(f"--nproc-per-node {ranks} {path}")
    (note,) = run.notes
    line = number_of(path, "tensor.int() if odd")
    assert note.startswith("not the same on all ranks: call 2 is all_reduce of")
    assert "int32 (8,)" in note and "float32 (8,)" in note
    assert note.count(f"sick.py:{line}") == 2


@RANKS
def test_everybody_sends_first(fail, tmp_path, ranks):
    body = """
dist.send(tensor, (rank + 1) % world_size)
dist.recv(tensor, (rank - 1) % world_size)
"""
    run = fail(body, ranks)
    failure = run.failure
    assert (failure.kind, failure.rank, failure.symptom) == ("timeout", None, "cycle")
    steps = [f"rank {r} waits in send for rank {(r + 1) % ranks}" for r in range(ranks)]
    assert failure.cause == ", ".join(steps)
    assert failure.line == number_of(tmp_path / "sick.py", "dist.send(tensor")


@RANKS
def test_a_peer_that_is_late_is_named_though_another_one_complains(
    fail, tmp_path, ranks
):
    body = """
from datetime import timedelta
group = dist.new_group(timeout=timedelta(seconds=1))
if odd: time.sleep(600)
dist.all_reduce(tensor, group=group)
"""
    run = fail(body, ranks, timeout=30)
    failure = run.failure
    assert (failure.kind, failure.rank, failure.symptom) == ("exception", ODD, "absent")
    assert failure.line == number_of(tmp_path / "sick.py", "time.sleep(600)")
    assert "Timed out waiting 1000ms" in failure.report()


def test_without_py_spy_the_ranks_tell_where_they_stand(fail, tmp_path, monkeypatch):
    monkeypatch.setattr("ddp_lab.kit.explain.stacks.from_outside", lambda pid: [])
    run = fail("if odd: time.sleep(600)\ndist.all_reduce(tensor)", 2)
    assert (run.failure.rank, run.failure.symptom) == (ODD, "absent")
    assert run.failure.line == number_of(tmp_path / "sick.py", "time.sleep(600)")
    assert "waits in all_reduce" in run.failure.others[0]


def test_communication_keeps_a_silent_run_alive(program):
    path = program("for step in range(40):\n    time.sleep(0.2)\n    dist.barrier()")
    run = torchrun(f"--nproc-per-node 2 {path}", timeout=3)
    assert run.seconds > 6


# --- the caller stops the run ---

CALLER = """
import sys
from ddp_lab.kit import torchrun
try:
    torchrun(f"--nproc-per-node {sys.argv[2]} {sys.argv[1]}")
except KeyboardInterrupt as stopped:
    print(stopped, flush=True)
    print("the caller goes on", flush=True)
"""


@RANKS
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(program, survivors, tmp_path, ranks, times):
    flag = f"open('{tmp_path}/' + str(rank), 'w').close()\n"
    path = program(flag + "if odd: time.sleep(600)\ndist.all_reduce(tensor)")
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, path, str(ranks)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wait_until(lambda: len(list(tmp_path.glob("[0-9]"))) == ranks, 60)
    time.sleep(0.5)  # until they stand still
    for _ in range(times):
        caller.send_signal(signal.SIGINT)
        time.sleep(0.05)
    said, _ = caller.communicate(timeout=30)
    assert "the caller goes on" in said
    assert "stopped by hand" in said
    if times == 1:
        stands = number_of(path, "time.sleep(600)")
        assert f"rank 1: stands at {path}:{stands}" in said
        assert said.count("waits in all_reduce") == ranks - 1
    assert survivors() == 0


# --- the machine ---


@RANKS
def test_a_port_that_is_taken_is_told_with_its_holder(program, ranks):
    path = program("pass")
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(RunFailed, match="EADDRINUSE") as caught:
            torchrun(f"--nnodes 1 --nproc-per-node {ranks} --master-port {port} {path}")
    failure = caught.value.run.failure
    assert failure.symptom == "port taken"
    assert f"port {port} belongs to process {os.getpid()}" in failure.means


def test_ten_launches_at_once_do_not_collide(program, survivors):
    path = program("assert tensor.sum() == 8")

    def launch(number: int):
        ranks = 2 + number % 3
        return ranks, torchrun(f"--nproc-per-node {ranks} {path}")

    with ThreadPoolExecutor(10) as pool:
        runs = list(pool.map(launch, range(10)))
    for ranks, run in runs:
        assert run.lines == [[f"[rank {rank}] is here"] for rank in range(ranks)]
    assert survivors() == 0


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.25 GiB is free."
)


def test_a_full_gpu_is_told_with_who_holds_its_memory(fail, tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"  # this test machine may have none
    smi.write_text(f"#!/bin/sh\necho '{os.getpid()}, 70000 MiB'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    run = fail(f"if odd: raise torch.OutOfMemoryError({OUT_OF_MEMORY!r})", 2)
    assert (run.failure.rank, run.failure.symptom) == (ODD, "CUDA memory")
    assert "this GPU has no room left" in run.failure.means
    assert f"process {os.getpid()} (" in run.failure.means
    assert "has 70000 MiB" in run.failure.means


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@RANKS
def test_a_missing_gpu_is_told(fail, ranks):
    run = fail("tensor.cuda()", ranks)
    assert run.failure.symptom == "no GPU"
    assert "this machine, or this PyTorch, does not have" in run.failure.means


# --- what a run writes ---

LONG = {
    "lines": "for i in range(2_000_000):\n    print('0123456789' * 10)",
    "one line": "for i in range(500):\n    sys.stdout.write('0123456789' * 10_000)",
    "no text": "for i in range(1000):\n    os.write(1, bytes(range(256)) + b'\\n')",
}


@RANKS
@pytest.mark.parametrize("kind", LONG)
def test_long_output_stays_on_disk(program, ranks, kind):
    run = torchrun(f"--nproc-per-node {ranks} {program(LONG[kind])}")
    try:
        assert sum(len(text) for text in bundle(run).values()) < 200_000
        assert str(run.log_folder.relative_to(ROOT)) in bundle(run)["text/plain"]
        for rank in range(ranks):
            log = run.log_folder / f"rank_{rank}.out"
            assert log.read_bytes().startswith(f"[rank {rank}] is here".encode())
            least = {"lines": 202e6, "one line": 50e6, "no text": 257e3}[kind]
            assert log.stat().st_size > least
    finally:
        shutil.rmtree(run.log_folder)


def test_output_without_end_is_ended(fail, monkeypatch):
    monkeypatch.setattr("ddp_lab.kit.run.launch.MOST", 50_000_000)
    run = fail("while odd: os.write(1, b'0' * 1_000_000)", 2)
    shutil.rmtree(run.log_folder)
    assert run.failure.kind == "output"
    assert "more than 50,000,000 bytes of output" in run.failure.cause


@RANKS
def test_a_full_disk_is_told(fail, ranks):
    run = fail("if odd: open('/dev/full', 'w').write('x' * 10_000_000)", ranks)
    assert (run.failure.rank, run.failure.symptom) == (ODD, "disk full")
    assert run.failure.means == "that is: the disk is full"


def test_no_room_for_the_logs_is_told(program, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(RunFailed, match="the lab cannot keep its logs in /proc/now"):
        torchrun(f"--nproc-per-node 2 {program('pass')}")


# --- the exit race ---

# An optimizer loads torch._dynamo, nothing is destroyed, and the last collective comes
# right before the end: on a plain exit, gloo aborts such a process now and then.
RACE = """
optimizer = torch.optim.SGD([torch.nn.Parameter(tensor)], lr=0.1)
optimizer.step()
dist.all_reduce(tensor)
print("done", flush=True)
{end}
os.environ["done"] = "yes"
dist.barrier()
if os.environ["done"]: sys.exit()
"""


AGENT = """
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 7)
"""


@pytest.mark.parametrize("finished", [True, False])
def test_an_abort_counts_only_if_the_work_was_not_done(finished):
    logs = [RankLog(end={"code": 0}), RankLog(end={"code": 0} if finished else None)]
    failure, exit_codes = find_failure(logs, AGENT, 1, None, 0)
    assert exit_codes == [0, 0 if finished else -signal.SIGABRT]
    assert (failure is None) == finished


def in_parallel(path: Path, runs: int, **options) -> list:
    with ThreadPoolExecutor(4) as pool:
        command = f"--nproc-per-node 2 {path}"
        return list(pool.map(lambda _: torchrun(command, **options), range(runs)))


def test_a_run_that_has_done_its_work_is_never_called_failed(program):
    runs = in_parallel(program(RACE.format(end="")), 100)
    assert all(run.failure is None and run.exit_codes == [0, 0] for run in runs)


def test_a_run_that_died_early_is_never_called_a_success(program):
    end = "if odd: os.abort()"  # after its last word, as the race does
    runs = in_parallel(program(RACE.format(end=end)), 100, expect_failure=True)
    assert {(run.failure.kind, run.failure.rank) for run in runs} == {("signal", ODD)}


# --- what a learner suspects ---


def test_a_suspicion_is_compared_with_what_was_found(fail, tmp_path, capsys):
    run = fail("if odd: time.sleep(600)\ndist.all_reduce(tensor)", 2)
    line = number_of(tmp_path / "sick.py", "time.sleep(600)")
    assert suspect(ODD, line, "absent").compare(run)
    assert "rank: rank 1 is right" in capsys.readouterr().out
    for wrong in (suspect(0, line, "absent"), suspect(ODD, 1, "absent"), suspect()):
        assert not wrong.compare(run)
    assert "not yet; the run says rank 1" in capsys.readouterr().out
    assert not suspect(ODD, line, "flu").compare(run)
    assert "symptoms are: absent, " in capsys.readouterr().out


def test_nobody_is_the_one_if_every_rank_raises(fail, tmp_path):
    run = fail("raise ValueError(rank)", 2)
    line = number_of(tmp_path / "sick.py", "raise ValueError")
    assert suspect(None, line, None).compare(run)
