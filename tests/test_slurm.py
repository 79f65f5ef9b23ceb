"""Runs on a SLURM cluster: a real one, of two nodes that are this machine.

Its nodes see their own processes only, and we see all, by other numbers. But nothing
there carries a mark that a guard here would look for, so only SLURM, or the kit over
there, ends it.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import slurm_cluster
from conftest import FULL, living, wait_until

from ddp_lab import ROOT
from ddp_lab.kit import RunFailed, torchrun
from ddp_lab.kit.run import owned
from ddp_lab.kit.run.result import RunInterrupted
from ddp_lab.kit.slurm import control, sent
from ddp_lab.kit.slurm import lease as slurm

RING = "ddp_lab/p2p/ring.py"
# Rank 3 of 4, on node 1, does what it is told, and so does what it leaves behind.
PROGRAM = """
import fcntl, os, signal, subprocess, sys, time
import torch.distributed as dist

what, folder = sys.argv[1:]
rank = int(os.environ["RANK"])
fcntl.flock(os.open(f"{folder}/{rank}", os.O_CREAT), fcntl.LOCK_EX)
dist.init_process_group("gloo")
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what in ("escapes", "leaves a child"):
    subprocess.Popen(
        ["flock", "--no-fork", f"{folder}/left by {rank}", "sleep", "600"],
        env={}, start_new_session=True,
    )
    while len(os.listdir(folder)) < 2 * int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
print(f"[rank {rank}] is here", flush=True)
if rank == 3:
    if what == "raises":
        raise ValueError("on node 1")
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hangs":
        time.sleep(600)
dist.barrier()
if what in ("sleeps", "deaf", "escapes"):
    time.sleep(600)
dist.destroy_process_group()
"""
KERNEL = """
import pathlib, sys
from ddp_lab.kit import torchrun
from ddp_lab.kit.slurm import sent
sent.RUNS = pathlib.Path(sys.argv[2])
torchrun(sys.argv[1])
"""

needs_cluster = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing()),
]


def on_cluster(test):
    """Mark a test that needs the cluster."""
    for mark in needs_cluster:
        test = mark(test)
    return test


BEGUN = 180
"""Seconds until ranks run: a kernel, a job and both nodes' imports of torch come first.

On a busy machine a whole test has taken 59.
"""
GONE = 60


def servers(cluster, name: str) -> list[Path]:
    """Return the folders of fork servers that a process has on nodes."""
    return [*cluster.folder.glob(f"tmp/*/{name}-warm-*")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    shared = [tmp_path_factory.getbasetemp()]
    with slurm_cluster.Cluster(shared=shared) as cluster:
        yield cluster
        slurm.LEASE.close()
        assert wait_until(lambda: not cluster.jobs()), cluster.jobs()
        assert servers(cluster, slurm.LEASE.name) == []
    assert wait_until(lambda: not of_cluster(cluster.folder))


def of_cluster(folder: Path) -> list[psutil.Process]:
    """Return the daemons of the cluster in `folder`, and what they have started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            env = process.environ()
            task = env.get("SLURM_CONF") == f"{folder}/conf" and "SLURM_TASK_PID" in env
            if env.get(slurm_cluster.MARK) == str(folder) or task:
                found.append(process)
    return found


@pytest.fixture
def two_nodes(cluster, tmp_path, monkeypatch):
    """Let runs be spread over both nodes, which see all folders of this machine."""
    monkeypatch.setattr(sent, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.setenv(slurm.ASKED, "--time=10")
    monkeypatch.setenv(slurm.SPREAD, "2")
    return cluster


@pytest.fixture
def told(tmp_path):
    """Return a function: the command for 4 ranks, the last of which does something."""
    program, folder = tmp_path / "told.py", tmp_path / "locks"
    program.write_text(PROGRAM)
    folder.mkdir()

    def command(what: str) -> str:
        return f"--nproc-per-node 4 {program} '{what}' {folder}"

    command.alive = lambda: [p.name for p in folder.iterdir() if is_locked(p)]
    return command


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds a file locked; the lock goes with its holder."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def nothing_is_left(cluster, told) -> bool:
    """Tell whether no process, no step and no folder of a run is there any more."""
    job = slurm.LEASE.held.job if slurm.LEASE.held else ""
    steps = cluster.ask("squeue", "-h", "-s", "-j", job, "-o", "%j").split()
    steps = [name for name in steps if "-warm-" not in name]
    owned.sweep(sent.RUNS, young=0)  # as the next launch: a lock would be in the way
    runs = list(sent.RUNS.glob("*")) if sent.RUNS.exists() else []
    return not (told.alive() or steps or runs)


def when_all_are_there(do, ranks: int = 4):
    """Return a `watch` that calls `do` once, when every rank has said something."""
    done = []

    def watch(run):
        if not done and len(run.lines) == ranks and all(run.lines):
            done.append(True)
            do()

    return watch


def kernel(command, **environment) -> subprocess.Popen:
    """Start a process that launches, as a kernel does."""
    words = [sys.executable, "-c", KERNEL, command, str(sent.RUNS)]
    env = os.environ | environment
    return subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)


# --- what a command becomes, without a cluster ---


@pytest.mark.parametrize(
    "words, nodes, spread",
    [
        ("--nproc-per-node 4", "2", ["--nnodes 2 --nproc-per-node 2"] * 2),
        (
            "--nproc-per-node 3",
            "2",
            ["--nnodes 2 --nproc-per-node 2", "--nnodes 2 --nproc-per-node 1"],
        ),
        ("--nproc_per_node=1", "2", ["--nnodes 1 --nproc-per-node 1"]),
        ("--nproc-per-node 4", "", ["--nnodes 1 --nproc-per-node 4"]),
        ("--standalone --nproc-per-node 4", "2", ["--nnodes 1 --nproc-per-node 4"]),
        ("--nproc-per-node gpu", "2", ["--nnodes 2 --nproc-per-node gpu"] * 2),
        ("--nnodes 3 --nproc-per-node 2", "2", ["--nnodes 3 --nproc-per-node 2"] * 3),
        ("--nnodes 1:2", "", ["--nnodes 1:2 --nproc-per-node 1"] * 2),
    ],
)
def test_ranks_are_spread(words, nodes, spread, monkeypatch):
    monkeypatch.setenv(slurm.SPREAD, nodes)
    options = [[word] for word in words.split() if "=" in word or word[2:3] == "s"]
    rest = [word for word in words.split() if [word] not in options]
    options += [rest[i : i + 2] for i in range(0, len(rest), 2)]
    by_node = sent.spread(options)
    assert [" ".join(sum(each, [])) for each in by_node] == spread


@pytest.mark.parametrize("said", ["two", "0", "-1", "1.5"])
def test_a_number_of_nodes_that_is_none_is_refused(said, monkeypatch):
    monkeypatch.setenv(slurm.ASKED, "--time=5")
    monkeypatch.setenv(slurm.SPREAD, said)
    sentence = f"^NNODES takes a number of machines, not '{said}'$"
    with pytest.raises(RunFailed, match=sentence):
        torchrun(f"--nproc-per-node 2 {__file__}")
    with pytest.raises(SystemExit, match=sentence):
        slurm.Lease().lend()


@pytest.mark.parametrize(
    "asked, around, words, taken",
    [
        ("--time=5", 0, [["--nproc-per-node", "2"]], True),
        ("", 0, [["--nnodes", "2"]], False),
        ("", 2, [["--nnodes", "2"]], True),
        ("", 2, [["--nproc-per-node", "2"]], False),
        ("", 2, [["--nnodes", "3"]], False),
        ("--time=5", 2, [["--nnodes", "2"], ["--node-rank", "0"]], False),
    ],
)
def test_what_is_for_slurm(asked, around, words, taken, monkeypatch):
    monkeypatch.setenv(slurm.ASKED, asked)
    if around:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_JOB_NODELIST", "a[1-2]")
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(around))
    assert sent.takes(words) == taken


@pytest.mark.parametrize(
    "said, goes_on, why",
    [
        (
            "*** JOB 5 ON n1 CANCELLED AT 2026-11-22T16:05:11 ***",
            False,
            "the job was c",
        ),
        ("*** STEP 5.0 ON n1 CANCELLED AT 2026-11-22 ***", False, "the job was canc"),
        ("*** STEP 5.0 ON n1 CANCELLED AT 2026-11-22 ***", True, "this step was canc"),
        (
            "*** STEP 5.0 ON n1 CANCELLED AT 26-1 DUE TO TIME LIMIT ***",
            False,
            "time was",
        ),
        (
            "*** JOB 5 ON n1 CANCELLED AT 26-1 DUE TO NODE FAILURE ***",
            False,
            "a node has",
        ),
        (
            "*** STEP 5.0 ON n1 CANCELLED AT 26-1 DUE TO NODE FAILURE ***\n"
            "srun: error: Node failure on n2",
            False,
            "node 1 (n2) has failed",
        ),
        ("srun: error: n1: task 0: Exited with exit code 1", False, ""),
    ],
)
def test_why_slurm_has_ended_a_run(said, goes_on, why, tmp_path, monkeypatch):
    (tmp_path / "err").write_text(f"slurmstepd: error: {said}\n")
    monkeypatch.setattr(sent.control, "lives", lambda job: goes_on)
    run = sent.Sent([], [], cold=False)
    run.owned = SimpleNamespace(path=tmp_path)
    run.allocation = slurm.Allocation("5", ["n1", "n2"])
    found = run.ended_by_slurm()
    assert why in found and bool(why) == bool(found)


def test_a_controller_that_does_not_answer_is_no_dead_job(monkeypatch):
    answers = {"squeue": "5 RUNNING\n6 COMPLETING\n"}
    monkeypatch.setattr(control, "ask", lambda *words, **how: answers.get(words[0]))
    assert [control.lives(job) for job in "567"] == [True, False, False]
    answers.clear()
    assert control.lives("7") and control.steps("ddp_lab") is None


# --- a run ---


@on_cluster
def test_the_same_command_runs_on_both_nodes(two_nodes):
    run = torchrun(f"--nproc-per-node 4 {RING}")
    assert run["arrived"] == run["expected"] == [6, 0, 1, 3]
    assert run.nodes == [0, 0, 1, 1]
    job = slurm.LEASE.held.job
    assert run.played == f"by SLURM, in job {job}: 2 ranks on box1, 2 ranks on box2"
    assert run.command == f"torchrun --nproc-per-node 4 {RING}"
    uneven = torchrun(f"--nproc-per-node 3 {RING}")
    assert uneven.nodes == [0, 0, 1] and slurm.LEASE.held.job == job
    assert not list(sent.RUNS.glob("*"))


@on_cluster
@pytest.mark.parametrize(
    "what, cause",
    [
        ("raises", "ValueError: on node 1"),
        ("is killed", "ended by SIGKILL"),
        ("hangs", "has not come, and ranks 0, 1 and 2 wait in barrier"),
    ],
)
def test_a_fault_on_the_second_node_is_told_as_at_home(what, cause, two_nodes, told):
    with pytest.raises(RunFailed) as failed:
        torchrun(told(what), timeout=5)
    said = str(failed.value)
    assert said.startswith(f"rank 3 (node 1, local 1, on box2): {cause}")
    if what == "hangs":
        assert (
            "rank 3 (node 1, local 1, on box2): stands at" in said
            and "time.sleep(600)" in said
        )
    assert nothing_is_left(two_nodes, told)


@on_cluster
@pytest.mark.parametrize(
    "what", ["sleeps", "escapes", pytest.param("deaf", marks=FULL)]
)
def test_the_stop_button_ends_all_on_all_nodes(what, two_nodes, told):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted) as stopped:
        torchrun(told(what), watch=when_all_are_there(stop))
    assert "rank 2 (node 1, local 0, on box2): stands at" in str(stopped.value)
    assert wait_until(lambda: nothing_is_left(two_nodes, told))


@on_cluster
def test_what_a_rank_leaves_behind_on_a_node_is_ended(two_nodes, told):
    torchrun(told("leaves a child"))
    assert wait_until(lambda: nothing_is_left(two_nodes, told))


@on_cluster
def test_a_killed_srun_leaves_nothing(two_nodes, told):
    def kill_srun():
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == "srun" and "-warm-" not in str(process.cmdline()):
                    process.kill()

    with pytest.raises(RunFailed, match="srun was ended by SIGKILL from outside"):
        torchrun(told("deaf"), watch=when_all_are_there(kill_srun))
    assert wait_until(lambda: nothing_is_left(two_nodes, told))


@on_cluster
@pytest.mark.parametrize(
    "also_killed",
    [
        "",
        pytest.param("keeper.py", marks=FULL),
        pytest.param("salloc", marks=FULL),
        pytest.param("srun", marks=FULL),
        pytest.param("keeper.py salloc", marks=FULL),
    ],
)
def test_a_dead_kernel_leaves_no_job(also_killed, two_nodes, told):
    mark = f"dead {also_killed} {os.getpid()}"
    jobs = "squeue", "-h", "-o", "%j"
    before = {*two_nodes.ask(*jobs).split()}
    process = kernel(told("sleeps"), DDP_LAB_TEST=mark)
    try:
        assert wait_until(lambda: len(told.alive()) == 4, BEGUN)
        (new,) = {*two_nodes.ask(*jobs).split()} - before
        for each in living(mark):
            with suppress(psutil.Error):
                names = each.name(), *map(os.path.basename, each.cmdline())
                if not {*names[:4]}.isdisjoint(also_killed.split()):
                    each.kill()
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: not living(mark), GONE), living(mark)
    assert wait_until(lambda: nothing_is_left(two_nodes, told), GONE)
    assert wait_until(lambda: new not in two_nodes.ask(*jobs).split(), GONE)
    # A killed srun has another half, which kills whoever would tidy up on the nodes.
    swept = also_killed == "srun"
    assert swept or wait_until(lambda: servers(two_nodes, new) == [], GONE)


@FULL
@on_cluster
def test_a_dead_kernel_in_somebody_elses_job_leaves_no_step(two_nodes, told):
    """As the kernels of `make lab`, or one that runs in a job of its own."""
    torchrun(f"--nproc-per-node 2 {RING}")
    held = slurm.LEASE.held
    mark = f"in another's job {os.getpid()}"
    job = {"SLURM_JOB_ID": held.job, "SLURM_JOB_NODELIST": ",".join(held.hosts)}
    job |= {"SLURM_JOB_NUM_NODES": "2", slurm.ASKED: "", "DDP_LAB_TEST": mark}
    command = told("deaf").replace(
        "--nproc-per-node 4", "--nnodes 2 --nproc-per-node 2"
    )
    process = kernel(command, **job)
    assert wait_until(lambda: len(told.alive()) == 4, BEGUN)
    process.kill()
    process.wait()
    assert wait_until(lambda: not living(mark), 30), living(mark)
    assert wait_until(lambda: nothing_is_left(two_nodes, told))
    assert two_nodes.ask("squeue", "-h", "-j", held.job)  # which goes on


@on_cluster
def test_a_refused_allocation_is_told_in_a_sentence(two_nodes, monkeypatch):
    slurm.LEASE.close()
    monkeypatch.setenv(slurm.ASKED, "--partition=nowhere")
    with pytest.raises(RunFailed) as refused:
        torchrun(f"--nproc-per-node 4 {RING}")
    said = str(refused.value)
    assert said.startswith("SLURM gives no machines (DDP_LAB_SLURM=")
    assert '"--partition=nowhere", 2 nodes): ' in said and "artition" in said


@on_cluster
@pytest.mark.parametrize(
    "wish, nodes, why",
    [
        ("--partition=short --time=10", "2", "PartitionTimeLimit"),
        ("--time=10", "5", "node"),
        pytest.param("--nodelist=box2", "1", "(DRAIN|NotAvail)", marks=FULL),
    ],
)
def test_a_wish_that_cannot_be_met_is_told_at_once(
    wish, nodes, why, two_nodes, monkeypatch
):
    slurm.LEASE.close()
    state = "scontrol", "update", "nodename=box2", "reason=test"
    if "box2" in wish:
        two_nodes.ask(*state, "state=drain")
    monkeypatch.setenv(slurm.ASKED, wish)
    monkeypatch.setenv(slurm.SPREAD, nodes)
    try:
        with pytest.raises(RunFailed, match=f"SLURM gives no machines.*{why}"):
            torchrun(f"--nproc-per-node 5 {RING}")
    finally:
        two_nodes.ask(*state, "state=resume")
    assert wait_until(lambda: not two_nodes.ask("squeue", "-h"))


@on_cluster
def test_a_lent_job_that_has_ended_is_replaced(two_nodes, monkeypatch, tmp_path):
    slurm.LEASE.close()
    monkeypatch.setenv("SLURM_JOB_ID", "999999")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "box[1-2]")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert torchrun(f"--nproc-per-node 2 {RING}")["arrived"] == [1, 0]
    job, name = slurm.LEASE.held.job, slurm.LEASE.name
    silent = tmp_path / "squeue"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    with monkeypatch.context() as patch:  # which is no reason for another job
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        assert torchrun(f"--nproc-per-node 2 {RING}")["arrived"] == [1, 0]
    assert slurm.LEASE.held.job == job
    slurm.LEASE.close()
    monkeypatch.setenv(slurm.ASKED, "")
    with pytest.raises(RunFailed, match="job 999999 of SLURM, in which .* has ended"):
        torchrun(f"--nnodes 2 {RING}")
    monkeypatch.setenv(slurm.ASKED, "--time=10")
    torchrun(f"--nproc-per-node 2 {RING}")
    assert slurm.LEASE.name != name  # or what ends the old one would end the new one


# --- what takes longer ---


def lines(path, text: str) -> list[str]:
    """Return the lines of a file with this text in them; none if it is not there."""
    said = path.read_text().splitlines() if path.exists() else []
    return [line for line in said if text in line]


@on_cluster
def test_nodes_have_memory_of_their_own(two_nodes):
    everywhere = ["srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c"]
    two_nodes.ask(*everywhere, "touch /dev/shm/$SLURMD_NODENAME")
    there = "echo $SLURMD_NODENAME /dev/shm/*; readlink /proc/self/ns/ipc"
    seen = {*two_nodes.ask(*everywhere, there).split("\n")}
    assert {"box1 /dev/shm/box1", "box2 /dev/shm/box2"} < seen
    assert len(seen - {os.readlink("/proc/self/ns/ipc")}) == 4


@FULL
@on_cluster
def test_a_cold_start(two_nodes):
    run = torchrun(f"--nproc-per-node 3 {RING}", cold=True)
    assert run["arrived"] == [3, 0, 1] and run.nodes == [0, 0, 1]


@FULL
@on_cluster
def test_nodes_that_may_come_and_go(two_nodes):
    run = torchrun(f"--nnodes 1:2 --nproc-per-node 2 {RING}")
    assert sorted(run.nodes) == [0, 0, 1, 1] and run["arrived"] == [6, 0, 1, 3]
    again = torchrun(f"--nnodes 2 --nproc-per-node 1 --max-restarts 2 {RING}")
    assert again["arrived"] == [1, 0]


@FULL
@on_cluster
def test_a_job_that_is_cancelled_from_outside(two_nodes, told):
    def cancel():
        two_nodes.ask("scancel", slurm.LEASE.held.job)

    with pytest.raises(RunFailed, match="the run: ended by SLURM: the job was canc"):
        torchrun(told("sleeps"), watch=when_all_are_there(cancel))
    assert wait_until(lambda: nothing_is_left(two_nodes, told))
    assert torchrun(f"--nproc-per-node 2 {RING}")["arrived"] == [1, 0]  # in a new job


@FULL
@on_cluster
def test_a_step_that_is_cancelled_from_outside(two_nodes, told):
    def cancel():
        steps = two_nodes.ask("squeue", "-h", "-s", "-o", "%i %j").splitlines()
        (step,) = [line for line in steps if "-warm-" not in line and "-" in line]
        two_nodes.ask("scancel", step.split()[0])

    with pytest.raises(RunFailed, match="ended by SLURM: this step was cancelled"):
        torchrun(told("sleeps"), watch=when_all_are_there(cancel))
    assert wait_until(lambda: nothing_is_left(two_nodes, told))


@FULL
@on_cluster
def test_a_job_that_is_suspended(two_nodes, told):
    def suspend():
        two_nodes.ask("scontrol", "suspend", slurm.LEASE.held.job)

    with pytest.raises(RunFailed) as failed:
        torchrun(told("sleeps"), watch=when_all_are_there(suspend), timeout=8)
    said = f"the run: SLURM has suspended job {slurm.LEASE.held.job}, and so its ranks"
    assert str(failed.value).startswith(said)
    assert "stopped" not in str(failed.value)
    assert wait_until(lambda: nothing_is_left(two_nodes, told), GONE)


@FULL
@on_cluster
def test_a_node_that_dies_is_named(two_nodes, told):
    state = "scontrol", "update", "nodename=box2"

    def die():
        two_nodes.ask(*state, "state=down", "reason=test")

    try:
        with pytest.raises(RunFailed, match=r"node 1 \(box2\) has failed"):
            torchrun(told("sleeps"), watch=when_all_are_there(die))
    finally:
        two_nodes.ask(*state, "state=resume")
    slurm.LEASE.close()


@FULL
@on_cluster
def test_what_a_killed_fork_server_has_left_is_swept(two_nodes):
    torchrun(f"--nproc-per-node 2 {RING}")
    left = two_nodes.folder / "tmp/box1/ddp_lab-1-warm-2-box1"
    left.mkdir()
    process = kernel(f"--nproc-per-node 2 {RING}")
    assert process.wait(BEGUN) == 0
    assert not left.exists()
    assert len(servers(two_nodes, slurm.LEASE.name)) == 2  # which live


@FULL
@on_cluster
def test_a_job_whose_time_is_up(two_nodes, told, monkeypatch):
    slurm.LEASE.close()
    monkeypatch.setenv(slurm.ASKED, "--time=1")
    with pytest.raises(RunFailed, match="ended by SLURM: the job's time was up"):
        torchrun(told("sleeps"), timeout=200)
    assert wait_until(lambda: nothing_is_left(two_nodes, told))
    slurm.LEASE.close()


@FULL
@on_cluster
@pytest.mark.parametrize("end", ["kill", "interrupt"])
def test_a_job_that_still_waits_in_the_queue(end, two_nodes, told):
    slurm.LEASE.close()
    two_nodes.ask("salloc", "--no-shell", "--exclusive", "--nodes=2", "-J", "all")
    mark = f"in the queue {end} {os.getpid()}"
    wish = {slurm.ASKED: "--exclusive", "DDP_LAB_TEST": mark}
    process = kernel(told("sleeps"), **wish)
    pending = "squeue", "-h", "-t", "PENDING", "-o", "%i"
    assert wait_until(lambda: two_nodes.ask(*pending), 60)
    if end == "kill":
        process.kill()
    else:
        process.send_signal(signal.SIGINT)
    assert ("stopped by hand" in process.communicate()[1]) == (end == "interrupt")
    assert wait_until(lambda: not two_nodes.ask(*pending))
    assert wait_until(lambda: not living(mark)), living(mark)
    assert nothing_is_left(two_nodes, told)
    two_nodes.ask("scancel", "--name", "all")


@FULL
@on_cluster
def test_srun_without_torchrun(two_nodes, variant):
    words = "srun --mpi=none --nodes 2 --ntasks 3".split()
    path = "ddp_lab/nodes/from_slurm.py"
    said = two_nodes.ask(*words, sys.executable, path)
    assert "[rank 2] is local rank 0 of 1 on node 1, one of 3 in all" in said
    wrong = variant(path, 'slurm["SLURM_LOCALID"]', 'slurm["SLURM_PROCID"]')
    words = [*words, "--kill-on-bad-exit=1", sys.executable, str(wrong)]
    env = os.environ | {"SLURM_CONF": str(two_nodes.conf)}
    assert subprocess.run(words, env=env, capture_output=True).returncode


@FULL
@on_cluster
def test_srun_starts_torchruns_that_meet_by_c10d(two_nodes, monkeypatch, tmp_path):
    beside = os.path.dirname(sys.executable)  # torchrun
    monkeypatch.setenv("PATH", beside, prepend=os.pathsep)
    met = "[rank 3] is local rank 1 of 2 on node 1, one of 4 in all"
    words, script = "srun --mpi=none --nodes 2".split(), "ddp_lab/nodes/c10d.sh"
    assert met in two_nodes.ask(*words, script)
    wrong = tmp_path / "alone.sh"  # each torchrun makes a world of its own
    text = (ROOT / script).read_text().replace('"$SLURM_NNODES"', "1")
    wrong.write_text(text)
    wrong.chmod(0o755)
    env = os.environ | {"SLURM_CONF": str(two_nodes.conf)}
    said = subprocess.run([*words, str(wrong)], env=env, capture_output=True, text=True)
    assert met not in said.stdout and "[rank 1]" in said.stdout


@pytest.fixture
def submit(two_nodes, tmp_path, monkeypatch):
    """Return a function that submits a job; it returns the number and the output."""
    beside = os.path.dirname(sys.executable)  # torchrun
    monkeypatch.setenv("PATH", beside, prepend=os.pathsep)

    def submit(file: str) -> tuple[str, Path]:
        out = tmp_path / "out"
        job = two_nodes.ask("sbatch", "--parsable", "-o", str(out), str(ROOT / file))
        return job, out

    monkeypatch.setenv("PYTHONPATH", "")
    return submit


@FULL
@on_cluster
def test_the_job_of_the_lesson(two_nodes, submit):
    job, out = submit("ddp_lab/nodes/job.sbatch")
    assert wait_until(lambda: not two_nodes.ask("squeue", "-h", "-j", job), 300)
    assert lines(out, "[rank 0] received 6 from rank 3"), out.read_text()


@FULL
@on_cluster
def test_a_job_that_is_queued_again_goes_on(two_nodes, submit, monkeypatch):
    monkeypatch.setenv("PAUSE", "0.1")  # seconds in a step
    job, out = submit("ddp_lab/elastic/requeue.sbatch")
    try:
        assert wait_until(lambda: lines(out, "[rank 0] saved step 5"), 300)
        two_nodes.ask("scancel", "--batch", "--signal=USR1", job)
        # Four ranks share the file, and two may share a line.
        ended = lambda: out.read_text().count("ends 0.0 away") == 4  # noqa: E731
        assert wait_until(ended, 400), out.read_text()
        begins = re.findall(r"goes on at step (\d+)", out.read_text())
        assert len(begins) == 4 and len({*begins}) == 1
        assert lines(out, "[job] restarts so far: 1")
    finally:
        two_nodes.ask("scancel", job)
        shutil.rmtree(ROOT / f"build/requeue-{job}", ignore_errors=True)


@FULL
@on_cluster
def test_the_first_lessons(two_nodes):
    """Each lesson is a kernel of its own; they share one job."""
    words = [sys.executable, "-m", "tools.lab", "--nproc", "2", "00", "01", "02", "03"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Granted job allocation") == 1
    for name in ("00_start_here", "03_ddp_basics"):
        assert "1 rank on box2" in (ROOT / f"build/lab/{name}.html").read_text()
    ours = "squeue", "-h", "-o", "%j"
    named = [name for name in two_nodes.ask(*ours).split() if "ddp_lab" in name]
    assert wait_until(lambda: {*named} <= {slurm.LEASE.name})


def test_a_machine_without_slurm_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv(slurm.ASKED, "--time=5")
    monkeypatch.setattr(sent, "LEASE", slurm.Lease())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RunFailed, match="there is no salloc here"):
        torchrun(f"--nproc-per-node 4 {RING}")
