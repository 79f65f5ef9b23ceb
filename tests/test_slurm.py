"""Runs on the nodes of a SLURM job: a real one, of two nodes that are this machine.

Its nodes see their own processes only, and we see all, by other numbers. But nothing
there carries a mark that a guard here would look for, so only SLURM, or the kit over
there, ends it.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
import slurm_cluster
from support import FULL, living, wait_until

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from whichrank import RunFailed
from whichrank.run.channels import NNODES
from whichrank.run.command import Command
from whichrank.run.result import RunInterrupted
from whichrank.slurm import step

RING = "ddp_lab/p2p/ring.py"
WHICHRANK = Path(sys.executable).with_name("whichrank")
# Rank 3 of 4, on node 1, does what it is told, and so does what it leaves behind.
PROGRAM = """
import fcntl, os, signal, subprocess, sys, time

what, folder = sys.argv[1:]
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
fcntl.flock(os.open(f"{folder}/{rank}", os.O_CREAT), fcntl.LOCK_EX)
if what == "hangs":  # the others meet without torch, whose import takes seconds
    import torch.distributed as dist

    dist.init_process_group("gloo")
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what in ("escapes", "leaves a child"):
    subprocess.Popen(
        ["flock", "--no-fork", f"{folder}/left by {rank}", "sleep", "600"],
        env={}, start_new_session=True,
    )
files = 2 * ranks if what in ("escapes", "leaves a child") else ranks
while len(os.listdir(folder)) < files:
    time.sleep(0.01)
print(f"[rank {rank}] is here", flush=True)
if rank == 3:
    if what == "raises":
        raise ValueError("on node 1")
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hangs":
        time.sleep(600)
if what == "hangs":
    dist.barrier()
if what != "leaves a child":
    time.sleep(600)
"""
KERNEL = """
import pathlib, sys
from ddp_lab.kit import torchrun
from whichrank.slurm import step
step.RUNS = pathlib.Path(sys.argv[2])
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
"""Seconds until ranks run: a kernel, and two imports of torch on each node."""
GONE = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    shared = [tmp_path_factory.getbasetemp()]
    with slurm_cluster.Cluster(shared=shared) as cluster:
        yield cluster
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
def allocation(cluster, tmp_path, monkeypatch):
    """Be in a job with both nodes; return its number."""
    monkeypatch.setattr(step, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.ask("salloc", "--no-shell", "--nodes=2", "--job-name=lab", "--time=10")
    (job,) = cluster.ask("squeue", "-h", "-n", "lab", "-o", "%i").split()
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "box[1-2]")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    yield job
    cluster.ask("scancel", job)
    assert wait_until(lambda: not cluster.jobs()), cluster.jobs()


@pytest.fixture
def told(tmp_path):
    """Return a function: the command for 4 ranks, the last of which does something."""
    program, folder = tmp_path / "told.py", tmp_path / "locks"
    program.write_text(PROGRAM)
    folder.mkdir()

    def command(what: str) -> str:
        return f"--nnodes 2 --nproc-per-node 2 {program} '{what}' {folder}"

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
    runs = list(step.RUNS.glob("*")) if step.RUNS.exists() else []
    return not (told.alive() or cluster.ask("squeue", "-h", "-s") or runs)


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
    words = [sys.executable, "-c", KERNEL, command, str(step.RUNS)]
    env = os.environ | environment
    return subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)


# --- what a command becomes, without a cluster ---


@pytest.mark.parametrize(
    "around, options, taken",
    [
        ("2", "--nnodes 2", True),
        ("2", "--nnodes 1:2", True),
        ("3", "--nnodes=2", True),
        ("2", "--nnodes 3", False),
        ("", "--nnodes 2", False),
        ("2", "--nnodes=2 --rdzv-endpoint=a:1 --rdzv-conf=is_host=0", False),
    ],
)
def test_what_is_for_slurm(around, options, taken, monkeypatch):
    if around:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_JOB_NUM_NODES", around)
    assert step.takes(Command.parse(options)) == taken


CANCELLED = "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-22T16:05:11"


@pytest.mark.parametrize(
    "said, code, ends, lost",
    [
        (f"{CANCELLED} ***", 137, {}, ("slurm", "cancelled")),
        (f"{CANCELLED} DUE TO TIME LIMIT ***", 143, {}, ("slurm", "time limit")),
        # srun ends the rest of a step of which a task has failed.
        (f"{CANCELLED} ***", 143, {0: (1, "SLURM"), 1: (1, "")}, ()),
        (
            f"{CANCELLED} ***",
            143,
            {0: (1, "SLURM has ended it")},
            ("slurm", "cancelled"),
        ),
        ("", -9, {}, ("srun", "SIGKILL")),
        ("srun: error: n1: task 0: Exited with exit code 1", 1, {}, ()),
    ],
)
def test_what_has_ended_a_run(said, code, ends, lost, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    (tmp_path / "err").write_text(f"{said}\n")
    for node, (exit_code, done) in ends.items():
        home = tmp_path / f"node_{node}"
        home.mkdir()
        step.names.write(home / "exit.json", {"code": exit_code, "why": done})
    run = step.SlurmStep(Command())
    run._folder = tmp_path
    assert run.ended_by(code) == lost


@pytest.mark.parametrize("nodes, ends", [("2", "1"), ("1:2", "0")])
def test_srun_ends_the_whole_step_unless_nodes_may_go(
    nodes, ends, tmp_path, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setattr(step, "RUNS", tmp_path)
    monkeypatch.setattr(step, "Guarded", lambda command, *rest: command)
    run = step.SlurmStep(Command.parse(f"--nnodes {nodes} program.py"))
    run.hosts = ["n1", "n2"]
    with closing(run):
        assert f"--kill-on-bad-exit={ends}" in run.start()


def test_only_the_steps_of_a_run_are_its_own(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    run = step.SlurmStep(Command())
    listed = f"5.0 somebody's own step\n5.1 {run.name}\n5.batch batch\n"
    monkeypatch.setattr(step, "ask", lambda *words: listed)
    assert run._steps() == ["5.1"]


def test_a_step_is_cancelled_until_it_is_gone(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    run = step.SlurmStep(Command())
    listed, asked = [f"5.1 {run.name}\n"] * 2, []

    def ask(*words: str) -> str:
        if words[0] == "squeue":
            return listed.pop() if listed else ""
        asked.append(words)
        return ""

    monkeypatch.setattr(step, "ask", ask)
    run.end(stopped=False)
    assert asked == []
    run.end(stopped=True)
    assert asked == [("scancel", "--quiet", "5.1")] * 2


def test_a_node_list_that_nobody_explains_is_told(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setattr(step, "ask", lambda *words: "")
    with pytest.raises(
        RunFailed, match=r"does not say which nodes n\[1-2\] stands for"
    ):
        torchrun(f"--nnodes 2 {RING}")


def test_srun_hears_no_wishes_that_are_ours(monkeypatch):
    env = {"SLURM_NTASKS": "7", "SLURM_CONF": "/conf", "PATH": "/bin"}
    assert step.clean(env) == {"SLURM_CONF": "/conf", "PATH": "/bin"}


# --- a run ---


@FULL
@on_cluster
def test_the_same_command_runs_on_both_nodes(allocation):
    run = torchrun(f"--nnodes 2 --nproc-per-node 2 {RING}")
    assert run["arrived"] == run["expected"] == [6, 0, 1, 3]
    assert run.nodes == [0, 0, 1, 1]
    assert run.played == f"by SLURM, in job {allocation}, on box1, box2"
    assert run.command == f"torchrun --nnodes 2 --nproc-per-node 2 {RING}"
    assert not list(step.RUNS.glob("*"))


@FULL
@on_cluster
def test_in_the_shell_of_an_allocation(cluster):
    words = f"salloc --nodes 2 {WHICHRANK} torchrun --nnodes 2 {RING}"
    env = os.environ | {"SLURM_CONF": str(cluster.conf)}
    done = subprocess.run(words.split(), env=env, capture_output=True, text=True)
    assert "[rank 1] received 0 from rank 0\n" in done.stdout
    assert "on box1, box2" in done.stderr and done.returncode == 0


@pytest.mark.parametrize(
    "words, shared",
    [
        ("--nproc-per-node 4", "--nnodes 2 --nproc-per-node 2"),
        ("--nproc-per-node 3", ""),
        ("--nnodes 2 --nproc-per-node 2", ""),
        ("--standalone --nproc-per-node 2", ""),
        ("", ""),
    ],
)
def test_ranks_are_shared_between_nodes_where_they_divide(words, shared, monkeypatch):
    command = Command.parse(words)
    assert step.spread(command) == command
    monkeypatch.setenv(NNODES, "2")
    assert step.spread(command) == command, "only in a job"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert " ".join(step.spread(command).words) == (shared or words)


@FULL
@on_cluster
def test_a_lesson_runs_on_two_nodes_that_says_nothing_of_them(allocation, monkeypatch):
    monkeypatch.setenv(NNODES, "2")
    run = torchrun(f"--nproc-per-node 4 {RING}")
    assert run.nodes == [0, 0, 1, 1] and "--nnodes" not in run.command


@on_cluster
@pytest.mark.parametrize(
    "what, cause",
    [
        ("raises", "ValueError: on node 1"),  # and SLURM ends the ranks that sleep
        pytest.param("is killed", "ended by SIGKILL", marks=FULL),
        pytest.param(
            "hangs", "has not come, and ranks 0, 1 and 2 wait in barrier", marks=FULL
        ),
    ],
)
def test_a_fault_on_the_second_node_is_told_as_at_home(
    what, cause, cluster, allocation, told
):
    with pytest.raises(RunFailed) as failed:
        torchrun(told(what), timeout=5 if what == "hangs" else 400)
    said = str(failed.value)
    assert failed.value.run.seconds < 300
    assert said.startswith(f"rank 3 (node 1, local 1, on box2): {cause}")
    if what == "hangs":
        assert (
            "rank 3 (node 1, local 1, on box2): stands at" in said
            and "time.sleep(600)" in said
        )
    assert wait_until(lambda: nothing_is_left(cluster, told))


@on_cluster
@pytest.mark.parametrize("what", ["escapes", pytest.param("deaf", marks=FULL)])
def test_the_stop_button_ends_all_on_all_nodes(what, cluster, allocation, told):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted) as stopped:
        torchrun(told(what), watch=when_all_are_there(stop))
    assert "rank 2 (node 1, local 0, on box2): stands at" in str(stopped.value)
    assert wait_until(lambda: nothing_is_left(cluster, told))


@FULL
@on_cluster
def test_what_a_rank_leaves_behind_on_a_node_is_ended(cluster, allocation, told):
    torchrun(told("leaves a child"))
    assert wait_until(lambda: nothing_is_left(cluster, told))


@FULL
@on_cluster
def test_a_killed_srun_leaves_nothing(cluster, allocation, told):
    def kill_srun():
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == "srun":
                    process.kill()

    with pytest.raises(RunFailed, match="srun was ended by SIGKILL from outside"):
        torchrun(told("deaf"), watch=when_all_are_there(kill_srun))
    assert wait_until(lambda: nothing_is_left(cluster, told))


@FULL
@on_cluster
def test_a_dead_kernel_leaves_no_step(cluster, allocation, told):
    mark = f"dead {os.getpid()}"
    process = kernel(told("deaf"), DDP_LAB_TEST=mark)
    try:
        assert wait_until(lambda: len(told.alive()) == 4, BEGUN)
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: not living(mark), GONE), living(mark)
    assert wait_until(lambda: nothing_is_left(cluster, told), GONE)
    assert cluster.ask("squeue", "-h", "-j", allocation)  # which goes on


@FULL
@on_cluster
def test_a_job_that_is_cancelled_from_outside(cluster, allocation, told):
    def cancel():
        cluster.ask("scancel", allocation)

    with pytest.raises(RunFailed, match="the run: ended by SLURM: cancelled"):
        torchrun(told("sleeps"), watch=when_all_are_there(cancel))
    with pytest.raises(RunFailed, match="the run: srun: error: .* has expired"):
        torchrun(told("sleeps"))


# --- what takes longer ---


def lines(path, text: str) -> list[str]:
    """Return the lines of a file with this text in them; none if it is not there."""
    said = path.read_text().splitlines() if path.exists() else []
    return [line for line in said if text in line]


@FULL
@on_cluster
def test_nodes_that_may_come_and_go(allocation):
    run = torchrun(f"--nnodes 1:2 --nproc-per-node 2 {RING}")
    assert sorted(run.nodes) == [0, 0, 1, 1] and run["arrived"] == [6, 0, 1, 3]
    again = torchrun(f"--nnodes 2 --nproc-per-node 1 --max-restarts 2 {RING}")
    assert again["arrived"] == [1, 0]


@FULL
@on_cluster
def test_a_job_whose_time_is_up(cluster, allocation, told):
    def shorten():
        cluster.ask("scontrol", "update", f"jobid={allocation}", "timelimit=1")

    with pytest.raises(RunFailed, match="ended by SLURM: time limit"):
        torchrun(told("sleeps"), timeout=200, watch=when_all_are_there(shorten))
    assert wait_until(lambda: nothing_is_left(cluster, told))


@FULL
@on_cluster
def test_a_node_that_fails(cluster, allocation, told):
    state = "scontrol", "update", "nodename=box2", "reason=test"

    def die():
        cluster.ask(*state, "state=down")

    try:
        with pytest.raises(RunFailed, match="ended by SLURM: node failure"):
            torchrun(told("sleeps"), watch=when_all_are_there(die))
    finally:
        cluster.ask(*state, "state=resume")


@FULL
@on_cluster
def test_srun_without_torchrun(cluster, variant):
    words = "srun --mpi=none --nodes 2 --ntasks 3".split()
    path = "ddp_lab/nodes/from_slurm.py"
    said = cluster.ask(*words, sys.executable, path)
    assert "[rank 2] is local rank 0 of 1 on node 1, one of 3 in all" in said
    wrong = variant(path, 'slurm["SLURM_LOCALID"]', 'slurm["SLURM_PROCID"]')
    words = [*words, "--kill-on-bad-exit=1", sys.executable, str(wrong)]
    env = os.environ | {"SLURM_CONF": str(cluster.conf)}
    assert subprocess.run(words, env=env, capture_output=True).returncode


@FULL
@on_cluster
def test_srun_starts_torchruns_that_meet_by_c10d(cluster, monkeypatch, tmp_path):
    beside = os.path.dirname(sys.executable)  # torchrun
    monkeypatch.setenv("PATH", beside, prepend=os.pathsep)
    met = "[rank 3] is local rank 1 of 2 on node 1, one of 4 in all"
    words, script = "srun --mpi=none --nodes 2".split(), "ddp_lab/nodes/c10d.sh"
    assert met in cluster.ask(*words, script)
    wrong = tmp_path / "alone.sh"  # each torchrun makes a world of its own
    text = (ROOT / script).read_text().replace('"$SLURM_NNODES"', "1")
    wrong.write_text(text)
    wrong.chmod(0o755)
    env = os.environ | {"SLURM_CONF": str(cluster.conf)}
    said = subprocess.run([*words, str(wrong)], env=env, capture_output=True, text=True)
    assert met not in said.stdout and "[rank 1]" in said.stdout


@pytest.fixture
def submit(cluster, tmp_path, monkeypatch):
    """Return a function that submits a job; it returns the number and the output."""
    beside = os.path.dirname(sys.executable)  # torchrun
    monkeypatch.setenv("PATH", beside, prepend=os.pathsep)

    def submit(file: str) -> tuple[str, Path]:
        out = tmp_path / "out"
        job = cluster.ask("sbatch", "--parsable", "-o", str(out), str(ROOT / file))
        return job, out

    monkeypatch.setenv("PYTHONPATH", "")
    return submit


@FULL
@on_cluster
def test_the_job_of_the_lesson(cluster, submit):
    job, out = submit("ddp_lab/nodes/job.sbatch")
    assert wait_until(lambda: not cluster.ask("squeue", "-h", "-j", job), 300)
    assert lines(out, "[rank 0] received 6 from rank 3"), out.read_text()


@FULL
@on_cluster
def test_a_job_that_is_queued_again_goes_on(cluster, submit, monkeypatch):
    monkeypatch.setenv("PAUSE", "0.1")  # seconds in a step
    job, out = submit("ddp_lab/elastic/requeue.sbatch")
    try:
        assert wait_until(lambda: lines(out, "[rank 0] saved step 5"), 300)
        cluster.ask("scancel", "--batch", "--signal=USR1", job)
        # Four ranks share the file, and two may share a line.
        ended = lambda: out.read_text().count("ends 0.0 away") == 4  # noqa: E731
        assert wait_until(ended, 400), out.read_text()
        begins = re.findall(r"goes on at step (\d+)", out.read_text())
        assert len(begins) == 4 and len({*begins}) == 1
        assert lines(out, "[job] restarts so far: 1")
    finally:
        cluster.ask("scancel", job)
        shutil.rmtree(ROOT / f"build/requeue-{job}", ignore_errors=True)
