"""Machines that fail: a rendezvous elsewhere, a world that shrinks, a job put back."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import FULL
from slurm_cluster import Cluster, missing

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from ddp_lab.kit.run import plan

RANGE = [["--nnodes", "1:2"], ["--nproc-per-node", "2"]]
PLACE = ["--rdzv-endpoint", "127.0.0.1:29400"]


def test_a_rendezvous_that_no_node_hosts_is_named_alike_on_all():
    options = [*RANGE, PLACE, ["--rdzv-conf", "is_host=0,last_call_timeout=2"]]
    assert plan.is_for_all(options)
    made = plan.make(options, ["program.py"])
    assert made.elsewhere == "127.0.0.1:29400"
    assert made.typed[0] == made.typed[1] and "is_host=0" in str(made.typed[0])
    assert "is_host=1" not in str(made.on_loopback)


def test_a_rendezvous_that_some_node_hosts_is_the_command_of_one_node():
    assert not plan.is_for_all([*RANGE, PLACE])
    assert not plan.is_for_all([*RANGE, PLACE, ["--rdzv-conf", "is_host=1"]])
    assert plan.make(RANGE, ["program.py"]).elsewhere == ""


@FULL
@pytest.mark.processes
def test_a_world_that_shrinks_is_told_by_the_ranks_that_are_left(tmp_path, restarts):
    quick = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
    options = f"--nnodes 1:2 --nproc-per-node 2 {restarts('elastic/survive.py')}"
    program = f"ddp_lab/elastic/survive.py --dir {tmp_path} --pause 0.05"
    run = torchrun(
        f"{options} --rdzv-conf {quick} {program}",
        timeout=60,
        events=['rank 0 says "step 10": kill node 1'],
    )
    assert len(run.lines) == 2 and run["worlds"][0][-1] == 2
    assert run["worlds"][0][9] == 4 and max(run["apart"]) < 1e-5
    assert not [note for note in run.notes if "removed" in note]


@FULL
@pytest.mark.processes
@pytest.mark.skipif(bool(missing()), reason=missing() or "there is a cluster")
def test_a_job_that_is_put_back_into_the_queue_goes_on(monkeypatch, tmp_path):
    paths = str(Path(sys.executable).parent), os.environ["PATH"]
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    log = tmp_path / "out"
    with Cluster() as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        job = slurm(
            "sbatch",
            "--parsable",
            "--export=ALL,PAUSE=0.1",
            f"--output={log}",
            "ddp_lab/elastic/requeue.sbatch",
        )
        try:
            until(lambda: log.exists() and "saved step 10" in log.read_text())
            slurm("scancel", "--batch", "--signal=USR1", job)
            until(lambda: not slurm("squeue", "--noheader", "--job", job))
        finally:
            shutil.rmtree(ROOT / "build" / f"requeue-{job}", ignore_errors=True)
    said = log.read_text()
    assert said.index("restarts so far: 0") < said.index("restarts so far: 1")
    assert "[rank 0] ends 0.0 away from one that never stopped" in said


def slurm(*words: str) -> str:
    """Return what a command of SLURM prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def until(condition, seconds: float = 240.0) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the job does not get on"
        time.sleep(0.5)
