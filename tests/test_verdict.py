"""What `ddp-lab why` says of looks at a job; no process is needed for that.

test_terminal.py asks about living programs.
"""

from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from ddp_lab import ROOT
from ddp_lab.kit.explain.cause import Kind
from ddp_lab.kit.explain.failure import find_failure
from ddp_lab.kit.record.logs import RankLog, TorchrunLog
from ddp_lab.kit.record.stacks import KIT, Frame
from ddp_lab.kit.run.probe import from_py_spy
from ddp_lab.kit.run.result import Run
from ddp_lab.kit.terminal import seen as looks
from ddp_lab.kit.terminal.follow import Output
from ddp_lab.kit.terminal.jobs import Job, Machine, Process, spawned_rank
from ddp_lab.kit.terminal.look import Look, _threads, _trouble
from ddp_lab.kit.terminal.main import main
from ddp_lab.kit.terminal.seen import Seen
from ddp_lab.kit.terminal.verdict import judge
from tests.test_say import said_twice

C10D = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
MINE = "/home/me/train.py"


def stack(line: int, call: str = "", **values: str) -> list[Frame]:
    """Return the stack of a rank at a line of its program, or in a call from there."""
    inside = [Frame(C10D, 3000, call, values)] if call else []
    return [*inside, Frame(MINE, line, "main"), Frame(MINE, 90, "<module>")]


def seen(line: int = 0, call: str = "", pid: int = 7, **more) -> Seen:
    frames = stack(line, call) if line else []
    waited = float(bool(call))
    return Seen(pid, "here", "sleeping", frames, waited=waited, **more)


WAITS = seen(30, "all_reduce")
AWAY = Seen(0, "", "away")
GONE = Seen(0, "here", "gone")


@pytest.mark.parametrize(
    "ranks, hangs, rank, line, kind, states",
    [
        (
            [WAITS, seen(20)],
            True,
            1,
            20,
            Kind.ABSENT,
            ["waits", "elsewhere"],
        ),
        (
            [WAITS, seen(20, share=0.99)],
            False,
            1,
            20,
            Kind.DOES,
            ["waits", "busy"],
        ),
        (  # the machine is full, and gives it nothing of a core
            [WAITS, seen(20, runnable=0.9)],
            False,
            1,
            20,
            Kind.DOES,
            ["waits", "busy"],
        ),
        (  # it polls, or loads something piece by piece
            [WAITS, seen(20, woken=20)],
            True,
            1,
            20,
            Kind.ABSENT,
            ["waits", "wakes"],
        ),
        (
            [WAITS, seen(20, moved=True)],
            False,
            1,
            20,
            Kind.DOES,
            ["waits", "moves"],
        ),
        (
            [seen(20, moved=True), seen(30, "all_reduce", moved=True)],
            False,
            None,
            None,
            Kind.ALL_MOVE,
            ["moves", "moves"],
        ),
        (
            [seen(20, moved=True), seen(20, moved=True)],
            False,
            None,
            None,
            Kind.ALL_MOVE,
            ["moves", "moves"],
        ),
        (
            [WAITS, WAITS, AWAY],
            True,
            None,
            30,
            Kind.DOES,
            ["waits", "waits", "away"],
        ),
        ([WAITS, GONE], True, 1, 30, Kind.ABSENT, ["waits", "left"]),
        (
            [WAITS, Seen(7, "here", "sleeping", trouble="not permitted")],
            True,
            None,
            30,
            Kind.DOES,
            ["waits", "unseen"],
        ),
        (
            [WAITS, Seen(7, "here", psutil.STATUS_STOPPED, stack(30, "all_reduce"))],
            True,
            1,
            30,
            Kind.UNABLE,
            ["waits", "stopped"],
        ),
        (
            [seen(20, share=0.9), seen(20, share=0.9)],
            False,
            None,
            20,
            Kind.DOES,
            ["busy", "busy"],
        ),
        (
            [seen(20), seen(21)],
            False,
            None,
            20,
            Kind.BUSY,
            ["elsewhere", "elsewhere"],
        ),
        (
            [WAITS, seen(31, "barrier")],
            True,
            None,
            30,
            Kind.APART,
            ["waits", "waits"],
        ),
        (
            [WAITS, seen(40, "all_reduce")],
            True,
            None,
            30,
            Kind.NOT_TOGETHER,
            ["waits", "waits"],
        ),
        (
            [seen(20, woken=9), seen(21, moved=True)],
            False,
            0,
            20,
            Kind.DOES,
            ["wakes", "moves"],
        ),
        (  # two groups, say, and a third rank that may yet come to one of them
            [WAITS, seen(31, "barrier"), seen(20, moved=True)],
            False,
            2,
            20,
            Kind.DOES,
            ["waits", "waits", "moves"],
        ),
        (  # all of those that we see receive: the others may send
            [seen(5, "recv"), seen(5, "recv"), AWAY],
            True,
            None,
            5,
            Kind.DOES,
            ["waits", "waits", "away"],
        ),
        (  # a large message
            [
                Seen(1, "here", "sleeping", stack(5, "send", dst="1"), moved=True),
                Seen(2, "here", "sleeping", stack(6, "recv", src="0")),
            ],
            False,
            None,
            None,
            Kind.ALL_MOVE,
            ["moves", "moves"],
        ),
        (  # a cycle of two is one, whatever the third does
            [
                Seen(1, "here", "sleeping", stack(5, "send", dst="1")),
                Seen(2, "here", "sleeping", stack(5, "send", dst="0")),
                seen(20, moved=True),
            ],
            False,
            None,
            5,
            Kind.CYCLE,
            ["waits", "waits", "moves"],
        ),
    ],
)
def test_what_the_looks_at_ranks_tell(ranks, hangs, rank, line, kind, states):
    failure = judge(dict(enumerate(ranks)), len(ranks), 8).failure
    told = failure.kind == "hang", failure.rank, failure.line, failure.why.kind
    assert told == (hangs, rank, line, kind)
    assert [stand.state for stand in failure.told.values()] == states
    assert not said_twice(failure)
    (watched,) = failure.also
    assert (watched.kind, watched.limit) == (Kind.WATCHED, 8)
    if kind is Kind.ALL_MOVE:
        slowest = [0] if ranks[1].waited else []
        assert [stand.rank for stand in failure.why.stands] == slowest


TORCH = "/venv/lib/python3.12/site-packages/torch"
COMPARES = [Frame(f"{TORCH}/nn/parallel/distributed.py", 9, "__init__"), *stack(30)]
COMPUTES = Frame(f"{TORCH}/_ops.py", 9, "__call__")
WRITES = Frame(f"{TORCH}/distributed/checkpoint/filesystem.py", 9, "_write_item")
JOINS = Frame(f"{TORCH}/distributed/rpc/__init__.py", 9, "init_rpc")
GATHERS = [  # as DTensor.full_tensor
    COMPUTES,
    Frame(f"{TORCH}/distributed/_functional_collectives.py", 9, "wait_tensor"),
    Frame(f"{TORCH}/distributed/tensor/_api.py", 9, "full_tensor"),
    *stack(30),
]


def on_work(line: int) -> list[Frame]:
    """Return the stack of a rank that waits for a handle, in C++."""
    frames = stack(line)
    vars(frames[0])["code"] = "handle.wait()"
    return frames


@pytest.mark.parametrize(
    "kind, stacks",
    [
        (Kind.ABSENT, [stack(30, "barrier"), stack(20), stack(30, "barrier")]),
        (Kind.APART, [stack(30, "barrier"), stack(31, "all_reduce")]),
        (Kind.NOT_TOGETHER, [stack(30, "barrier"), stack(40, "barrier")]),
        (Kind.NOT_TOGETHER, [stack(30, "barrier")] * 3),
        (Kind.LINES_APART, [*[stack(30, "barrier")] * 2, stack(31, "barrier")]),
        (Kind.ABSENT, [COMPARES, stack(20)]),  # as DDP compares its parameters
        (Kind.ABSENT, [GATHERS, stack(20)]),
        (Kind.BUSY, [[COMPUTES, *stack(30)], stack(20)]),
        (Kind.ABSENT, [stack(30, "barrier"), [WRITES, *stack(20)]]),
        (Kind.ABSENT, [[JOINS, *stack(30)], stack(20)]),
        (Kind.APART, [on_work(30), *[stack(31, "barrier")] * 2]),
        (  # whatever group each one makes
            Kind.ABSENT,
            [stack(5, "new_group", ranks=f"[{r}, 9]") for r in range(3)] + [stack(20)],
        ),
        (Kind.BUSY, [stack(20), stack(21)]),
        (Kind.CYCLE, [stack(5, "send", dst="1"), stack(5, "send", dst="0")]),
        (Kind.PAIR, [stack(5, "send", dst="1"), stack(5, "recv", src="0")]),
        (
            Kind.ROOTS_DIFFER,
            [stack(5, "reduce", dst=str(int(r == 1))) for r in range(3)],
        ),
    ],
)
def test_a_run_of_the_lab_and_a_job_of_anybody_are_explained_alike(kind, stacks):
    ranks = {r: Seen(7, "here", "sleeping", frames) for r, frames in enumerate(stacks)}
    log = TorchrunLog([RankLog(stack=frames) for frames in stacks])
    job, (run, _) = (
        judge(ranks, len(stacks), 8).failure,
        find_failure(log, 1, "timeout", 8),
    )
    assert job.why.kind is run.why.kind is kind
    assert (job.rank, job.line) == (run.rank, run.line)
    assert job.cause == run.cause
    assert [s.state for s in job.stands] == [s.state for s in run.stands]
    victim = job.rank is not None and job.stands[job.rank].name == "Work.wait"
    assert not victim, "somebody else has not sent"


def look(
    line: int,
    call: str = "",
    woken: int = 5,
    collectives: int = 0,
    carried: int = 0,
    **values: str,
) -> Look:
    frames = stack(line, call)
    frames[-2] = Frame(MINE, line, "main", values)
    return Look(
        0,
        "sleeping",
        woken=woken,
        stack=frames,
        collectives=collectives,
        carried=carried,
    )


@pytest.mark.parametrize(
    "first, last, moved",
    [
        (look(3), look(3), False),
        (look(3), look(4), True),
        (look(3, step="7"), look(3, step="8"), True),
        (look(3, x="<Tensor at 0x7f>"), look(3, x="<Tensor at 0x8f>"), False),
        # It polls at one line: is that getting on? Its line says no.
        (look(3, woken=5), look(3, woken=50), False),
        # One call that waits is not woken; the next call from the same line is.
        (look(3, "all_reduce"), look(3, "all_reduce"), False),
        (look(3, "all_reduce", 5), look(3, "all_reduce", 6), True),
        (look(3, "init_process_group", 5), look(3, "init_process_group", 9), False),
        # Signals wake whoever waits in gloo, whose own threads tell more.
        (look(3, "all_reduce", 5, 4), look(3, "all_reduce", 9, 4), False),
        (look(3, "all_reduce", 5, 4), look(3, "all_reduce", 5, 6), True),
        (look(3, "recv", 5, 4), look(3, "recv", 9, 4), True),
        (look(3, "recv"), look(3, "recv", carried=9_000_000), True),
        (look(3), look(3, carried=9_000_000), False),
    ],
)
def test_who_has_moved(first, last, moved):
    assert looks._moved([first, last]) is moved


def test_a_main_thread_that_waits_for_its_threads_leaves_the_word_to_them():
    waits = stack(30, "barrier")
    executor = Frame("/usr/lib/python3.12/concurrent/futures/thread.py", 9, "run")
    for thread, line in ((waits, 30), ([waits[0], executor], 20)):
        rank = Seen(7, "here", "sleeping", stack(20), threads=[("w", thread)])
        for share, state, at in ((0.0, "waits", line), (0.9, "busy", 20)):
            there = judge({0: replace(rank, share=share)}, 1, 8).failure.stands[0]
            assert (there.state, there.frame.line) == (state, at)


def test_who_may_be_no_member_of_a_group_is_not_blamed():
    called = Frame(
        C10D.replace("distributed_c10d", "c10d_logger"),
        83,
        "wrapper",
        {"kwargs": '{"group": <torch._C._distributed_c10d.ProcessGroup at 0x7f12>}'},
    )
    inside, *mine = stack(30, "all_reduce")
    waits = Seen(7, "here", "sleeping", [inside, called, *mine])
    for first, kind in ((waits, Kind.DOES), (WAITS, Kind.ABSENT)):
        failure = judge({0: first, 1: seen(20), 2: seen(21)}, 3, 8).failure
        assert (failure.why.kind, failure.rank) == (kind, None)
        assert judge({0: first, 1: seen(20)}, 2, 8).failure.rank == 1


def test_threads_of_remote_calls_poll_and_compute_nothing():
    path = f"{TORCH}/distributed/rpc/api.py"
    calls = [Frame(path, 9, "rpc_sync"), *stack(20)]
    serves = [Frame(MINE, 7, "slow"), Frame(path, 9, "_run_function")]
    ranks = {
        0: Seen(7, "here", "sleeping", calls, share=0.15),
        1: Seen(8, "here", "sleeping", calls, share=0.15, threads=[("", serves)]),
    }
    failure = judge(ranks, 2, 8).failure
    assert (failure.why.kind, failure.why.name) == (Kind.BUSY, "rpc")
    assert {stand.state for stand in failure.stands} == {"elsewhere"}
    ((name, frame),) = failure.stands[1].beside
    assert "remote call" in name and frame == serves[0]


@pytest.mark.parametrize("lab", [str(ROOT), "/home/me/another/clone"])
def test_what_comes_after_the_main_program_is_at_no_line_of_the_lab(lab):
    rank_py = f"{lab}{KIT}run/rank.py"
    ends = [
        Frame("/usr/lib/python3.12/threading.py", 9, "_shutdown"),
        Frame(rank_py, 96, "_finish"),
    ]
    late = [("Thread-1", stack(9)), ("", [Frame(rank_py, 7, "_answer")])]
    for threads, name, line in ((late, "thread Thread-1", 9), ([], "", None)):
        rank = Seen(7, "here", "sleeping", ends, threads=threads)
        failure = judge({0: WAITS, 1: rank}, 2, 8).failure
        there = failure.stands[1]
        assert (failure.rank, there.state, there.name) == (1, "lingers", name)
        assert (there.frame and there.frame.line) == line


def processes(monkeypatch, *table: tuple) -> Machine:
    """Return a machine with these processes: pid, parent, words, environment."""
    monkeypatch.setattr(psutil, "process_iter", lambda: [])
    machine = Machine()
    for pid, parent, words, environment in table:
        python = words.startswith("python")
        environment = {name: str(value) for name, value in environment.items()}
        machine.processes[pid] = Process(
            pid, parent, words.split(), environment, pid, "sleeping", python
        )
        machine.children.setdefault(parent, []).append(pid)
    return machine


def ranks(job: Job) -> dict[int, int]:
    return {rank: process.pid for rank, process in job.ranks.items()}


def test_a_fork_does_not_stand_where_its_parent_has_started_it():
    """py-spy shows the parent's frames below its own, and methods with their class."""
    path = ["multiprocessing/queues.py", "torch/utils/data/_utils/worker.py"]
    path = [f"/usr/lib/python3.12/{name}" for name in path]
    names = ["get", "_worker_loop", "BaseProcess._bootstrap", "Trainer.epoch"]
    files = [*path, "/usr/lib/python3.12/multiprocessing/process.py", MINE]
    frames = [
        {"filename": file, "line": 1, "name": name, "locals": None}
        for file, name in zip(files, names, strict=True)
    ]
    assert [f.name for f in from_py_spy(frames)] == [*names[:2], "_bootstrap"]
    assert from_py_spy(frames[3:]) == [Frame(MINE, 1, "epoch")]

    inside = [Frame(path[0], 1, "get"), *stack(20)]
    workers = [(8, from_py_spy(frames)), (9, from_py_spy(frames[3:]))]
    rank = Seen(7, "here", "sleeping", inside, workers=workers)
    told = judge({0: rank}, 1, 5.0).failure.told[0]
    assert told.beside == (("process 9", Frame(MINE, 1, "epoch")),)


TORCHRUN = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "x"}


def test_agent_and_workers_are_no_ranks(monkeypatch):
    one, two = TORCHRUN | {"RANK": 0}, TORCHRUN | {"RANK": 1}
    machine = processes(
        monkeypatch,
        (10, 1, "bash job.sh", {}),
        (11, 10, "python torchrun train.py", {}),
        (12, 11, "python train.py --lr 1", one),
        (13, 11, "python train.py --lr 1", two),
        (14, 13, "python train.py --lr 1", two),  # DataLoader's
        (15, 13, "python -c from multiprocessing.spawn import spawn_main", two),
        (16, 11, "", {}),  # has ended, and so has another process's child
        (17, 10, "", {}),
    )
    for pid in (16, 17):
        zombie = replace(machine.processes[pid], status=psutil.STATUS_ZOMBIE)
        machine.processes[pid] = zombie
    (job,) = machine.jobs()
    assert ranks(job) == {0: 12, 1: 13} and job.zombies == [16]
    assert (job.launcher, job.size, job.gone + job.away) == ("torchrun", 2, [])
    assert job.program == "train.py --lr 1"
    assert job.members == {12, 13, 14, 15} and job.above == {10, 11}


def test_what_a_rank_has_left_behind_is_no_rank(monkeypatch):
    table = (12, 1, "python watch.py", TORCHRUN | {"RANK": 1})
    for torch, jobs in ((True, 1), (False, 0)):  # its torchrun may have gone, too
        there = "ddp_lab.kit.terminal.jobs.has_torch"
        monkeypatch.setattr(there, lambda pid, torch=torch: torch)
        assert len(processes(monkeypatch, table).jobs()) == jobs


def test_py_spy_complains_in_its_first_line(monkeypatch):
    said = "Error: Failed to read it.\n\nStack backtrace:\n  10: main"
    monkeypatch.setattr("ddp_lab.kit.run.probe.dump", lambda *_, **__: ([], said))
    monkeypatch.setattr("ddp_lab.kit.run.probe.py_spy", lambda: "py-spy")
    assert _threads(7) == ([], "py-spy cannot read it: Failed to read it.")


@pytest.mark.parametrize("user, whose", [(0, False), (1000, True)])
def test_who_may_not_look_is_told_whose_process_it_is(monkeypatch, user, whose):
    process = SimpleNamespace(
        uids=lambda: SimpleNamespace(effective=0), username=lambda: "root"
    )
    monkeypatch.setattr(psutil, "Process", lambda pid: process)
    monkeypatch.setattr("os.geteuid", lambda: user)
    said = _trouble(7, "Error: Permission denied (os error 13)")
    assert said.startswith("not permitted: ")
    assert ("belongs to root" in said) == whose


@pytest.mark.parametrize("pods", [1, 2])
def test_a_torchrun_with_numbers_of_its_own_is_no_rank(monkeypatch, pods):
    """Kubernetes gives each pod a RANK, and torchrun passes on others."""
    table = []
    for pod in range(pods):
        told = {"RANK": pod, "WORLD_SIZE": pods, "MASTER_ADDR": "a", "MASTER_PORT": 1}
        table.append((10 + pod, 1, "python torchrun train.py", told))
        rank = {"RANK": pod, "WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "x"}
        table.append((20 + pod, 10 + pod, "python train.py", told | rank))
    (job,) = processes(monkeypatch, *table).jobs()
    assert ranks(job) == {pod: 20 + pod for pod in range(pods)}


@pytest.mark.parametrize("words", ["proxy.py /tmp/socket", "rank.py"])
def test_a_rank_of_another_lab_is_called_by_its_program(words):
    words = f"python -IS /other/ddp_lab/kit/run/{words} -u train.py --lr 1"
    rank = Process(1, 0, words.split(), {}, 0, "sleeping", True)
    assert rank.program == "train.py --lr 1"


def test_what_a_lab_holds_is_no_job(monkeypatch):
    """Its tests and its grading runs have ranks; a program's own forks are a job."""
    jobs = "ddp_lab.kit.terminal.jobs"
    numbers = {"rank": "0", "world_size": "1"}
    inside = Look(0, "sleeping", stack=[Frame(MINE, 4, "main", numbers)])
    monkeypatch.setattr(f"{jobs}.has_torch", lambda pid: True)
    monkeypatch.setattr(f"{jobs}.look", lambda pid: inside)
    server = "python /other/ddp_lab/kit/run/fork_server.py /tmp/ddp_lab-warm-x/socket"
    grader = "python /other/grade.py --no-job"
    proxy = "python -IS /other/ddp_lab/kit/run/proxy.py /run/server/socket"
    inherited = {"RANK": 0, "WORLD_SIZE": 1}
    table = [
        (10, 1, "python -m pytest", {}),
        (11, 10, server, inherited),
        (12, 11, server, inherited),  # a rank that a test holds
        (20, 10, grader, {}),
        (21, 20, grader, {}),  # the keeper of a run, its torchrun, and a rank
        (22, 21, grader, {}),
        (23, 21, grader, {}),
        (24, 22, f"{proxy} /run/case/harness.py", TORCHRUN | {"RANK": 0}),
    ]
    assert processes(monkeypatch, *table).jobs() == []
    table += [(13, 12, server, inherited)]  # by os.fork
    (job,) = processes(monkeypatch, *table).jobs()
    assert ranks(job) == {0: 13}


def test_two_jobs_are_told_apart(monkeypatch):
    by_hand = {"WORLD_SIZE": 2, "MASTER_ADDR": "localhost"}
    table = [
        (
            20 + 2 * port + rank,
            1,
            "python a.py",
            by_hand | {"MASTER_PORT": port, "RANK": rank},
        )
        for port in (1, 2)
        for rank in (0, 1)
    ]
    jobs = processes(monkeypatch, *table).jobs()
    assert [ranks(job) for job in jobs] == [{0: 24, 1: 25}, {0: 22, 1: 23}]


def test_an_old_and_a_new_job_at_one_port(monkeypatch):
    meeting = {"WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    table = [
        (pid, parent, "python a.py", meeting | {"RANK": rank})
        for pid, parent, rank in ((11, 2, 0), (12, 2, 1), (13, 3, 0), (14, 3, 1))
    ]
    jobs = processes(monkeypatch, *table).jobs()
    assert [ranks(job) for job in jobs] == [{0: 13, 1: 14}, {0: 11, 1: 12}]


def test_torchrun_in_a_slurm_job(monkeypatch):
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 5}
    monkeypatch.setattr("ddp_lab.kit.terminal.jobs.has_torch", lambda pid: True)
    machine = processes(
        monkeypatch,
        (10, 1, "bash job.sh", slurm),
        (11, 10, "python torchrun train.py", slurm),
        (12, 11, "python train.py", slurm | TORCHRUN | {"RANK": 0}),
        (13, 11, "python train.py", slurm | TORCHRUN | {"RANK": 1}),
    )
    (job,) = machine.jobs()
    assert ranks(job) == {0: 12, 1: 13}


@pytest.mark.parametrize(
    "told, gone, away",
    [
        ({"LOCAL_WORLD_SIZE": 4, "GROUP_RANK": 0}, [1, 2, 3], []),
        ({"LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0}, [1], [2, 3]),
        ({"LOCAL_WORLD_SIZE": 1, "GROUP_RANK": 0}, [], [1, 2, 3]),
        ({}, [1, 2, 3], []),
    ],
)
def test_who_is_missing(monkeypatch, told, gone, away):
    environment = {"RANK": 0, "WORLD_SIZE": 4} | told
    (job,) = processes(monkeypatch, (11, 1, "python a.py", environment)).jobs()
    assert (job.gone, job.away) == (gone, away)


def test_a_child_of_multiprocessing_is_a_rank_or_a_worker():
    torch = "/venv/lib/python3.12/site-packages/torch/"
    wrap = Frame(f"{torch}multiprocessing/spawn.py", 76, "_wrap", {"i": "3"})
    worker = Frame(f"{torch}utils/data/_utils/worker.py", 260, "_worker_loop")
    mine = Frame(MINE, 4, "demo", {"rank": "1"})
    assert spawned_rank([Frame(MINE, 9, "step"), wrap]) == 3
    assert spawned_rank([mine, wrap]) == 1, "as of two programs of one world"
    assert spawned_rank([Frame(MINE, 9, "step"), mine]) == 1
    assert spawned_rank([worker, mine]) is None
    assert spawned_rank([Frame(MINE, 9, "step")]) is None


@pytest.mark.parametrize("world", ["2", "4"])
def test_ranks_of_a_world_that_mp_spawn_is_a_part_of(monkeypatch, world):
    path = f"{TORCH}/multiprocessing/spawn.py"
    stacks = {7: [Frame(path, 200, "start_processes", {"nprocs": "2"})]}
    for pid in (8, 9):
        numbers = {"rank": str(int(world) - 10 + pid), "world_size": world}
        stacks[pid] = [Frame(MINE, 4, "demo", numbers), Frame(path, 76, "_wrap")]
    jobs = "ddp_lab.kit.terminal.jobs"
    monkeypatch.setattr(f"{jobs}.has_torch", lambda pid: pid > 7)
    looked = {pid: Look(0, "sleeping", stack=frames) for pid, frames in stacks.items()}
    monkeypatch.setattr(f"{jobs}.look", looked.__getitem__)
    words = "python train.py"
    (job,) = processes(
        monkeypatch, (7, 1, words, {}), (8, 7, words, {}), (9, 7, words, {})
    ).jobs()
    assert (job.size, job.gone) == (int(world), [])
    assert sorted([*job.ranks, *job.away]) == list(range(int(world)))


def test_what_a_run_waits_for_is_told_once(tmp_path, capsys):
    output = Output(by_rank=False)
    for state in ("", "it imports torch", "it imports torch", ""):
        run = Run("", [], [], [], [], 0.0, None, log_folder=tmp_path, state=state)
        output.update(run)
    assert capsys.readouterr().err == "note: it imports torch\n"


@pytest.fixture
def one_job(monkeypatch):
    """Let `why` find one job of this machine, and see it at once."""
    process = Process(7, 1, ["python", "train.py"], {}, 0, "sleeping", True)
    job = Job("torchrun", "train.py", 2, {0: process, 1: process})
    monkeypatch.setattr(Machine, "__init__", lambda self: setattr(self, "hidden", {}))
    monkeypatch.setattr(Machine, "jobs", lambda self: [job])
    monkeypatch.setattr(looks, "observe", lambda *_: ({0: WAITS, 1: seen(20)}, 8.0))


def test_ctrl_c_while_it_looks(one_job, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(looks, "observe", interrupted)
    assert main(["why"]) == 130
    assert capsys.readouterr().err == ""
