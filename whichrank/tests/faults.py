"""Faults, and what has to be said of each: every row really happens when recorded.

test_evidence.py explains what tests/evidence keeps of these runs, in milliseconds;
test_failures.py and `python tests/record_evidence.py` let them happen again.
"""

import re
from dataclasses import dataclass, field

from support import HOUSE

from whichrank.explain.cause import Cause, Stand
from whichrank.explain.causes.beside import Attempts
from whichrank.explain.causes.ended import Raised
from whichrank.explain.failure import Failure

ODD = 1
"""The rank that misbehaves."""
ANY = "any"
"""Whichever rank: all raise, or it is chance which one PyTorch names."""

TORCHRUN = """
import json, os, signal, sys, time
from datetime import timedelta
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


def brief(what: Cause | Stand | Attempts) -> str:
    """Return facts on one line: `Absent 1: has not come, and ... at sick.py:13 ...`."""
    if isinstance(what, Attempts):
        return "; ".join(what.sentences())
    if isinstance(what, Stand):
        return f"{what.rank}: {what}"
    rank = "" if what.rank is None else f" {what.rank}"
    at = f" at {what.frame.place}" if what.frame else ""
    return f"{type(what).__name__}{rank}: {what}{at}"


def facts(failure: Failure) -> str:
    """Return what is known of a failure, a fact on each line."""
    lines = [brief(failure.why), failure.why.advice, *map(brief, failure.also)]
    lines.append(failure.traceback)
    for rank, known in failure.by_rank.items():
        told = brief(known)
        lines.append(told if isinstance(known, Stand) else f"{rank}: {told}")
    return "\n".join(lines + ([brief(failure.attempts)] if failure.attempts else []))


RESTARTED = """
import os, signal, sys, time
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
# A store for each attempt: torch's own keeps the addresses of ranks that have gone.
folder = os.path.dirname(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]))
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
)
"""


@dataclass(frozen=True)
class Fault:
    """A fault, and the explanation that a reader needs."""

    name: str
    body: str = ""
    """What `misbehave` does, in TORCHRUN; else, `program` is the fault."""
    program: str = ""
    """A file of the course beside, such as `ddp_lab/clinic/patient_1.py`."""
    whole: str = ""
    """A whole program."""
    ranks: tuple[int, ...] = (2, 4)
    """How many ranks it happens to; the last of these numbers is recorded."""
    timeout: float = 4
    env: dict[str, str] = field(default_factory=dict)
    options: str = ""
    """More arguments of torchrun."""
    cold: bool = False
    since: tuple[int, int] = (3, 10)
    """The first release of Python in which it can happen."""
    port_taken: bool = False
    """Whether somebody else listens where the ranks are to meet."""

    kind: str | None = None
    """None if the run succeeds, with a note."""
    rank: int | str | None | dict[int, int | None] = ODD
    """The one to blame, by world size if that matters; or ANY."""
    symptom: str | None = None
    cause: str = ""
    """A regular expression that the cause matches from its start: an exception in its
    own words, anything else as `brief` has it."""
    line: str = ""
    """Text of the line that is to be named."""
    report: tuple[str, ...] = ()
    """Regular expressions of what else has to be known, as `facts` has it."""
    others: int | None = None
    """Of how many other ranks something is told; None if that does not matter."""
    exit_code: int | None = None
    """Of the odd rank, where that is the point."""
    note: str = ""
    """A regular expression of the one note of a run that succeeds, as in `brief`."""
    warnings: tuple[str, ...] = ()
    """Regular expressions of what is shown of the odd rank's stderr; none if empty."""

    def write(self) -> tuple[str, str]:
        """Return the program's file name and text."""
        if self.program:
            path = HOUSE.parent / self.program
            return path.name, path.read_text()
        if self.whole:
            return "sick.py", self.whole
        body = "\n".join("    " + line for line in self.body.strip().splitlines())
        return "sick.py", TORCHRUN.format(body=body)

    @property
    def recorded(self) -> int:
        """The number of ranks of the run that tests/evidence keeps."""
        return self.ranks[-1]

    def judge(self, ranks, told, text: str) -> None:
        """Assert that this is the explanation; `text` is that of the program.

        `told` is a Run, or what stands for one.
        """
        failure, notes = told.failure, told.notes
        if self.warnings:
            said = "\n".join(told.warnings[ODD])
            for words in self.warnings:
                assert re.search(words, said), (words, said)
        if self.kind is None:
            assert failure is None, failure.report()
            assert len(notes) == 1, notes
            if isinstance(notes[0], Cause):  # of a run that has just happened: text
                assert re.search(self.note, brief(notes[0])), brief(notes[0])
            return
        report = facts(failure)
        rank = self.rank.get(ranks) if isinstance(self.rank, dict) else self.rank
        assert failure.kind == self.kind, report
        assert rank == ANY or failure.rank == rank, report
        assert failure.symptom == self.symptom, report
        raised = isinstance(failure.why, Raised)
        cause = failure.why.error if raised else brief(failure.why)
        assert re.match(self.cause, cause), report
        if self.line:
            lines = text.splitlines()
            found = [n for n, line in enumerate(lines, 1) if self.line in line]
            assert found == [failure.line], (found, report)
        for words in self.report:
            assert re.search(words, report, re.MULTILINE), (words, report)
        if self.others is not None:
            assert len(failure.by_rank) == self.others, report
        if self.exit_code is not None:
            assert told.exit_codes[ODD] == self.exit_code
        assert "/whichrank/" not in failure.report(), "frames of ours"


IGNORES = "signal.signal(signal.SIGTERM, lambda *_: time.sleep(600))"
LOSES = "dist.destroy_process_group()"
RAISES = "if odd: raise ValueError('no such sample')"
WAITS = r"waits in all_reduce of float32 \(8,\)"
HUNG = "time.sleep(600)"
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 1.25 GiB is free."
)
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
DIFFERENT = "if odd:\n    dist.broadcast(tensor, src=0)\nelse:\n    dist.barrier()"
BOTH_CALLS = (
    r"sick\.py:\d+ in misbehave: dist\.broadcast",
    r"sick\.py:\d+ in misbehave: dist\.barrier",
)


def dies(name: str, symptom: str, code: int) -> Fault:
    """Return the fault of a rank that a signal ends."""
    return Fault(
        f"dies_by_{name.lower()}",
        f"if odd: os.kill(os.getpid(), signal.{name})",
        kind="signal",
        symptom=symptom,
        cause=f"Signalled 1: ended by {name}",
        exit_code=code,
    )


FAULTS = [
    # A rank fails.
    Fault(
        "raises",
        RAISES,
        kind="exception",
        cause="ValueError: no such sample$",
        line="raise ValueError",
        report=("Traceback", r"in misbehave: "),
        others=0,
    ),
    Fault(
        "hook_fails",
        "def hook(*args): raise TypeError('the hook is wrong')\n"
        f"sys.excepthook = hook\n{RAISES}\ntime.sleep(600)",
        kind="exception",
        cause="ValueError: no such sample$",
        line="raise ValueError",
        warnings=(r"Error in sys\.excepthook", "TypeError: the hook is wrong"),
        exit_code=1,
    ),
    Fault(
        "victims_exit",
        """
if odd: time.sleep(0.5); os._exit(9)
try:
    dist.all_reduce(tensor)
except RuntimeError:
    sys.exit("cannot synchronise")
""",
        kind="exit",
        cause=r"Exited 1: exit code 9\b",
        exit_code=9,
        others=0,
    ),
    Fault(
        "an_error_of_its_own_in_the_words_of_a_victim",
        "import urllib.error\n"
        "if odd: raise urllib.error.URLError('Connection reset by peer')\n"
        "dist.all_reduce(tensor)",
        ranks=(2, 3),
        kind="exception",
        cause="urllib.error.URLError: <urlopen error Connection reset by peer>$",
        line="raise urllib",
    ),
    Fault(
        "all_raise",
        "raise ValueError(rank)",
        kind="exception",
        rank=ANY,
        cause=r"ValueError: \d$",
        line="raise ValueError",
    ),
    dies("SIGKILL", "killed", -9),
    dies("SIGABRT", "crash", -6),
    dies("SIGSEGV", "crash", -11),
    dies("SIGBUS", "crash", -7),
    Fault(
        "exit_code",
        "if odd: sys.exit(3)",
        kind="exit",
        cause=r"Exited 1: exit code 3\b",
        exit_code=3,
    ),
    Fault(
        "exit_with_words",
        "if odd: sys.exit('needs an even number')",
        kind="exit",
        cause="Exited 1: exit code 1: needs an even number",
        exit_code=1,
    ),
    Fault(
        "exit_that_takes_long",  # and torchrun, which sees the others fail, ends it
        "import atexit; atexit.register(time.sleep, 2 * odd)\n"
        f"if odd: {LOSES}; sys.exit('no intact images')",
        kind="exit",
        cause="Exited 1: exit code 1: no intact images",
        exit_code=1,
    ),
    Fault(
        "finally_that_takes_long",  # likewise, before anybody has told the exception
        "try:\n"
        "    if odd: raise ValueError('no intact images')\n"
        "    dist.all_reduce(tensor)\n"
        "finally:\n"
        f"    if odd: {LOSES}; time.sleep(3)",
        ranks=(3,),
        kind="exception",
        symptom="absent",
        cause="Absent 1: has raised ValueError: no intact images, and stands at .*"
        "and ranks 0 and 2 wait in all_reduce",
        line="raise ValueError",
        exit_code=-15,
    ),
    Fault(
        "leaves",
        "if odd: sys.exit()",
        ranks=(4,),
        kind="exception",
        symptom="absent",
        cause="Absent 1: has left, and ranks 0, 2 and 3 wait in barrier",
        line="sys.exit()",
        report=("^1: has left at",),
    ),
    Fault(
        "leaves_at_once",
        "if odd: os._exit(0)",
        kind="exception",
        rank={2: None, 4: ODD},  # of two, which one is right?
        symptom="absent",
        cause="Absent.*: .*has left, and .* waits? in barrier",
        line="dist.barrier()",
        report=("^1: has left",),
    ),
    Fault(
        "keeps_the_group",
        "dist.barrier()\nif odd: dist.destroy_process_group = lambda: None",
        note="^KeptGroup: rank 1 ended",
    ),
    # A rank waits in vain.
    *[
        Fault(
            name,
            f"if odd:\n    {busy}\ndist.all_reduce(tensor)",
            kind="timeout",
            symptom="absent",
            cause="Absent 1: has not come, and .* waits? in all_reduce",
            line=busy,
            report=(
                rf"^0: {WAITS} for rank 1 at .*sick\.py:\d+ in misbehave: "
                r"dist\.all_reduce\(tensor\)",
                "^1: stands at .*" + re.escape(busy),
                "^Stopped: no end after 4 seconds",
            ),
        )
        for name, busy in (("sleeps", HUNG), ("computes", "while True: sum(range(9))"))
    ],
    Fault(
        "two_are_late",
        f"if rank < 2: {HUNG}\ndist.all_reduce(tensor)",
        ranks=(4,),
        kind="timeout",
        rank=None,
        symptom="absent",
        cause="Absent: ranks 0 and 1 have not come, and ranks 2 and 3 wait in",
        line=HUNG,
    ),
    Fault(
        "one_calls_alone",
        f"if odd: dist.all_reduce(tensor)\n{HUNG}",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: waits in all_reduce, but ranks 0 and 2 have not come",
        line="if odd: dist.all_reduce(tensor)",
    ),
    Fault(
        "one_does_not_shut_down_its_remote_calls",
        "import torch.distributed.rpc as rpc\n"
        "rpc.init_rpc(f'worker{rank}', rank=rank, world_size=world_size)\n"
        f"if odd: {HUNG}\nrpc.shutdown()",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in shutdown",
        line=HUNG,
    ),
    Fault(
        "all_are_busy",
        HUNG,
        kind="timeout",
        rank=None,
        symptom="busy",
        cause=r"Busy: ranks 0, 1(, 2)? and \d stand|Busy: ranks 0 and 1 stand",
        line=HUNG,
    ),
    Fault(
        "different_calls",
        DIFFERENT,
        kind="timeout",
        rank={2: None, 4: ODD},
        symptom="different calls",
        cause="CallsDiffer.*: call 2 is .*(broadcast.* barrier|barrier.* broadcast)",
        report=BOTH_CALLS,
    ),
    Fault(
        "different_calls_detail",
        DIFFERENT,
        env=DETAIL,  # PyTorch compares the calls itself, at a price
        kind="exception",
        rank=None,
        symptom="different calls",
        cause="(Apart|CallsDiffer).*: .*(broadcast.*barrier|barrier.*broadcast)",
        report=BOTH_CALLS,
    ),
    Fault(
        "different_roots",
        "dist.broadcast(tensor, src=rank)",
        kind="timeout",
        rank={2: None, 4: None},
        symptom="different calls",
        cause="RootsDiffer: .* different src: 0 on rank 0, 1 on rank 1",
        line="dist.broadcast",
    ),
    *[
        Fault(
            f"other_root_of_{call}",
            body,
            ranks=(3, 4),
            kind="timeout",
            rank=ANY,  # named if all ranks wait
            symptom="different calls",
            cause=f"RootsDiffer.*: .* in {call} with different {root}: .*2 on rank 1",
            line=f"dist.{call}(",
        )
        for call, root, body in (
            ("broadcast", "src", "dist.broadcast(tensor, src=2 if odd else 0)"),
            ("reduce", "dst", "dist.reduce(tensor, dst=2 if odd else 0)"),
        )
    ],
    *[
        Fault(
            f"other_root_of_{call}",
            f"objects = [rank] * world_size\n{body}",
            ranks=ranks,
            kind="timeout",
            symptom="different calls",
            cause=f"RootsDiffer.*: .* in {call} with different src: .*2 on rank 1",
            line=f"dist.{call}(",
        )
        for call, ranks, body in (
            (
                "broadcast_object_list",
                (3, 4),
                "dist.broadcast_object_list(objects, src=2 if odd else 0)",
            ),
            (
                "scatter_object_list",
                (3,),
                "dist.scatter_object_list([None], objects, src=2 if odd else 0)",
            ),
        )
    ],
    Fault(
        "cycle_of_objects",
        "dist.recv_object_list([None], src=(rank + 1) % world_size)",
        kind="timeout",
        rank={2: None, 4: None},
        symptom="cycle",
        cause="Circle: rank 0 waits in recv_object_list for rank 1, rank 1",
        line="dist.recv_object_list",
    ),
    Fault(
        "root_has_left",
        "dist.reduce(tensor, dst=2 if odd else 0)\ndist.barrier = lambda: None",
        ranks=(3,),
        kind="exception",
        rank=None,
        symptom="different calls",
        cause="Apart: ranks 0 and 1 wait in reduce, which rank 2 has passed: .* dst",
        line="dist.reduce(",
    ),
    Fault(
        "is_stopped",
        "if odd: os.kill(os.getpid(), signal.SIGSTOP)",
        kind="timeout",
        symptom="absent",
        cause=r"Absent 1: is stopped \(SIGSTOP\), and .* waits? in barrier",
        line="signal.SIGSTOP",
        report=(r"^1: is stopped .* at .*sick\.py:\d+ in misbehave",),
    ),
    Fault(
        "thread_goes_on",
        "import threading\n"
        f"feed = lambda: {HUNG}\n"
        "if odd: threading.Thread(target=feed, name='feeder').start()",
        kind="timeout",
        symptom="busy",
        cause=r"Busy 1: .* but thread feeder is still at .*:\d+",
        line=HUNG,
        report=("^0: has left",),
    ),
    Fault(
        "thread_waits_for_a_lock",  # in C, and in no line of anybody
        "import threading\nlock = threading.Lock()\nlock.acquire()\n"
        "if odd: threading.Thread(target=lock.acquire, name='keeper').start()",
        ranks=(2,),
        kind="timeout",
        symptom="busy",
        cause="Busy 1: .* but thread keeper has not ended",
    ),
    Fault(
        "exit_function_hangs",
        f"import atexit\nif odd: atexit.register(lambda: {HUNG})",
        ranks=(2,),
        kind="timeout",
        symptom="busy",
        cause=r"Busy 1: .* but an exit function is still at .*:\d+",
        line=HUNG,
    ),
    Fault(
        "each_is_elsewhere",
        f"import queue\nif odd: queue.Queue().get()\n{HUNG}",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="busy",
        cause="Busy: .* stands? at .*, and no rank is seen to wait",
        report=(r"^1: stands at .*queue\.Queue\(\)\.get\(\)",),
    ),
    Fault(
        "different_groups",
        "groups = [dist.new_group() for _ in range(2)]\n"
        "dist.all_reduce(tensor, group=groups[odd])",
        kind="timeout",
        rank={2: None, 4: ODD},
        symptom="different calls",
        cause="Apart.*: .* in all_reduce of group 1, .* in all_reduce of group 2",
        line="dist.all_reduce(tensor, group",
    ),
    Fault(
        "different_sizes",
        "dist.all_reduce(torch.zeros(16 if odd else 8))",
        kind="signal",
        rank={2: None, 4: ODD},
        symptom="different tensors",
        cause=r"CallsDiffer .*all_reduce of float32 \(\d+,\)|SizesDiffer",
        line="dist.all_reduce(torch.zeros(",
    ),
    Fault(
        "different_sizes_detail",
        "dist.all_reduce(torch.zeros(16 if odd else 8))",
        env=DETAIL,
        kind="exception",
        rank=ANY,
        symptom="different tensors",
        cause="CallsDiffer.*: .*all_?reduce of float32",
        line="dist.all_reduce(torch.zeros(",
    ),
    Fault(
        "wrong_sum",
        "dtype = torch.int32 if odd else torch.float32\n"
        "dist.all_reduce(torch.zeros(8, dtype=dtype))\n"
        "assert False, 'a wrong sum'",
        kind="exception",
        rank=ANY,
        symptom="different tensors",
        cause="AssertionError: a wrong sum",
        report=(r"^NotTheSame: before: call .*all_reduce of int32",),
    ),
    Fault(
        "silently_wrong",
        "dist.all_reduce(tensor.int() if odd else tensor)",
        note=r"^NotTheSame: .*all_reduce of float32 \(8,\) .*of int32 \(8,\)",
    ),
    Fault(
        "everybody_sends",
        "dist.send(tensor, (rank + 1) % world_size)\n"
        "dist.recv(tensor, (rank - 1) % world_size)",
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause="Circle: rank 0 waits in send for rank 1, rank 1 waits in send for",
        line="dist.send(tensor",
    ),
    Fault(
        "everybody_receives",
        "dist.recv(tensor, (rank - 1) % world_size)\n"
        "dist.send(tensor, (rank + 1) % world_size)",
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause="Circle: rank 0 waits in recv for rank (1|3), ",
        line="dist.recv(tensor",
    ),
    Fault(
        "nobody_sends",
        "dist.irecv(tensor, (rank + 1) % world_size).wait()",
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause=r"Apart: every rank waits in Work\.wait",
        line="dist.irecv(tensor",
    ),
    Fault(
        "late_peer",
        "group = dist.new_group(timeout=timedelta(seconds=1))\n"
        f"if odd: {HUNG}\n"
        "dist.all_reduce(tensor, group=group)",
        timeout=30,
        kind="exception",
        symptom="absent",
        cause="Absent 1: has not come, and .* waits? in all_reduce",
        line=HUNG,
        report=("^Complaint .*Timed out waiting 1000ms",),
    ),
    Fault(
        "different_sizes_of_which_one_aborts",
        "late = torch.ones(4) if rank < 2 else torch.ones(7, dtype=torch.int64)\n"
        "dist.all_reduce(late)",
        ranks=(3,),
        kind="signal",
        rank=2,
        symptom="different tensors",
        cause=r"CallsDiffer 2: .*all_reduce of float32 \(4,\)",
        line="dist.all_reduce(late)",
    ),
    Fault(
        "receives_from_another_source",
        "if rank == 0: dist.send(tensor, 1)\nif odd: dist.recv(tensor, 2)",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause="Circle: rank 1 waits in recv for rank 2, rank 2 waits in barrier for",
        line="if odd: dist.recv",
        report=("^0: waits in send for rank 1",),
    ),
    Fault(
        "waits_before_it_tells",
        "try:\n"
        "    if odd: raise ValueError('no such sample')\n"
        "    dist.all_reduce(tensor)\n"
        "finally:\n"
        "    dist.barrier()",
        ranks=(2, 3),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has raised ValueError: no such sample, and waits in barrier .*"
        "waits? in all_reduce",
        line="raise ValueError",
    ),
    Fault(
        "waits_in_its_except",  # where it makes its batch again, in halves
        "if rank == 2: time.sleep(600)\n"
        "try:\n"
        "    if odd: raise MemoryError('64 rows')\n"
        "    dist.all_reduce(tensor)\n"
        "except MemoryError:\n"
        "    dist.all_reduce(tensor)",
        ranks=(3,),
        kind="timeout",
        rank=2,
        symptom="absent",
        cause="Absent 2: has not come, and ranks 0 and 1 wait in all_reduce",
        line="if rank == 2: time.sleep",
    ),
    Fault(
        "all_handle_an_error",
        "try:\n"
        "    raise KeyError('not there')\n"
        "except KeyError:\n"
        "    if odd: time.sleep(600)\n"
        "    dist.all_reduce(tensor)",
        ranks=(2,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and rank 0 waits in all_reduce",
        line="if odd: time.sleep",
    ),
    Fault(
        "meets_elsewhere",
        whole="""
import os
import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) ^ 1)
dist.init_process_group("gloo")
""",
        options="--standalone",
        ranks=(2, 3),
        timeout=6,
        kind="timeout",
        symptom="rendezvous",
        cause=r"NotMet 1: looks for the others at \S+:\d+, which the program has set",
        line="dist.init_process_group",
    ),
    Fault(
        "meets_where_nobody_listens",
        whole="""
import os
import torch.distributed as dist

os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) ^ 1)
dist.init_process_group("gloo")
""",
        options="--standalone",
        ranks=(2,),
        timeout=6,
        kind="timeout",
        rank=None,
        symptom="rendezvous",
        cause="NotMet: every rank .* nobody listens at",
        line="dist.init_process_group",
    ),
    Fault(
        "a_remote_call_is_late",
        whole="""
import os, time
import torch.distributed.rpc as rpc

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def slow():
    time.sleep(9)


rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
if rank == 1:
    rpc.rpc_sync("worker0", slow, timeout=2)
rpc.shutdown()
""",
        options="--standalone",
        ranks=(2,),
        timeout=20,
        kind="exception",
        symptom="late call",
        cause="RuntimeError: RPCErr:1:RPC ran for more than set timeout",
        line="rpc.rpc_sync",
    ),
    # Who was first, and who was only asked to end.
    Fault(
        "others_will_not_end",
        f"if odd: raise ValueError('no such sample')\n{IGNORES}\n{HUNG}",
        timeout=8,
        kind="exception",
        cause="ValueError: no such sample$",
        line="if odd: raise ValueError",
        report=("^Stopped: no end after 8 seconds", "^0: stands at .*signal.SIGTERM"),
    ),
    Fault(
        "others_are_killed",
        f"if odd: raise ValueError('no such sample')\n{IGNORES}\n{HUNG}",
        ranks=(2,),
        timeout=60,
        kind="exception",
        cause="ValueError: no such sample$",
        line="if odd: raise ValueError",
        others=0,
    ),
    Fault(
        "its_proxy_gets_sigkill",
        f"""
parents = [None] * world_size
dist.all_gather_object(parents, os.getppid())
if rank == 0: os.kill(parents[1], signal.SIGKILL)
if odd: {HUNG}
""",
        cold=True,  # else its parent is the fork server
        ranks=(3,),
        timeout=90,
        kind="signal",
        symptom="killed",
        cause="Signalled 1: ended by SIGKILL",
    ),
    Fault(
        "others_complain_when_asked",
        "def complain(*_): raise RuntimeError('asked to end')\n"
        "signal.signal(signal.SIGTERM, complain)\n"
        f"if odd: sys.exit(3)\n{HUNG}",
        kind="exit",
        cause=r"Exited 1: exit code 3\b",
        others=0,
    ),
    *[
        Fault(
            f"one_after_the_other_{name}",
            f"if odd: {first}\ntime.sleep(0.3)\nif rank == 0: {second}\n{HUNG}",
            cold=cold,
            kind=kind,
            cause=cause,
            symptom="crash" if "SIGSEGV" in first else None,
            report=(f"^0: {other}",),
        )
        for name, cold, first, second, kind, cause, other in (
            (
                "raise_raise",
                False,
                "raise ValueError('first')",
                "raise KeyError('second')",
                "exception",
                "ValueError: first$",
                "Raised: KeyError: 'second'",
            ),
            (
                "raise_exit",
                True,
                "raise ValueError('first')",
                "os._exit(5)",
                "exception",
                "ValueError: first$",
                "Exited: exit code 5",
            ),
            (
                "exit_exit",
                False,
                "os._exit(5)",
                "sys.exit(3)",
                "exit",
                r"Exited 1: exit code 5\b",
                "Exited: exit code 3",
            ),
            (
                "signal_raise",
                False,
                "os.kill(os.getpid(), signal.SIGSEGV)",
                "raise ValueError('second')",
                "signal",
                "Signalled 1: ended by SIGSEGV",
                "Raised: ValueError: second",
            ),
            (
                "raise_signal",
                False,
                "raise ValueError('first')",
                "os.kill(os.getpid(), signal.SIGKILL)",
                "exception",
                "ValueError: first$",
                "Signalled: ended by SIGKILL",
            ),
            (
                "slow_exit_raise",
                False,
                "import atexit; atexit.register(time.sleep, 0.6); sys.exit(3)",
                "raise ValueError('second')",
                "exit",
                r"Exited 1: exit code 3\b",
                "Raised: ValueError: second",
            ),
            (
                "exit_raise",
                True,
                "sys.exit(3)",
                "raise ValueError('second')",
                "exit",
                r"Exited 1: exit code 3\b",
                "Raised: ValueError: second",
            ),
        )
    ],
    Fault(
        "a_victim_in_other_words",
        "if odd: raise ValueError('no such sample')\n"
        "try:\n    dist.all_reduce(tensor)\n"
        "except RuntimeError as error:\n    raise KeyError('my sums') from error",
        kind="exception",
        cause="ValueError: no such sample$",
        line="if odd: raise ValueError",
        others=0,
    ),
    # torchrun restarts the ranks.
    Fault(
        "restarted_and_well",
        whole=RESTARTED
        + "if rank == 1 and attempt < 1: raise ValueError('no such sample')\n"
        "dist.barrier()\ndist.destroy_process_group()\n",
        options="--max-restarts 3",
        ranks=(2,),
        note="^Restarted: .* once: attempt 1 of 2 failed: rank 1: ValueError: no such",
    ),
    Fault(
        "restarted_often",
        whole=RESTARTED + "if rank == 0 and attempt == 3: sys.exit(9)\n"
        "fails = rank == 1 and attempt not in (3, 11)\n"
        "if fails: raise ValueError(f'no sample {attempt}')\n"
        "dist.barrier()\ndist.destroy_process_group()\n",
        ranks=(2,),
        options="--max-restarts 20",
        note="^Restarted: .* attempts 1, 2, 3, 5, .* and 11 of 12 failed: rank 1: "
        "ValueError: no sample 0 .*attempt 4 of 12 failed: rank 0: exit code 9",
    ),
    Fault(
        "restarted_in_vain",
        whole=RESTARTED
        + "if rank == 1: raise ValueError(f'no sample at {time.time()}')\n"
        "dist.barrier()\n",
        options="--max-restarts 2",
        ranks=(2,),
        kind="exception",
        cause=r"ValueError: no sample at \d+",
        line="if rank == 1: raise ValueError",
        report=("^the same error at the same line in all 3 attempts",),
    ),
    Fault(
        "restarted_and_failed_anew",
        whole=RESTARTED + "if rank == 0 and attempt == 0: os._exit(7)\n"
        "if rank == 1 and attempt == 1: raise ValueError('no such sample')\n"
        "if rank == 1 and attempt == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()\n",
        options="--max-restarts 2",
        kind="signal",
        symptom="killed",
        cause="Signalled 1: ended by SIGKILL",
        report=(
            "^attempt 1 of 3 failed: rank 0: exit code 7",
            r"attempt 2 of 3 failed: rank 1: ValueError: no such sample at \S*sick",
        ),
    ),
    # A traceback that was not the end of the rank.
    Fault(
        "a_thread_is_dead",
        "import queue, threading\n"
        "def produce(): raise ValueError('no such sample')\n"
        "if odd:\n"
        "    threading.Thread(target=produce, daemon=True).start()\n"
        "    queue.Queue().get()\n"
        "dist.all_reduce(tensor)",
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and .* waits? in all_reduce",
        line="queue.Queue().get()",
        report=(
            r"^Printed 1: .*: ValueError: no such sample, at \S*sick\.py",
            "Exception in thread",
        ),
        warnings=("Exception in thread", "ValueError: no such sample"),
    ),
    Fault(
        "all_threads_are_dead",
        "import queue, threading\n"
        "def produce(): raise ValueError('no such sample')\n"
        "threading.Thread(target=produce, daemon=True).start()\n"
        "queue.Queue().get()",
        ranks=(2,),
        kind="timeout",
        rank=None,
        symptom="busy",
        cause="Busy: ranks 0 and 1 stand at",
        line="queue.Queue().get()",
        report=("^Printed.*: ValueError: no such sample",),
    ),
    Fault(
        "logged_and_swallowed",
        "import logging\n"
        "try:\n"
        "    if odd: raise ValueError('no such sample')\n"
        "    dist.all_reduce(tensor)\n"
        "except ValueError:\n"
        "    logging.exception('skipped')",
        kind="timeout",
        rank={2: None, 4: ODD},
        symptom="different calls",
        report=("^Printed 1: .*: ValueError: no such sample, at",),
        warnings=("ERROR:root:skipped", "ValueError: no such sample"),
    ),
    Fault(
        "a_fork_fails",
        "import logging\n"
        "if odd and not (child := os.fork()):\n"
        "    try:\n"
        "        raise ValueError('no such sample')\n"
        "    except ValueError:\n"
        "        logging.exception('in the child')\n"
        "    os._exit(1)\n"
        "if odd: os.wait()\n"
        "dist.all_reduce(tensor)\n"
        "if odd: dist.destroy_process_group = lambda: None",
        note="^KeptGroup: rank 1 ended",
        warnings=("ERROR:root:in the child", "Traceback", "ValueError: no such"),
    ),
    Fault(
        "handled_then_exit",
        "import traceback\n"
        "try:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\n"
        "if odd: sys.exit(3)",
        ranks=(2,),
        kind="exit",
        cause=r"Exited 1: exit code 3\b",
        report=("^Printed 1: .*: KeyError: 'x', at",),
        warnings=("Traceback", "KeyError: 'x'"),
    ),
    Fault(
        "handled_then_another",
        "import traceback\n"
        "try:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\n"
        "if odd: raise ValueError('no such sample')",
        ranks=(2,),
        kind="exception",
        cause="ValueError: no such sample$",
        line="if odd: raise ValueError",
        warnings=("KeyError: 'x'",),
    ),
    Fault(
        "a_traceback_in_a_message",
        "text = 'Traceback (most recent call last):\\n  File \"b.py\", line 3, in f'\n"
        "text += '\\n    g()\\nKeyError: 1'\n"
        "if odd: raise ValueError('a child said:\\n' + text)",
        ranks=(2,),
        kind="exception",
        cause="ValueError: a child said:",
        line="if odd: raise ValueError",
    ),
    # What an exception says.
    Fault(
        "an_exception_with_a_cause",
        "try:\n    {}['x']\nexcept KeyError as error:\n"
        "    if odd: raise ValueError('no such sample') from error",
        ranks=(2,),
        kind="exception",
        cause="ValueError: no such sample, from KeyError: 'x'$",
        line="if odd: raise ValueError",
    ),
    Fault(
        "an_exception_with_notes",
        "error = ValueError('no')\nerror.add_note('in step 7')\nif odd: raise error",
        since=(3, 11),
        ranks=(2,),
        kind="exception",
        cause=r"ValueError: no \(in step 7\)$",
        line="if odd: raise error",
    ),
    Fault(
        "an_exception_without_words",
        "assert not odd",
        ranks=(2,),
        kind="exception",
        cause="AssertionError$",
        line="assert not odd",
    ),
    Fault(
        "an_exception_that_cannot_be_shown",
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError\n"
        "if odd: raise Odd",
        ranks=(2,),
        kind="exception",
        cause=r".*Odd: <exception str\(\) failed>$",
        line="if odd: raise Odd",
    ),
    Fault(
        "a_recursion",
        "def deeper(): deeper()\nif odd: deeper()",
        ranks=(2,),
        kind="exception",
        cause="RecursionError: maximum recursion depth exceeded",
        line="def deeper()",
    ),
    Fault(
        "a_keyboard_interrupt",
        "if odd: raise KeyboardInterrupt",
        ranks=(2,),
        kind="exception",
        cause="KeyboardInterrupt$",
        line="if odd: raise KeyboardInterrupt",
        exit_code=-2,
    ),
    Fault(
        "a_syntax_error",
        "if odd: exec(compile('\\nx = = 1', __file__, 'exec'))",
        ranks=(2,),
        kind="exception",
        cause="SyntaxError: invalid syntax$",
    ),
    # Success that is none.
    Fault(
        "all_leave_before_the_end",
        "os._exit(0)",
        ranks=(2,),
        note="^LeftEarly: ranks 0 and 1 left",
    ),
    Fault(
        "one_leaves_before_the_end",
        "dist.barrier()\nif odd: os._exit(0)\ndist.barrier = lambda: None",
        note="^LeftEarly: rank 1 left",
    ),
    Fault(
        "nobody_joins",
        whole="import torch.distributed\n\nprint('as if there were nobody else')\n",
        options="--max-restarts 0",
        ranks=(2,),
        note="^NotJoined: .* 2 copies",
    ),
    # Nobody is to blame whom nothing but a vote accuses.
    Fault(
        "two_wait_for_messages_and_one_has_left",
        "if rank == 0: return sys.exit()\ndist.recv(tensor, 3 - rank)",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause="Circle: rank 1 waits in recv for rank 2, rank 2 waits in recv for",
    ),
    Fault(
        "two_wait_for_work_and_one_has_left",
        "if rank == 0: return sys.exit()\ndist.irecv(tensor, 3 - rank).wait()",
        ranks=(3,),
        kind="timeout",
        rank=None,
        cause=r"Apart: ranks 1 and 2 wait in Work\.wait, rank 0 has ended \(exit",
    ),
    Fault(
        "two_wait_for_work_and_one_polls",
        "import torch.distributed.distributed_c10d as c10d\n"
        "store = c10d._get_default_store()\n"
        "while rank == 0 and not store.check(['over']): time.sleep(0.1)\n"
        "dist.irecv(tensor, 3 - rank).wait()",
        ranks=(3,),
        kind="timeout",
        rank=None,
        cause=r"Apart: ranks 1 and 2 wait in Work\.wait, rank 0 stands at",
    ),
    Fault(
        "one_of_two_has_ended_well",
        "if odd: sys.exit()\ndist.all_reduce(tensor)",
        ranks=(2,),
        kind="exception",
        rank=None,
        symptom="absent",
        cause="Absent: rank 1 has left, and rank 0 waits in all_reduce",
    ),
    Fault(
        "a_message_too_few",
        "if rank == 2: dist.send(tensor, 0)\n"
        "if rank: return sys.exit()\n"
        "for _ in range(2): dist.recv(tensor, 2)",
        ranks=(3,),
        kind="exception",
        rank=None,
        cause=r"Apart: rank 0 waits in recv, rank 1 has ended \(exit code 0\), rank 2",
    ),
    Fault(
        "a_harmless_traceback_before",
        "import logging\n"
        "try: raise ConnectionRefusedError('metrics')\n"
        "except OSError: odd and logging.exception('going on')\n"
        "dist.barrier() if odd else dist.all_reduce(tensor)",
        ranks=(2,),
        kind="timeout",
        rank=None,
        symptom="different calls",
        cause="CallsDiffer: call 2 is",
        report=("^Printed 1: before, rank 1 printed|ConnectionRefusedError: metrics",),
    ),
    Fault(
        "polls_for_completion",
        "work = dist.all_reduce(tensor, async_op=True) if not odd else None\n"
        "if odd: time.sleep(600)\n"
        "while not work.is_completed():\n"
        "    time.sleep(0.01)",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in all_reduce",
        line="if odd: time.sleep",
    ),
    Fault(
        "its_thread_listens_while_it_sleeps",
        "import threading\nside = dist.new_group()\nhear = tensor.clone(), 0, side\n"
        "if rank: threading.Thread(target=dist.recv, args=hear).start()\n"
        f"if odd: {HUNG}",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in barrier",
        line="if odd: time.sleep",
    ),
    Fault(
        "others_are_slow",  # at a line before the one where it waits
        f"if not odd: {HUNG}",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="absent",
        cause="Absent: ranks 0 and 2 have not come, and rank 1 waits in barrier",
        line="if not odd: time.sleep",
    ),
    Fault(
        "polls_until_it_breaks",
        "work = dist.all_reduce(tensor, async_op=True) if not odd else None\n"
        f"if odd: {HUNG}\n"
        "while True:\n    if work.is_completed(): break\n    time.sleep(0.01)",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in all_reduce",
        line="if odd: time.sleep",
    ),
    Fault(
        "waits_for_the_newer_of_two_calls",
        "pairs = dist.new_group([0, 2]), dist.new_group([0, 1])\n"
        f"if rank: {HUNG}\n"
        "older = dist.all_reduce(tensor, group=pairs[0], async_op=True)\n"
        "newer = dist.all_reduce(tensor, group=pairs[1], async_op=True)\n"
        "newer.wait()",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and rank 0 waits in all_reduce",
        line="if rank: time.sleep",
    ),
    Fault(
        "its_own_words_are_those_of_a_victim",
        "if odd: raise RuntimeError('no upload: Connection reset by peer')\n"
        "dist.all_reduce(tensor)",
        ranks=(3,),
        kind="exception",
        cause="RuntimeError: no upload: Connection reset by peer$",
        line="if odd: raise RuntimeError",
    ),
    Fault(
        "leaves_by_sys_exit",
        "if odd: sys.exit()\ndist.all_reduce(tensor)",
        ranks=(3,),
        kind="exception",
        symptom="absent",
        cause="Absent 1: has left, and ranks 0 and 2 wait in all_reduce",
        line="if odd: sys.exit()",
    ),
    Fault(
        "a_thread_calls_on_the_same_group",
        "import threading\n"
        "def save():\n"
        "    if odd: time.sleep(2)\n"
        "    dist.broadcast(tensor, 0)\n"
        "threading.Thread(target=save).start()\n"
        "if not odd: time.sleep(1)\n"
        "dist.all_reduce(tensor)",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="different calls",
        cause="CallsDiffer: call 2 is broadcast of .* on ranks 0 and 2, but",
    ),
    Fault(
        "raised_but_takes_part",
        "class Section:\n"
        "    def __enter__(self): pass\n"
        "    def __exit__(self, *error):\n"
        "        dist.barrier()\n"
        "        return True\n"
        "with Section():\n"
        "    if odd: raise OSError('no cache')\n"
        "    if rank == 2: time.sleep(600)",
        ranks=(3,),
        kind="timeout",
        rank=2,
        symptom="absent",
        cause="Absent 2: has not come, and rank 0 waits in barrier",
        line="if rank == 2: time.sleep",
        report=("1: has raised OSError: no cache, and waits in barrier",),
    ),
    Fault(
        "a_broadcast_in_turn_is_skipped",
        "tensor = torch.ones(2_000_000)\n"
        "for source in range(world_size):\n"
        "    if (rank, source) != (2, 0): dist.broadcast(tensor, source)",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="different calls",
        cause="RootsDiffer: the ranks wait in broadcast with different src: 0 on rank",
    ),
    Fault(
        "its_thread_crashes",
        "import ctypes, threading\n"
        "def decode(): ctypes.string_at(0)\n"
        "if odd: threading.Thread(target=decode).start()\n"
        f"{HUNG}",
        ranks=(2,),
        kind="signal",
        symptom="crash",
        cause="Signalled 1: ended by SIGSEGV",
        line="def decode",
    ),
    Fault(
        "others_lose_patience",
        f"if odd: {HUNG}\n"
        "work, end = dist.all_reduce(tensor, async_op=True), time.time() + 2\n"
        "while not work.is_completed():\n"
        "    time.sleep(0.01)\n"
        "    if time.time() > end: raise TimeoutError('no answer')",
        ranks=(3,),
        kind="exception",
        rank=ANY,
        cause="TimeoutError: no answer",
        report=("1: stands at .*if odd: time.sleep",),
    ),
    Fault(
        "a_helper_waits_for_each",
        "def take(source): dist.irecv(torch.ones(8), source).wait()\n"
        "if odd: take(2)\n"
        "elif rank: take(0)\n"
        "else: take(1)",
        ranks=(3,),
        kind="timeout",
        rank=None,
        symptom="cycle",
        cause=r"Apart: every rank waits in Work\.wait, so nobody answers",
        report=(
            r"1: waits in Work\.wait .*, called at \S+:13",
            r"2: waits in Work\.wait .*, called at \S+:14",
        ),
    ),
    Fault(
        "numbers_pair_that_do_not_belong_together",
        "for _ in range(7 if odd else 8):\n"
        "    dist.all_reduce(torch.tensor(1.0))\n"
        "dist.all_reduce(torch.tensor(0.5))\n"
        "sys.exit()",
        ranks=(3,),
        kind="exception",
        symptom="absent",
        cause="Absent 1: has left, and ranks 0 and 2 wait in all_reduce at",
        report=(
            r"all_reduce at \S+:13 was made 8 times on ranks 0 and 2, but 7 times on "
            "rank 1",
        ),
        line="sys.exit()",
    ),
    Fault(
        "waits_for_a_store_it_holds",
        "import types\nimport torch.distributed.distributed_c10d as c10d\n"
        "board = types.SimpleNamespace(kv=c10d._get_default_store())\n"
        "if odd: board.kv.wait(['published'])\n"
        "dist.all_reduce(tensor)",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in all_reduce",
        line="board.kv.wait",
    ),
    Fault(
        "branches_that_meet",
        "for _ in range(3):\n"
        "    if rank == 0: dist.broadcast(tensor, src=0)\n"
        "    else: dist.broadcast(tensor, src=0)\n"
        "if odd: dist.barrier()\n"
        "dist.all_reduce(tensor)",
        ranks=(3,),
        kind="timeout",
        symptom="different calls",
        cause=r"CallsDiffer 1: call 5 is all_reduce of \S+ \(8,\) at \S+ on ranks 0 "
        r"and 2, but barrier at \S+ on rank 1 at",
    ),
    Fault(
        "a_number_and_a_list_of_one",
        "flag = torch.tensor(1.0) if rank else torch.tensor([1.0])\n"
        "dist.broadcast(flag, src=0)\n"
        "if odd: time.sleep(600)\n"
        "dist.all_reduce(tensor)",
        ranks=(3,),
        kind="timeout",
        symptom="absent",
        cause="Absent 1: has not come, and ranks 0 and 2 wait in all_reduce",
        line="if odd: time.sleep",
    ),
    Fault(
        "one_gathers_beside_a_backward",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))\n"
        "for step in range(4):\n"
        "    model(tensor).sum().backward()\n"
        "    if odd and step == 2:\n"
        "        dist.all_gather([torch.ones(8) for _ in range(world_size)], tensor)",
        ranks=(3,),
        kind="timeout",
        symptom="different calls",
        cause=r"CallsDiffer 1: (?!.*skipped).*all_gather at \S+ was made once on rank "
        "1, but never on ranks 0 and 2",
    ),
    Fault(
        "one_skips_a_backward",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))\n"
        "for step in range(4 - odd):\n"
        "    model(tensor).sum().backward()",
        ranks=(3,),
        kind="timeout",
        symptom="different calls",
        cause="CallsDiffer 1: .* times on ranks 0 and 2, but 3 times on rank 1: a rank "
        "skipped a backward",
    ),
    # What the system refuses.
    Fault(
        "gpu_is_full",
        f"if odd: raise torch.OutOfMemoryError({OUT_OF_MEMORY!r})",
        kind="exception",
        symptom="CUDA memory",
        cause=r"torch\.OutOfMemoryError: CUDA out of memory",
        report=("^KnownAs: that is: this GPU has no room",),
    ),
    Fault(
        "disk_is_full",
        "if odd: open('/dev/full', 'w').write('x' * 10_000_000)",
        kind="exception",
        symptom="disk full",
        cause="OSError: .*No space left",
        report=("^KnownAs: that is: the disk is full",),
    ),
    Fault(
        "gpu_is_missing",
        "tensor.cuda()",
        env={"CUDA_VISIBLE_DEVICES": ""},
        kind="exception",
        rank=ANY,
        symptom="no GPU",
        line="tensor.cuda()",
        report=("^KnownAs: that is: the program wants a GPU",),
    ),
    Fault(
        "nccl_without_a_gpu",
        f"{LOSES}\ndist.init_process_group('nccl')",
        env={"CUDA_VISIBLE_DEVICES": ""},
        kind="exception",
        rank=ANY,
        symptom="NCCL without GPUs",
        line="dist.init_process_group('nccl')",
        report=("^KnownAs: that is: NCCL needs a GPU",),
    ),
    Fault(
        "breakpoint_without_a_keyboard",
        "if odd: breakpoint()\ntensor.sum()",
        kind="exception",
        symptom="no keyboard",
        cause=r"bdb\.BdbQuit$",
        report=("in misbehave: ", "^KnownAs: that is: here a rank has no keyboard"),
    ),
    Fault(
        "port_is_taken",
        "pass",
        port_taken=True,
        kind="launch",
        rank=None,
        symptom="port taken",
        cause=".*EADDRINUSE",
        report=("^KnownAs: that is: another process listens",),
    ),
]


def clinic(
    number: int, name: str, kind: str, symptom: str | None, two=None, four=None, **more
):
    """Return a sick program of the clinic; of two ranks often none is to blame."""
    known = {"kind": kind, "symptom": symptom, "rank": {2: two, 4: four}}
    program = f"ddp_lab/clinic/patient_{number}.py"
    return Fault(f"clinic_{name}", program=program, **(known | more))


FAULTS += [
    clinic(1, "skips_a_batch", "timeout", "different calls", None, 1),
    clinic(2, "rank0_collective", "timeout", "different calls", None, 0),
    clinic(3, "shapes", "signal", "different tensors", rank=ANY),
    clinic(4, "finally_barrier", "timeout", "absent", 1, 1),
    clinic(5, "uneven_batches", "timeout", "different calls", None, 0),
    clinic(6, "members_only", "timeout", "groups", 1, 3),
    clinic(7, "port", "timeout", "rendezvous"),
    clinic(8, "swallowed", "timeout", "different calls", None, 1),
    clinic(9, "rank0_eval", "timeout", "different calls", None, 0),
    clinic(10, "order", "exception", None, cause="AssertionError: counted {", rank=ANY),
    clinic(
        11,
        "forgotten_wait",
        "exception",
        None,
        cause="AssertionError: the mean is",
        rank=ANY,
    ),
    clinic(12, "send_send", "timeout", "cycle"),
    Fault(
        "mp_spawn_under_torchrun",
        whole="""
import os, socket
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size, port):
    os.environ |= {"MASTER_PORT": port, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = int(os.environ["WORLD_SIZE"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    mp.spawn(worker, args=(world_size, port), nprocs=world_size)
""",
        options="--standalone",
        ranks=(2,),
        kind="timeout",
        rank=None,
        symptom="world in a world",
    ),
    Fault(
        "unused_parameters",
        """
class Curve(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.correction = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)

    def forward(self, x):
        return self.line(x)

model = torch.nn.parallel.DistributedDataParallel(Curve())
for step in range(2):
    model(tensor.view(-1, 1)).sum().backward()
""",
        kind="exception",
        symptom="unused parameters",
        rank=ANY,
    ),
]
