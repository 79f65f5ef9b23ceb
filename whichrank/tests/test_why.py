"""What `whichrank why` says of looks at a job; no process is needed for that.

test_terminal.py asks about living programs.
"""

import os
import threading
from collections import Counter
from dataclasses import replace

import psutil
import pytest
from support import HOUSE
from test_evidence import said_twice

from whichrank.explain.causes.beside import StoodStill, Unrecorded
from whichrank.explain.causes.waiting import (
    Absent,
    Apart,
    Busy,
    Circle,
    Does,
    RootsDiffer,
)
from whichrank.explain.find import find_failure
from whichrank.record.logs import RankLog, TorchrunLog
from whichrank.record.stacks import Frame
from whichrank.run import probe
from whichrank.run.probe import from_py_spy
from whichrank.run.result import Run
from whichrank.terminal import jobs, looks
from whichrank.terminal.follow import Output
from whichrank.terminal.jobs import Job, Machine, Process
from whichrank.terminal.looks import GLOO_THREAD, MAIN, Look, Seen
from whichrank.terminal.main import main
from whichrank.terminal.why import judge

C10D = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
MINE = "/home/me/train.py"


def stack(line: int, call: str = "", **values: str) -> list[Frame]:
    """Return the stack of a rank at a line of its program, or in a call from there."""
    inside = [Frame(C10D, 3000, call, values)] if call else []
    return [*inside, Frame(MINE, line, "main"), Frame(MINE, 90, "<module>")]


def seen(line: int = 0, call: str = "", moved: bool = False, **more) -> Seen:
    log = RankLog(stack=stack(line, call) if line else [])
    return Seen(log, 7, moved=moved, **more)


def standing(*stacks: list[Frame]) -> dict[int, Seen]:
    """Return what was seen of ranks that have stood there all the time."""
    return {r: Seen(RankLog(stack=s), 7) for r, s in enumerate(stacks)}


WAITS = seen(30, "all_reduce")
AWAY = None
GONE = Seen(looks.GONE)


@pytest.mark.parametrize(
    "ranks, rank, line, kind, states",
    [
        (
            [WAITS, seen(20)],
            1,
            20,
            Absent,
            ["waits", "elsewhere"],
        ),
        (
            [WAITS, seen(20, share=0.99)],
            1,
            20,
            Does,
            ["waits", "busy"],
        ),
        (
            [WAITS, seen(20, moved=True)],
            1,
            20,
            Does,
            ["waits", "moves"],
        ),
        (
            [seen(20, moved=True), seen(30, "all_reduce", moved=True)],
            None,
            None,
            Does,
            ["moves", "moves"],
        ),
        (
            [seen(20, moved=True), seen(20, moved=True)],
            None,
            None,
            Does,
            ["moves", "moves"],
        ),
        (
            [WAITS, WAITS, AWAY],
            None,
            30,
            Does,
            ["waits", "waits", "away"],
        ),
        ([WAITS, GONE], 1, 30, Absent, ["waits", "left"]),
        (
            [WAITS, seen(trouble="not permitted")],
            None,
            30,
            Does,
            ["waits", "unseen"],
        ),
        (
            [WAITS, Seen(RankLog(stack=stack(30, "all_reduce"), stopped=True))],
            1,
            30,
            Absent,
            ["waits", "stopped"],
        ),
        (
            [seen(20, share=0.9), seen(20, share=0.9)],
            None,
            20,
            Does,
            ["busy", "busy"],
        ),
        (
            [seen(20), seen(21)],
            None,
            20,
            Busy,
            ["elsewhere", "elsewhere"],
        ),
        (
            [WAITS, seen(31, "barrier")],
            None,
            30,
            Apart,
            ["waits", "waits"],
        ),
        (
            [WAITS, seen(40, "all_reduce")],
            None,
            30,
            Apart,
            ["waits", "waits"],
        ),
        (  # it may poll
            [seen(30, "all_reduce", share=0.9), seen(20)],
            1,
            20,
            Absent,
            ["waits", "elsewhere"],
        ),
        (  # two groups, say, and a third rank that may yet come to one of them
            [WAITS, seen(31, "barrier"), seen(20, moved=True)],
            2,
            20,
            Does,
            ["waits", "waits", "moves"],
        ),
        (  # all of those that we see receive: the others may send
            [seen(5, "recv"), seen(5, "recv"), AWAY],
            None,
            5,
            Does,
            ["waits", "waits", "away"],
        ),
        (  # a cycle of two is one, whatever the third does
            [
                Seen(RankLog(stack=stack(5, "send", dst="1"))),
                Seen(RankLog(stack=stack(5, "send", dst="0"))),
                seen(20, moved=True),
            ],
            None,
            5,
            Circle,
            ["waits", "waits", "moves"],
        ),
    ],
)
def test_what_the_looks_at_ranks_tell(ranks, rank, line, kind, states):
    here = {r: each for r, each in enumerate(ranks) if each}
    failure = judge(here, len(ranks), 8)
    assert (failure.rank, failure.line, type(failure.why)) == (rank, line, kind)
    assert [stand.state for stand in failure.by_rank.values()] == states
    assert not said_twice(failure)
    (watched,) = failure.also
    assert (type(watched), watched.seconds) == (StoodStill, 8)


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
        (Absent, [stack(30, "barrier"), stack(20), stack(30, "barrier")]),
        (Apart, [stack(30, "barrier"), stack(31, "all_reduce")]),
        (Apart, [stack(30, "barrier"), stack(40, "barrier")]),
        (Apart, [stack(30, "barrier")] * 3),
        (Apart, [*[stack(30, "barrier")] * 2, stack(31, "barrier")]),
        (Absent, [COMPARES, stack(20)]),  # as DDP compares its parameters
        (Absent, [GATHERS, stack(20)]),
        (Busy, [[COMPUTES, *stack(30)], stack(20)]),
        (Absent, [stack(30, "barrier"), [WRITES, *stack(20)]]),
        (Absent, [[JOINS, *stack(30)], stack(20)]),
        (Apart, [on_work(30), *[stack(31, "barrier")] * 2]),
        (  # whatever group each one makes
            Absent,
            [stack(5, "new_group", ranks=f"[{r}, 9]") for r in range(3)] + [stack(20)],
        ),
        (Busy, [stack(20), stack(21)]),
        (Circle, [stack(5, "send", dst="1"), stack(5, "send", dst="0")]),
        (Circle, [stack(5, "send", dst="1"), stack(5, "recv", src="0")]),
        (
            RootsDiffer,
            [stack(5, "reduce", dst=str(int(r == 1))) for r in range(3)],
        ),
    ],
)
def test_a_run_of_the_lab_and_a_job_of_anybody_are_explained_alike(kind, stacks):
    log = TorchrunLog([RankLog(stack=frames) for frames in stacks])
    job = judge(standing(*stacks), len(stacks), 8)
    run, _ = find_failure(log, 1, "timeout", 8)
    assert type(job.why) is type(run.why) is kind
    assert (job.rank, job.line) == (run.rank, run.line)
    assert job.cause == run.cause
    assert [s.state for s in job.stands] == [s.state for s in run.stands]
    victim = job.rank is not None and job.stands[job.rank].name == "Work.wait"
    assert not victim, "somebody else has not sent"


@pytest.mark.parametrize(
    "code, waits",
    [
        ("time.sleep(600); handle.wait()", False),
        ("s.wait(['ready'])", False),  # a store's
        ("s.wait(); r.wait()", True),
    ],
)
def test_what_may_be_no_handle_is_not_said_to_be_waited_for(code, waits):
    stacks = [on_work(30), stack(31, "barrier")]
    vars(stacks[0][0])["code"] = code
    job = judge(standing(*stacks), 2, 8)
    assert type(job.why) is (Apart if waits else Absent)
    assert (job.rank, job.line) == ((None, 30) if waits else (0, 30))


def test_not_every_rank_waits_where_one_stands_at_a_line_of_its_own():
    job = judge(standing(on_work(30), on_work(30), stack(20)), 3, 8)
    assert (type(job.why), job.rank, job.line) == (Does, 2, 20)
    assert "every rank" not in job.cause


@pytest.mark.parametrize("share, rank", [(0.0, None), (0.99, 0)])
def test_who_is_idle_in_a_backward_may_wait_for_gradients(share, rank):
    engine = Frame(f"{TORCH}/autograd/graph.py", 9, "_engine_run_backward")
    backward = Seen(RankLog(stack=[engine, *stack(20)]), 7, share)
    failure = judge({0: backward, 1: seen(30, "barrier")}, 2, 8)
    assert failure.rank == rank, failure.report()
    assert share or "rank 0 in backward, rank 1 in barrier" in failure.cause


def look(
    line: int, call: str = "", woken: int = 5, gloo: int = 0, **values: str
) -> Look:
    frames = stack(line, call)
    frames[-2] = Frame(MINE, line, "main", values)
    threads = Counter({MAIN: woken, GLOO_THREAD: gloo})
    return Look(0, RankLog(stack=frames), woken=threads)


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
        # Signals wake whoever waits in a collective; its thread tells more.
        (look(3, "all_reduce", 5, 4), look(3, "all_reduce", 9, 4), False),
        (look(3, "all_reduce", 5, 4), look(3, "all_reduce", 5, 6), True),
        (look(3, "recv", 5, 4), look(3, "recv", 9, 4), True),
    ],
)
def test_who_has_moved(first, last, moved):
    assert looks._moved([first, last]) is moved


def test_a_rank_is_busy_or_its_threads_speak_for_it(monkeypatch):
    """The looks at a process, as psutil and py-spy give them."""
    joins = [Frame(threading.__file__, 0, "join"), *stack(20)]
    threads = [("t", stack(30, "barrier")), (MAIN, joins)]
    monkeypatch.setattr(probe, "dump", lambda *_, **__: (threads, ""))
    monkeypatch.setattr(looks, "_woken", lambda pid: Counter())
    one = replace(looks.look(os.getpid()), time=0.0, cpu=0.0)
    for used, state, line in ((0.0, "waits", 30), (0.9, "busy", 20)):
        last = replace(one, time=1.0, cpu=used)
        found = looks._seen(os.getpid(), [one, last])
        (there,) = judge({0: found}, 1, 8).stands
        assert (there.state, there.frame.line) == (state, line)


def test_a_process_that_ends_while_we_look_has_left():
    assert looks.look(2**22 + 1).log is looks.GONE


def test_nccl_may_wait_where_nobody_sees_it():
    away = replace(seen(20), nccl=True)
    also = judge({0: WAITS, 1: away}, 2, 8).also
    assert [type(why) for why in also] == [StoodStill, Unrecorded]
    (only,) = judge({0: replace(WAITS, nccl=True), 1: seen(20)}, 2, 8).also
    assert isinstance(only, StoodStill)


def test_who_may_be_no_member_of_a_group_is_not_blamed():
    called = Frame(
        C10D.replace("distributed_c10d", "c10d_logger"),
        83,
        "wrapper",
        {"kwargs": '{"group": <torch._C._distributed_c10d.ProcessGroup at 0x7f12>}'},
    )
    inside, *mine = stack(30, "all_reduce")
    waits = Seen(RankLog(stack=[inside, called, *mine]))
    for first, kind in ((waits, Does), (WAITS, Absent)):
        failure = judge({0: first, 1: seen(20), 2: seen(21)}, 3, 8)
        assert (type(failure.why), failure.rank) == (kind, None)
        assert judge({0: first, 1: seen(20)}, 2, 8).rank == 1


@pytest.mark.parametrize("lab", [str(HOUSE), "/home/me/another/clone"])
def test_what_comes_after_the_main_program_is_at_no_line_of_the_lab(lab):
    program_py = f"{lab}/whichrank/run/inside/program.py"
    ends = [
        Frame("/usr/lib/python3.12/threading.py", 9, "_shutdown"),
        Frame(program_py, 96, "_finish"),
    ]
    late = [("Thread-1", stack(9)), ("", [Frame(program_py, 7, "_answer")])]
    for threads, name, line in ((late, "thread Thread-1", 9), ([], "", None)):
        rank = Seen(RankLog(stack=ends, threads=dict(threads)))
        failure = judge({0: WAITS, 1: rank}, 2, 8)
        there = failure.stands[1]
        assert (failure.rank, there.state, there.name) == (1, "lingers", name)
        assert (there.frame and there.frame.line) == line


def processes(monkeypatch, *table: tuple) -> Machine:
    """Return a machine with these processes: pid, parent, words, environment."""
    monkeypatch.setattr(psutil, "process_iter", lambda facts: [])
    machine = Machine()
    table = (os.getpid(), 0, "python", {}), *table
    for pid, parent, words, environment in table:
        env = {name: str(value) for name, value in environment.items()}
        machine.processes[pid] = Process(
            pid, parent, words.split(), env, pid, "/home/me", "python" in words[:6]
        )
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


MEETING = {"MASTER_ADDR": "a", "MASTER_PORT": 1}
TORCHRUN = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "LOCAL_RANK": 0}
TORCHRUN |= {"TORCHELASTIC_RUN_ID": "x", **MEETING}


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
    )
    (job,) = machine.jobs()
    assert ranks(job) == {0: 12, 1: 13}
    assert (job.launcher, job.size, job.gone) == ("torchrun", 2, set())
    assert job.program == "train.py --lr 1"
    assert job.members == {12, 13, 14, 15} and job.above == {10, 11}


def test_what_a_rank_has_left_behind_is_no_rank(monkeypatch):
    table = (12, 1, "python watch.py", TORCHRUN | {"RANK": 1})
    for torch, many in ((True, 1), (False, 0)):  # its torchrun may have gone, too
        monkeypatch.setattr(jobs, "has_torch", lambda pid, torch=torch: torch)
        assert len(processes(monkeypatch, table).jobs()) == many


@pytest.mark.parametrize(
    "said, told",
    [
        (
            "Error: Failed to read it.\n\nStack backtrace:\n  10: main",
            "py-spy cannot read it: Failed to read it.",
        ),
        (
            "Error: Permission denied (os error 13)",
            "not permitted (Permission denied (os error 13)): sudo would be; "
            "a container needs --cap-add SYS_PTRACE",
        ),
        ("", "py-spy cannot read it: no answer"),
    ],
)
def test_why_there_is_no_stack(monkeypatch, said, told):
    monkeypatch.setattr(probe, "dump", lambda *_, **__: ([], said))
    assert looks.look(os.getpid()).trouble == told


@pytest.mark.parametrize("words", ["proxy.py /tmp/socket", "rank.py"])
def test_a_rank_of_another_lab_is_called_by_its_program(words):
    words = f"python -IS /other/whichrank/run/{words} -u train.py --lr 1"
    rank = Process(1, 0, words.split(), {}, 0, "/home/me", True)
    assert rank.program == "train.py --lr 1"


def test_what_a_lab_holds_is_no_job(monkeypatch):
    """Its tests and its grading runs have ranks, too."""
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    server = "python /other/whichrank/run/fork_server.py /tmp/whichrank-warm-x/socket"
    grader = "python /other/grade.py --no-job"
    proxy = "python -IS /other/whichrank/run/proxy.py /run/server/socket"
    inherited = TORCHRUN | {"RANK": 0}
    machine = processes(
        monkeypatch,
        (10, 1, "python -m pytest", {}),
        (11, 10, server, inherited),
        (12, 11, server, inherited),  # a rank that a test holds
        (20, 10, grader, {}),
        (21, 20, grader, {}),  # the keeper of a run, its torchrun, and a rank
        (22, 21, grader, {}),
        (23, 21, grader, {}),
        (24, 22, f"{proxy} /run/case/harness.py", TORCHRUN | {"RANK": 0}),
    )
    assert machine.jobs() == []


def test_a_rank_of_the_lab_is_a_fork_that_its_proxy_names(monkeypatch, tmp_path):
    (tmp_path / "pid").write_text("12")
    log = {"TORCHELASTIC_ERROR_FILE": tmp_path / "error.json", "RANK": 0}
    machine = processes(
        monkeypatch,
        (10, 1, "python -m ipykernel", {}),
        (11, 10, "python /lab/whichrank/run/fork_server.py x", {}),
        (12, 11, "python /lab/whichrank/run/fork_server.py x", {}),
        (20, 10, "python -m torch.distributed.run a.py", {}),
        (21, 20, "python -IS /lab/whichrank/run/proxy.py x -u a.py", TORCHRUN | log),
    )
    (job,) = machine.jobs()
    assert ranks(job) == {0: 12} and job.program == "a.py"
    assert {12, 21} <= job.members and {10, 11, 20} <= job.above


def test_two_jobs_are_told_apart(monkeypatch):
    table = [
        (
            20 + 2 * port + rank,
            10 + port,
            "python a.py",
            TORCHRUN | {"MASTER_PORT": port, "RANK": rank},
        )
        for port in (1, 2)
        for rank in (0, 1)
    ]
    table += [(10 + port, 1, "python torchrun a.py", {}) for port in (1, 2)]
    found = processes(monkeypatch, *table).jobs()
    assert [ranks(job) for job in found] == [{0: 24, 1: 25}, {0: 22, 1: 23}]


def test_of_an_old_and_a_new_job_at_one_port_the_new_one_counts(monkeypatch):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    table = [
        (pid, parent, "python a.py", TORCHRUN | {"RANK": rank})
        for pid, parent, rank in ((11, 1, 0), (12, 1, 1), (13, 3, 0), (14, 3, 1))
    ]
    (job,) = processes(monkeypatch, *table).jobs()
    assert ranks(job) == {0: 13, 1: 14}


def test_torchrun_in_a_slurm_job(monkeypatch):
    slurm = {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 5}
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
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
    "tasks, there, gone", [("3", {0: 12}, {1, 2}), ("1(x3)", {0: 12}, set())]
)
def test_a_step_of_slurm_on_one_node_and_on_several(monkeypatch, tasks, there, gone):
    step = {"SLURM_NTASKS": 3, "SLURM_JOB_ID": 5, "SLURM_STEP_ID": 0}
    step |= {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_PROCID": 0}
    monkeypatch.setattr(jobs, "has_torch", lambda pid: pid == 12)
    table = (11, 1, "sh job.sh", step), (12, 11, "python a.py", step)
    table += (13, 12, "python -c w", step), (14, 11, "python watch.py", step)
    (job,) = processes(monkeypatch, *table).jobs()
    assert (ranks(job), job.size, job.gone) == (there, 3, gone)


@pytest.mark.parametrize(
    "told, gone",
    [
        ({"LOCAL_WORLD_SIZE": 4}, {1, 2, 3}),
        ({"LOCAL_WORLD_SIZE": 2}, {1}),
        ({"LOCAL_WORLD_SIZE": 1}, set()),
        # Its agent has loaded PyTorch, too, and is no rank.
        ({"LOCAL_WORLD_SIZE": 2, "LOCAL_RANK": 1, "RANK": 3}, {2}),
    ],
)
def test_who_is_missing(monkeypatch, told, gone):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    environment = TORCHRUN | {"RANK": 0, "WORLD_SIZE": 4} | told
    agent = "python /venv/bin/torchrun --nnodes 2 a.py"
    table = (10, 1, agent, {}), (11, 10, "python a.py", environment)
    (job,) = processes(monkeypatch, *table).jobs()
    assert ranks(job) == {environment["RANK"]: 11}
    assert job.gone == gone and job.size == 4


HERE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}


def of_three(rank: int, **more: object) -> dict[str, object]:
    """Return what one of three ranks is told by `RANK=0 python train.py &`."""
    return {"RANK": rank, "WORLD_SIZE": 3, **HERE, **more}


@pytest.mark.parametrize("at, gone", [("127.0.0.1", {1}), ("node0", set())])
def test_ranks_that_somebody_has_started_by_hand(monkeypatch, at, gone):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    machine = processes(
        monkeypatch,
        (10, 1, "bash", {}),
        (11, 10, "python train.py", of_three(0, MASTER_ADDR=at)),
        (12, 1, "python train.py", of_three(2, MASTER_ADDR=at)),  # its shell has gone
        (13, 12, "python train.py", of_three(2, MASTER_ADDR=at)),  # DataLoader's
    )
    (job,) = machine.jobs()
    assert (ranks(job), job.size, job.gone) == ({0: 11, 2: 12}, 3, gone)
    assert str(job).startswith("train.py (2 of 3 ranks, for ")


def test_who_still_imports_is_there_already(monkeypatch):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: pid == 12)
    table = [(11 + rank, 1, "python train.py", of_three(rank)) for rank in range(3)]
    watch = (20, 1, "python watch.py", of_three(1))  # which rank 1 has left behind
    (job,) = processes(monkeypatch, *table, watch).jobs()
    assert (ranks(job), job.gone) == ({0: 11, 1: 12, 2: 13}, set())


def test_ranks_of_deepspeed(monkeypatch):
    """Of the second of three nodes, with two ranks on each."""
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    told = {"WORLD_SIZE": 6, "LOCAL_SIZE": 2, **MEETING}
    machine = processes(
        monkeypatch,
        (10, 1, "python -u -m deepspeed.launcher.launch train.py", {}),
        (11, 10, "python -u train.py", told | {"RANK": 2, "LOCAL_RANK": 0}),
    )
    (job,) = machine.jobs()
    assert (ranks(job), job.size, job.gone) == ({2: 11}, 6, {3})


@pytest.mark.parametrize(
    "told, there",
    [({}, {2: 11, 3: 12}), ({"LOCAL_RANK": 1}, {2: 11, 3: 12}), (None, {2: 11})],
)
def test_who_starts_ranks_on_another_node_is_not_rank_0(monkeypatch, told, there):
    """A program that starts itself anew for each rank, and takes no part."""
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    common = {"WORLD_SIZE": 4, **MEETING}
    table = [(10, 1, "python train.py", {})]
    table.append((11, 10, "python train.py", common | {"RANK": 2, "LOCAL_RANK": 0}))
    if told is not None:
        table.append((12, 10, "python train.py", common | {"RANK": 3} | told))
    (job,) = processes(monkeypatch, *table).jobs()
    assert (ranks(job), job.size, job.gone) == (there, 4, set())


def of_lightning(local: int, node: int = 0) -> dict[str, object]:
    """Return what Lightning tells the others that its main process starts."""
    return {"LOCAL_RANK": local, "NODE_RANK": node, "WORLD_SIZE": 3, **HERE}


HELPER = "python /venv/torch/_inductor/compile_worker/__main__.py"


@pytest.mark.parametrize(
    "main, torch, there, gone",
    [
        ("python train.py --lr 1", True, {0: 10, 1: 11, 2: 12}, set()),
        ("python train.py --lr 1", False, {1: 11, 2: 12}, {0}),
        ("python launch.py train", True, {1: 11, 2: 12}, {0}),  # it takes no part
    ],
)
def test_who_starts_the_others_may_be_the_first_rank(
    monkeypatch, main, torch, there, gone
):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: torch or pid != 10)
    machine = processes(
        monkeypatch,
        (10, 1, main, {}),
        (11, 10, "python /home/me/train.py --lr 1", of_lightning(1)),
        (12, 10, "python /home/me/train.py --lr 1", of_lightning(2)),
        (13, 11, HELPER, of_lightning(1)),
    )
    (job,) = machine.jobs()
    assert (ranks(job), job.size, job.gone) == (there, 3, gone)


@pytest.mark.parametrize("program", [HELPER, "python train.py"])
def test_who_says_it_is_the_first_rank_is_it_if_it_runs_the_program(
    monkeypatch, program
):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    machine = processes(
        monkeypatch,
        (10, 1, "python train.py", {}),
        (11, 10, "python train.py", of_lightning(1)),
        (12, 10, program, of_lightning(0)),  # a worker of rank 0 has its variables
    )
    (job,) = machine.jobs()
    assert ranks(job) == {0: 10 if program == HELPER else 12, 1: 11}


def test_nobody_knows_how_many_ranks_come_before_those_of_another_node(monkeypatch):
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    table = (11, 1, "python train.py", of_lightning(1, node=1))
    assert processes(monkeypatch, table).jobs() == []


@pytest.mark.parametrize(
    "names",
    [
        [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_SIZE")],
        ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"],
    ],
)
@pytest.mark.parametrize("here, gone", [(3, {1}), (2, set())])
def test_ranks_of_mpirun(monkeypatch, names, here, gone):
    """They may be dealt to the machines one by one, so their numbers tell little."""
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    batch = {"SLURM_PROCID": 0, "SLURM_NTASKS": 1, "SLURM_JOB_ID": 5}
    table = [
        (11 + rank, 10, "python a.py", batch | dict(zip(names, told, strict=True)))
        for rank in (0, 2)
        for told in [(rank, 3, here)]
    ]
    (job,) = processes(monkeypatch, (10, 1, "mpirun -n 3", batch), *table).jobs()
    assert (job.launcher, ranks(job), job.gone) == ("MPI", {0: 11, 2: 13}, gone)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", ["init_process_group", "recv", "barrier"])
def test_one_that_is_seen_does_not_stand_for_all(name, size):
    said = judge({0: seen(30, name)}, size, 8).report()
    assert "every rank" not in said and f"rank 0 waits in {name}" in said


@pytest.mark.parametrize("joins", [True, False])
def test_children_of_mp_spawn_are_ranks_and_workers_are_not(monkeypatch, joins):
    starts = Frame(f"{TORCH}/multiprocessing/spawn.py", 200, "", {"nprocs": "3"})
    stacks = {7: [starts] if joins else stack(9)}
    for pid in (8, 9):
        wrap = Frame(
            f"{TORCH}/multiprocessing/spawn.py", 7, "_wrap", {"i": f"{pid - 8}"}
        )
        stacks[pid] = [*stack(20), wrap]
    loop = f"{TORCH}/utils/data/_utils/worker.py"
    stacks[10] = [Frame(loop, 260, "_worker_loop", {"i": "5"})]
    monkeypatch.setattr(jobs, "has_torch", lambda pid: True)
    at = {pid: Look(0, RankLog(stack=frames)) for pid, frames in stacks.items()}
    monkeypatch.setattr(jobs, "look", at.__getitem__)
    child = "python -c from multiprocessing.spawn import spawn_main"
    (job,) = processes(
        monkeypatch,
        (7, 1, "python train.py", {}),
        *((pid, 7, child, {}) for pid in (8, 9, 10)),
    ).jobs()
    assert (job.launcher, job.program) == ("mp.spawn", "train.py")
    assert ranks(job) == {0: 8, 1: 9}
    assert (job.size, job.gone) == ((3, {2}) if joins else (2, set()))


def test_what_a_run_waits_for_is_told_once(tmp_path, capsys):
    output = Output(by_rank=False)
    for state in ("", "it imports torch", "it imports torch", ""):
        run = Run("", [], [], [], [], 0.0, None, log_folder=tmp_path, state=state)
        output.update(run)
    assert capsys.readouterr().err == "note: it imports torch\n"


@pytest.fixture
def one_job(monkeypatch):
    """Let `why` find one job of this machine, and see it at once."""
    process = Process(7, 1, ["python", "train.py"], {}, 0, "/home/me", True)
    ranks, nobody = {0: process, 1: process}, frozenset[int]()
    job = Job("torchrun", "train.py", 3, ranks, frozenset({7}), nobody, frozenset({2}))
    monkeypatch.setattr(Machine, "jobs", lambda self: [job])
    found = {0: WAITS, 1: WAITS}, 8.0
    monkeypatch.setattr("whichrank.terminal.why.observe", lambda *_: found)


def test_a_rank_that_should_be_here_has_left(one_job, capsys):
    assert main(["why"]) == 0
    head, _, what, *_, last = capsys.readouterr().out.splitlines()
    assert head.startswith("train.py (torchrun, 2 of 3 ranks, for ")
    assert what == "rank 2: is not there, and ranks 0 and 1 wait in all_reduce"
    assert last == "  rank 2: is not there: it has ended, or was never started"


def test_where_no_job_is_seen_any_python_may_be_named(monkeypatch, capsys):
    monkeypatch.setattr(Machine, "jobs", lambda self: [])
    for words, error in (
        (["why"], "no job is seen"),
        (["why", "4194304"], "no Python"),
    ):
        assert main(words) == 1
        assert error in capsys.readouterr().err


def test_ctrl_c_while_it_looks(one_job, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("whichrank.terminal.why.observe", interrupted)
    assert main(["why"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("note: ") for line in said), "processes of other users"
