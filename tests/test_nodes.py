"""A run on several nodes, played on this machine: what is told, and that nothing stays.

Nodes are played with networks of their own where the system allows it, else on
loopback; most tests take what there is.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from forked import let_servers_be_forks
from support import FULL, wait_until, words_of

from ddp_lab import ROOT
from ddp_lab.kit import torchrun, warm_python
from whichrank import Limits, RunFailed
from whichrank.run.channels import LENT
from whichrank.run.ports import free_port

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes are played on Linux"),
]

PLAYS = ROOT / "ddp_lab" / "kit" / "played" / "room.py"
TWO = "--nnodes 2 --nproc-per-node 2"
# Every rank says where it is, and what its network is, before the rest happens.
HEAD = """
import os, resource, signal, sys, time
import torch
import torch.distributed as dist

rank, node = int(os.environ["RANK"]), int(os.environ["GROUP_RANK"])
network = os.readlink("/proc/self/ns/net")
run, _ = resource.getrlimit(resource.RLIMIT_RTTIME)  # see guard.py
with open(f"{sys.argv[1]}/{os.getpid()}", "w") as file:
    file.write(f"{network} {run}")
"""
JOIN = """
dist.init_process_group("gloo")
print(f"[rank {rank}] begins", flush=True)

def steps(count):
    for step in range(count):
        dist.all_reduce(torch.ones(1))
        print(f"[rank {rank}] step {step}", flush=True)
        time.sleep(0.2)
"""
LEAVE = "\ndist.destroy_process_group()\n"


class Room:
    """A folder in which programs are written, and in which their ranks sign."""

    def __init__(self, folder: Path):
        self.folder, self.signed = folder, folder / "signed"
        self.signed.mkdir()

    def program(self, body: str, first: str = "") -> str:
        """Write a program; return it as a part of a command.

        Args:
            body: what its ranks do.
            first: what they do before they join.
        """
        path = self.folder / "play.py"
        path.write_text(f"{HEAD}{first}{JOIN}{body}{LEAVE}")
        return f"{path} {self.signed}"

    def left(self) -> list[str]:
        """Return who is still there: ranks, and whoever keeps a network of theirs."""
        pids = [int(path.name) for path in self.signed.iterdir()]
        if found := [f"rank {pid}" for pid in pids if psutil.pid_exists(pid)]:
            return found
        texts = [path.read_text() for path in self.signed.iterdir()]
        signed = [text.split() for text in texts if text]
        networks = {name for name, _ in signed} - {os.readlink("/proc/self/ns/net")}
        # Those that have gone give their names to the next ones, say of another run.
        ours = {int(run) for _, run in signed} | {resource.RLIM_INFINITY}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                links = [process / "ns/net", *(process / "fd").iterdir()]
                if networks & {os.readlink(link) for link in links}:
                    run, _ = resource.prlimit(int(process.name), resource.RLIMIT_RTTIME)
                    if run in ours:
                        found.append(f"{process.name} keeps a network")
            except OSError:
                continue  # it has ended, or is not ours
        return found


@pytest.fixture
def room(tmp_path) -> Room:
    return Room(tmp_path)


@pytest.fixture
def loopback(monkeypatch):
    """Let nodes share this machine's network."""
    monkeypatch.setenv("DDP_LAB_LOOPBACK", "1")


def needs_networks(run) -> None:
    if "loopback" in run.played:
        pytest.skip(run.played)


# --- it works ---


@pytest.mark.parametrize("shared", [False, True], ids=["own networks", "loopback"])
def test_two_nodes_do_what_two_machines_do(room, shared, request):
    if shared:
        request.getfixturevalue("loopback")
    run = torchrun(f"{TWO} {room.program('steps(1)')}")
    assert ("loopback" in run.played) >= shared
    assert [lines[-1] for lines in run.lines] == [
        f"[rank {r}] step 0" for r in range(4)
    ]
    assert run.nodes == [0, 0, 1, 1]
    assert run.exit_codes == [0] * 4 and run.notes == []
    networks = {path.read_text().split()[0] for path in room.signed.iterdir()}
    assert len(networks) == (1 if "loopback" in run.played else 2)
    assert [len(each.split()) > 5 for each in run.typed] == [True, True]
    assert {(life.node, life.local_rank, life.rank) for life in run.lives} == {
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 2),
        (1, 1, 3),
    }
    assert all(life.how == "done" for life in run.lives)
    assert room.left() == []


def test_a_program_of_a_lesson_runs_on_two_nodes():
    run = torchrun(f"{TWO} ddp_lab/ddp/basics.py")
    assert run.exit_codes == [0] * 4 and run.notes == []


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=FULL)])
def test_a_range_of_nodes_meets_by_c10d(room, cold):
    run = torchrun(
        f"--nnodes 1:2 --nproc-per-node 1 {room.program('steps(1)')}", cold=cold
    )
    assert "--rdzv-backend c10d" in run.typed[0]
    assert run.nodes == [0, 1]
    assert room.left() == []


RUNS = [pytest.param(n, marks=[] if n == 0 else FULL) for n in range(100)]


@pytest.mark.parametrize("number", RUNS)
def test_a_hundred_runs_are_green_and_leave_nobody(room, number):
    run = torchrun(f"--nnodes 2 --nproc-per-node 1 {room.program('steps(1)')}")
    assert run.notes == []
    assert room.left() == []


# --- it fails on node 1 ---

FAULTS = {
    "raises": (
        "if rank == 3: raise ValueError('no')\nsteps(99)",
        "rank 3 (node 1, local 1): ValueError: no",
    ),
    "is killed": (
        "if rank == 3: os.kill(os.getpid(), signal.SIGKILL)\nsteps(99)",
        "rank 3 (node 1, local 1): ended by SIGKILL",
    ),
    "hangs": (
        "if rank == 3: time.sleep(600)\nsteps(99)",
        "rank 3 (node 1, local 1): has not come, and ranks 0, 1 and 2 wait in",
    ),
    "skips a collective": (
        "if rank == 3: dist.barrier()\nsteps(99)",
        "rank 3 (node 1, local 1): call 1 is all_reduce of float32 (1,)",
    ),
    "alone, without the others": (
        "if rank == 3: sys.exit(7)\ntime.sleep(600)",
        "rank 3 (node 1, local 1): exit code 7",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(w, marks=() if w in ("raises", "hangs") else FULL) for w in FAULTS],
)
def test_a_rank_of_node_1_fails(room, what):
    body, told = FAULTS[what]
    run = torchrun(f"{TWO} {room.program(body)}", timeout=9, expect_failure=True)
    assert run.failure.report().startswith(told)
    assert run.failure.rank == 3
    alone = "alone" in what  # then nobody notices, and the others are asked to end
    assert not (alone and run.failure.means)
    assert room.left() == []


EVENTS = {
    "kill node 1": "node 1: has gone, with ranks 2 and 3: its torchrun was ended by "
    "SIGKILL\n  by the event `kill node 1`",
    "stop node 1": "node 1: has gone, with ranks 2 and 3: its torchrun was asked to "
    "end\n  by the event `stop node 1`",
    "cut node 1": "node 1: is cut off: its cable is pulled\n  by the event `cut node 1`"
    "; no end after 5 seconds",
}


@pytest.mark.parametrize("what", EVENTS)
def test_node_1_is_lost(room, what):
    run = torchrun(
        f"{TWO} {room.program('steps(99)')}",
        timeout=5,
        events=[f'rank 0 says "step 1": {what}'],
        expect_failure=True,
    )
    if what.startswith("cut"):
        needs_networks(run)
    assert run.failure.report().startswith(EVENTS[what])
    assert [str(event) for event in run.events] == [what]
    assert room.left() == []


def test_what_plays_the_nodes_is_killed(room):
    killed: list[int] = []

    def kill(run) -> None:
        needs_networks(run)
        if not killed and any(run.lines):
            us = psutil.Process().children(recursive=True)
            killed.extend(p.pid for p in us if words_of(p)[2:3] == [str(PLAYS)])
            os.kill(killed[0], signal.SIGKILL)

    run = torchrun(
        f"--nnodes 2 --nproc-per-node 1 {room.program('steps(99)')}",
        timeout=20,
        watch=kill,
        expect_failure=True,
    )
    assert run.failure.kind == "nodes"
    assert "room.py" in run.failure.cause and "SIGKILL" in run.failure.cause
    assert room.left() == []


# --- the nodes do not come together ---


def test_the_second_node_never_comes(room):
    with pytest.raises(RunFailed, match="node 1 has not come, and node 0 waits at"):
        torchrun(
            f"{TWO} {room.program('steps(1)')}",
            limits=Limits(silence=4, first_sign=4),
            events=["600 seconds later: start node 1"],
        )


def test_a_port_is_given_once():
    assert len({free_port() for _ in range(500)}) == 500


@pytest.mark.parametrize(
    "rank, told",
    [
        (0, "the second node has not come: this one waits at 127.0.0.1:{}"),
        (1, "the node with --node-rank 0 has not come: nobody is at 127.0.0.1:{}"),
    ],
)
def test_one_real_node_waits_in_vain_for_the_other(room, free_port, rank, told):
    place = f"--node-rank {rank} --master-addr 127.0.0.1 --master-port {free_port}"
    with pytest.raises(RunFailed) as failed:
        limits = Limits(silence=4, first_sign=4)
        torchrun(f"--nnodes 2 {place} {room.program('steps(1)')}", limits=limits)
    assert told.format(free_port) in str(failed.value)


@pytest.mark.parametrize(
    "interface, told",
    [
        ("lo", "node 1: offers 127.0.0.1, where rank 0 finds only its own machine"),
        ("eth7", "rank 1 (node 1, local 0): RuntimeError: "),
    ],
)
def test_a_node_with_the_wrong_interface_is_named(room, interface, told):
    wrong = f"if node == 1: os.environ['GLOO_SOCKET_IFNAME'] = {interface!r}\n"
    program = room.program("steps(1)", first=wrong)
    run = torchrun(
        f"--nnodes 2 --nproc-per-node 1 {program}", timeout=20, expect_failure=True
    )
    needs_networks(run)
    assert run.failure.report().startswith(told)
    assert run.failure.symptom == "network"


@pytest.mark.parametrize(
    "options, told",
    [
        (f"--bogus 3 {__file__}", "run.py: error: unrecognized arguments: --bogus"),
        ("", "run.py: error: the following arguments are required: training_script"),
    ],
    ids=["a wrong option", "no program"],
)
def test_a_command_that_torchrun_does_not_understand(options, told):
    with pytest.raises(RunFailed) as failed:
        torchrun(f"{TWO} {options}", timeout=20)
    assert f": {told}" in failed.value.run.failure.report().splitlines()[0]


CUT_FROM_THE_START = {
    "the agents": ("", "0 seconds later: cut node 1"),
    "the ranks": (
        "print('here', flush=True)\ntime.sleep(1)\n",
        'rank 0 says "here": cut node 1',
    ),
}


@pytest.mark.parametrize("who", CUT_FROM_THE_START)
def test_who_only_tries_to_connect_again_shows_no_sign_of_life(room, who):
    before, event = CUT_FROM_THE_START[who]
    program = room.program("", first=before)
    with pytest.raises(RunFailed) as failed:
        limits = Limits(silence=6, first_sign=6)
        torchrun(f"{TWO} {program}", limits=limits, events=[event])
    needs_networks(failed.value.run)
    assert failed.value.run.failure.report().startswith("node 1: is cut off")
    assert failed.value.run.seconds < 30  # torch itself gives up after 60 or more


# --- other launchers ---


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs Open MPI's mpirun")
def test_the_lesson_says_how_mpirun_starts_ranks(monkeypatch, tmp_path):
    notebook = (ROOT / "notebooks/22_many_machines.ipynb").read_text()
    prose = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"]]
    (command,) = re.findall(r"```bash\n([^`]*mpirun[^`]*)```", "\n".join(prose))
    address = "MASTER_ADDR=node0 MASTER_PORT=29500"
    assert address in command
    here = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}"
    # The words are what is tested: what they start may be forks, which hold torch.
    (tmp_path / "python").symlink_to(warm_python())
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for setting in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(f"OMPI_{setting}", "1")
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")  # on one core
    words = ["sh", "-ec", command.replace(address, here)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    for rank in (0, 1):
        assert f"[rank {rank}] is local rank {rank} of 2 on node" in said.stdout


# --- nodes come and go ---

QUICK = (
    "--max-restarts 3 --monitor-interval 0.1 --rdzv-conf last_call_timeout=1,"
    "keep_alive_interval=1,keep_alive_max_attempt=3"
)


def test_a_rank_that_dies_is_restarted_with_all_others(room):
    dies = "if rank == 1 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
    dies += "    os.kill(os.getpid(), signal.SIGKILL)\nsteps(8)"
    run = torchrun(f"--nnodes 2 --nproc-per-node 1 {QUICK} {room.program(dies)}")
    assert [life.attempt for life in run.lives] == [0, 0, 1, 1]
    assert {life.how for life in run.lives[2:]} == {"done"}
    (note,) = run.notes
    assert note.startswith("restarted once: attempt 1 of 2 failed: rank 1: ended by")
    assert room.left() == []


@pytest.mark.parametrize(
    "shared", [False, pytest.param(True, marks=FULL)], ids=["own networks", "loopback"]
)
def test_a_node_that_dies_comes_back(room, shared, request):
    if shared:
        request.getfixturevalue("loopback")
    run = torchrun(
        f"--nnodes 1:2 --nproc-per-node 1 {QUICK} {room.program('steps(60)')}",
        events=[
            'rank 1 says "step 1": kill node 1',
            'rank 0 says "step 2": start node 1',
        ],
    )
    # On a busy machine node 0 may have begun alone, so the last attempts count.
    last = run.lives[-1].attempt
    tail = [(last - life.attempt, life.world_size) for life in run.lives][-5:]
    assert tail == [(2, 2), (2, 2), (1, 1), (0, 2), (0, 2)]
    (note,) = run.notes
    assert f"attempt {last - 1} of {last + 1} ended: node 1 has gone" in note
    if last == 2:
        assert f"attempt {last} of {last + 1} ended: node 1 has come" in note
    assert room.left() == []


@FULL
def test_a_node_that_is_absent_joins(room):
    run = torchrun(
        f"--nnodes 1:2 --nproc-per-node 1 {QUICK} {room.program('steps(60)')}",
        events=['rank 0 says "step 2": start node 1'],
    )
    assert [life.world_size for life in run.lives] == [1, 2, 2]


def test_no_node_is_started_when_nobody_is_left_to_say_so(room):
    run = torchrun(
        f"--nnodes 1:2 --nproc-per-node 1 {QUICK} {room.program('steps(1)')}",
        events=['rank 0 says "never": start node 1'],
    )
    (note,) = run.notes
    assert note.startswith("the run was over before this event:")


# --- nothing stays ---

CALLER = """
import sys
from ddp_lab.kit import torchrun
import forked
forked.servers()
try:
    torchrun(sys.argv[1], cold=len(sys.argv) > 2)
except BaseException as failed:
    print(failed, flush=True)
"""


@pytest.fixture
def launched(room, monkeypatch):
    """Return a function: a caller in a process of its own, whose ranks go on."""
    let_servers_be_forks(monkeypatch)
    monkeypatch.delenv(LENT, raising=False)
    callers = []

    def launch(cold: bool = False) -> psutil.Process:
        body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsteps(9999)"
        words = [f"{TWO} {room.program(body)}"] + ["cold"] * cold
        caller = subprocess.Popen([sys.executable, "-c", CALLER, *words], cwd=ROOT)
        callers.append(caller)
        assert wait_until(lambda: len(list(room.signed.iterdir())) == 4, 90)
        return psutil.Process(caller.pid)

    yield launch
    for caller in callers:
        caller.kill()
        caller.wait()


def started(caller: psutil.Process, words: str) -> list[psutil.Process]:
    """Return what the caller has started with these words in its command."""
    found = caller.children(recursive=True)
    return [each for each in found if words in " ".join(words_of(each))]


def test_nothing_stays_when_the_caller_is_killed(room, launched):
    launched().kill()
    assert wait_until(lambda: room.left() == [])


@FULL
def test_nothing_stays_of_a_cold_start_when_the_caller_is_killed(room, launched):
    launched(cold=True).kill()
    assert wait_until(lambda: room.left() == [])


def test_nothing_stays_when_caller_and_guard_are_killed(room, launched):
    caller = launched()
    guards = started(caller, "guard.py")
    caller.suspend()  # or it might notice the guard's end
    for process in guards:
        process.kill()
    caller.kill()
    assert wait_until(lambda: room.left() == [])


@pytest.mark.parametrize(
    "what",
    ["room.py", *(pytest.param(w, marks=FULL) for w in ("guard.py", "--node-rank 1"))],
)
def test_nothing_stays_when_one_process_is_killed(room, launched, what):
    caller = launched()
    for process in started(caller, what):
        process.kill()
    assert wait_until(lambda: room.left() == [], 40)
    caller.wait(20)


def test_nothing_stays_when_the_stop_button_is_pressed(room, launched):
    caller = launched()
    caller.send_signal(signal.SIGINT)
    assert wait_until(lambda: room.left() == [])
    caller.wait(20)
