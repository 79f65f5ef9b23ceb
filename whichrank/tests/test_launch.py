"""The launcher: what comes back by rank, what a failure says, what stays (nothing)."""

import inspect
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from forked import let_servers_be_forks, let_torchrun_be_a_fork
from launched import python, torchrun
from support import FULL, HOUSE, SOURCE, wait_until

import whichrank
from whichrank import Limits, RunFailed, Warm
from whichrank import launch as launch_room
from whichrank.run import tricks
from whichrank.run.channels import LENT
from whichrank.run.command import OWN_STORE, Command
from whichrank.run.here import Here, environment
from whichrank.run.inside.program import _leave_word

pytestmark = pytest.mark.processes

HEAD = """
import json, os, signal, sys, time, warnings
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program (without torch, so it starts fast)."""

    def write(body: str, head: str = HEAD) -> str:
        path = tmp_path / "program.py"
        path.write_text(head + textwrap.dedent(body))
        return str(path)

    return write


@pytest.fixture
def forks(monkeypatch):
    """Let the warm processes of this test be forks."""
    let_servers_be_forks(monkeypatch)


@pytest.fixture
def warm(forks, warm):
    """Return a warm start of this test's own, whose server is a fork."""
    return warm


def server_of(warm: Warm) -> str:
    """Return the pid of a fork server, who listens at its socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(warm.folder / "socket"))
        who = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
    return str(int.from_bytes(who, sys.byteorder))


def test_lines_facts_and_exit_codes_come_back_by_rank(program):
    path = program("""
        time.sleep(0.2 * (world_size - rank))  # the last rank is the first to print
        print(f"[rank {rank}] hello", flush=True)
        print("and again", sys.argv[1], flush=True)
        print(json.dumps({"square": rank ** 2}), flush=True)
        print(json.dumps({"name": str(rank)}), flush=True)
    """)
    run = torchrun(["--nproc-per-node", "3", path, "two words"])
    assert run.lines == [[f"[rank {r}] hello", "and again two words"] for r in range(3)]
    assert run["square"] == [0, 1, 4]
    assert run["name"] == ["0", "1", "2"]
    assert run.exit_codes == [0, 0, 0]
    assert run.failure is None
    assert run.warnings == [[], [], []]
    assert run.command.startswith("torchrun --standalone --nproc-per-node 3")
    with pytest.raises(KeyError, match="ranks \\[0, 1, 2\\] reported no 'cube'"):
        run["cube"]


def test_whoever_watches_sees_what_was_printed_so_far(program, tmp_path):
    path = program("""
        print("first", flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.05)
        print("last", flush=True)
    """)
    seen, flag = [], tmp_path / "seen"

    def watch(run):
        seen.append(run.lines)
        if run.lines == [["first"]]:
            flag.touch()  # only now the program goes on

    run = torchrun(f"--nproc-per-node 1 {path} {flag}", watch=watch, timeout=20)
    assert [["first"]] in seen and seen[-1] == run.lines == [["first", "last"]]


def test_real_warnings_reach_the_reader_and_noise_does_not(program):
    path = program("""
        print("[Gloo] Rank 0 is connected to 1 peer ranks. Expected ...: 1", flush=True)
        warnings.warn("mind the gap")
    """)
    run = torchrun(f"--nproc-per-node 2 {path}")
    assert run.lines == [[], []]
    assert all("mind the gap" in "\n".join(warned) for warned in run.warnings)
    assert "OMP_NUM_THREADS" not in str(run.warnings)


def test_a_raising_rank_is_named_with_its_line(program):
    path = program("""
        def work():
            raise ValueError("wrong neighbor")
        if rank == 1:
            work()
        time.sleep(60)
    """)
    with pytest.raises(RunFailed, match="rank 1: ValueError: wrong neighbor") as caught:
        torchrun(f"--nproc-per-node 2 {path}")
    failure = caught.value.run.failure
    assert (failure.kind, failure.rank) == ("exception", 1)
    assert failure.where.endswith('in work: raise ValueError("wrong neighbor")')
    assert "Traceback" in str(caught.value)
    assert caught.value._render_traceback_()[0].startswith("RunFailed: rank 1")


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=FULL)])
def test_the_victim_is_not_taken_for_the_cause(program, cold, tmp_path, monkeypatch):
    let_torchrun_be_a_fork(monkeypatch)
    path = program(f"""
        left_the_group = "{tmp_path}/left"
        if rank == 0:
            while not os.path.exists(left_the_group):
                time.sleep(0.01)
            said = "[pair.cc:534] Connection closed by peer [127.0.0.1]:1"
            torchs = "/lib/site-packages/torch/distributed/distributed_c10d.py"
            exec(compile(f"raise RuntimeError({{said!r}})", torchs, "exec"))
        open(left_the_group, "w").close()
        time.sleep(0.5)
        raise ValueError("the real cause")
    """)
    run = torchrun(f"--nproc-per-node 2 {path}", cold=cold, expect_failure=True)
    assert (run.failure.rank, run.failure.cause) == (1, "ValueError: the real cause")
    assert run.failure.others == {}
    assert run.exit_codes == [1, 1]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_killed_rank_is_named_with_its_signal(program, name):
    path = program(f"""
        if rank == 1:
            os.kill(os.getpid(), signal.{name})
        time.sleep(60)
    """)
    run = torchrun(f"--nproc-per-node 2 {path}", expect_failure=True)
    assert (run.failure.kind, run.failure.rank) == ("signal", 1)
    assert name in run.failure.cause
    assert run.exit_codes[1] == -signal.Signals[name]


def test_an_exit_code_is_told(program):
    path = program("sys.exit('needs an even number of ranks')")
    run = torchrun(f"--nproc-per-node 1 {path}", expect_failure=True)
    assert run.failure.kind == "exit"
    assert "exit code 1: needs an even number of ranks" in run.failure.cause


@pytest.mark.parametrize("options", ["--nproc-per-mode 2", "--no-such --run-path"])
def test_a_wrong_option_is_a_failure(program, options):
    run = torchrun(f"{options} {program('')} 7", expect_failure=True)
    assert run.failure.kind == "launch"
    assert "unrecognized arguments: --n" in run.failure.cause


def test_success_where_failure_was_expected_raises(program):
    with pytest.raises(RunFailed, match="expected the run to fail, but it succeeded"):
        torchrun(f"--nproc-per-node 1 {program('')}", expect_failure=True)


def test_a_timeout_tells_where_each_rank_stood_and_leaves_nothing(program, survivors):
    path = program("""
        def wait_for_ever():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("waiting", flush=True)
            time.sleep(600)
        wait_for_ever()
    """)
    run = torchrun(f"--nproc-per-node 2 {path}", timeout=1, expect_failure=True)
    assert (run.failure.kind, run.failure.rank) == ("timeout", None)
    for rank in range(2):
        assert run.failure.others[rank].endswith("wait_for_ever: time.sleep(600)")
    assert wait_until(lambda: survivors() == 0)


def test_output_keeps_a_run_alive(program):
    path = program("""
        for step in range(14):
            print(step, flush=True)
            time.sleep(0.5)
    """)
    run = torchrun(f"--nproc-per-node 1 {path}", timeout=6)
    assert run.seconds > 6


CALLER = """
import sys
from launched import torchrun
torchrun(f"--nproc-per-node 2 {sys.argv[1]}")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_nothing_outlives_the_caller(program, survivors, tmp_path, name):
    started = tmp_path / "started"
    path = program(f"""
        open(f"{started}{{rank}}", "w").close()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    """)
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, path], cwd=HOUSE, stderr=subprocess.DEVNULL
    )
    assert wait_until(lambda: os.path.exists(f"{started}1"), 60)
    assert survivors() >= 5  # the caller, the guard, torchrun, two ranks
    caller.send_signal(signal.Signals[name])
    caller.wait(30)
    assert wait_until(lambda: survivors() == 0)


def test_what_a_finished_run_left_behind_is_ended(program, survivors):
    path = program("""
        import subprocess
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    """)
    torchrun(f"--nproc-per-node 2 {path}")
    assert wait_until(lambda: survivors() == 0)


def test_the_kernels_environment_does_not_reach_the_ranks(program, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "inline")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    names = ["MPLBACKEND", "FORCE_COLOR", "OMP_NUM_THREADS"]
    path = program(f"print(json.dumps({{n: os.environ.get(n) for n in {names}}}))")
    run = torchrun(f"--nproc-per-node 2 {path}")
    expected = {"MPLBACKEND": None, "FORCE_COLOR": None, "OMP_NUM_THREADS": "1"}
    assert run.facts == [expected, expected]


def test_a_run_may_choose_its_own_rendezvous(program, free_port):
    path = program("print(os.environ['MASTER_PORT'])")
    run = torchrun(f"--nnodes 1 --nproc-per-node 1 --master-port {free_port} {path}")
    assert run.lines == [[str(free_port)]]
    assert "--standalone" not in run.command


def test_a_run_has_limits(program):
    path = program("while True: print('0123456789' * 100)")
    limits = Limits(output=1_000_000)
    run = torchrun(f"--nproc-per-node 1 {path}", limits=limits, expect_failure=True)
    assert run.failure.kind == "output"
    assert "more than 1,000,000 bytes of output" in run.failure.cause
    assert run.log_folder is None


def test_a_timeout_takes_the_place_of_the_limit_for_silence(program):
    path = program("print('begun', flush=True)\ntime.sleep(600)")
    limits = Limits(silence=600, first_sign=600)
    command = f"--nproc-per-node 1 {path}"
    run = torchrun(command, timeout=1, limits=limits, expect_failure=True)
    assert run.failure.kind == "timeout"
    assert "after 1 seconds" in run.failure.report()


def test_a_folder_is_made_when_it_is_needed_and_removed_in_the_end(tmp_path):
    place = Here([], whichrank.COLD)
    place.home = tmp_path / "runs"
    assert not place.home.exists()
    (place.folder / "out").touch()
    assert place.folder.parent == place.home
    place.close()
    assert not list(place.home.iterdir())


def test_long_output_is_kept_short(program):
    path = program("for i in range(300_000): print('0123456789')")
    run = torchrun(f"--nproc-per-node 1 {path}")
    assert any("bytes left out" in line for line in run.lines[0])
    assert sum(map(len, run.lines[0])) < 3_000_000


# --- a program that is not there ---


@pytest.mark.parametrize(
    "launch, command",
    [
        (torchrun, "--nproc-per-node 2 no/ring.py 7"),
        (python, "no/ring.py"),
    ],
)
def test_a_missing_program_is_said_once(launch, command):
    with pytest.raises(RunFailed, match="^there is no file no/ring.py$"):
        launch(command)


@pytest.mark.parametrize("ranks", ["0", "-1"])
def test_no_rank_at_all_is_refused_in_a_sentence(ranks):
    with pytest.raises(RunFailed, match=f"^--nproc-per-node {ranks}: .* at least one"):
        torchrun(f"--nproc-per-node {ranks} ring.py")


@pytest.mark.parametrize("brought", [[], ["an accelerator"]])
def test_a_number_of_ranks_that_is_none_is_refused_in_a_sentence(brought, monkeypatch):
    monkeypatch.setattr(launch_room, "entry_points", lambda group: brought)
    command = Command.parse(f"--nproc-per-node npu {__file__}")
    if brought:  # that may be its name
        launch_room._require(command)
        return
    with pytest.raises(RunFailed, match="^--nproc-per-node takes a number, not 'npu'"):
        launch_room._require(command)


def test_what_is_no_file_is_not_missed():
    run = torchrun("--nproc-per-node 1 -m no.ring", expect_failure=True)
    assert "No module named 'no'" in run.failure.cause
    assert torchrun("--nproc-per-node 1 --no-python true").failure is None


# --- torchrun's own options for the output ---


@pytest.mark.parametrize(
    "options",
    ["--log-dir {0}", "--log_dir={0} -r 0", "--redirects=0 --tee 3", "-t3 --redir 1:2"],
)
def test_the_lab_keeps_the_output_whatever_the_command_says(program, options, tmp_path):
    path = program("""
        print('[mine]', *sys.argv[1:], flush=True)
        printed = os.path.join(os.path.dirname(__file__), "printed")
        if rank == 0:
            open(printed, "w")
        while not os.path.exists(printed):  # else rank 0 may be killed before
            time.sleep(0.01)
        if rank == 1:
            sys.exit('no')
    """)
    options, own = options.format(tmp_path / "logs"), "--tee 3 --log-dir=x -r 0"
    command = f"{options} --nproc-per-node 2 {path} {own}"
    run = torchrun(command, expect_failure=True)
    assert run.lines == [[f"[mine] {own}"]] * 2, "the program's own arguments"
    assert (run.failure.rank, run.failure.cause) == (1, "exit code 1: no")
    (note,) = run.notes
    assert "the launcher keeps the ranks' output itself" in note
    assert all(word in note for word in options.split())
    assert not (tmp_path / "logs").exists()
    assert run.command == f"torchrun --standalone {command}"


def test_a_program_may_have_options_that_are_named_as_torchruns(program):
    path = program("print(*sys.argv[1:])")
    run = torchrun(f"--nproc-per-node 1 {path} --nodes 3 --rdzv-x=7")
    assert "--standalone" in run.command and run.lines == [["--nodes 3 --rdzv-x=7"]]
    assert run.notes == []


# --- what the caller may have open ---

FEW_FILES = """
import resource, sys
from launched import torchrun
from whichrank import RunFailed
most, ranks, program, cold = int(sys.argv[1]), *sys.argv[2:5]
if not cold:
    torchrun(f"--nproc-per-node 1 {program}")  # starts the warm process
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
try:
    run = torchrun(f"--nproc-per-node {ranks} {program}", cold=bool(cold))
    print(f"ok {run['limit']}")
except RunFailed as failed:
    print(failed)
"""


@pytest.mark.parametrize(
    "most, ranks, cold, told",
    [
        pytest.param(5, 2, "", "the launcher: .*Too many open files", marks=FULL),
        (24, 4, "", "the run: OSError: .*Too many open files"),
        pytest.param(16, 2, "", "the run: .*Failed to init uv loop", marks=FULL),
        pytest.param(16, 2, "cold", "the run: .*", marks=FULL),
        pytest.param(24, 4, "cold", "the run: OSError: .*Too many open", marks=FULL),
        pytest.param(28, 4, "cold", "the run: OSError: .*Too many open", marks=FULL),
        pytest.param(64, 2, "", r"ok \[64, 64\]", marks=FULL),
        pytest.param(64, 4, "cold", r"ok \[64, 64, 64, 64\]", marks=FULL),
    ],
)
def test_too_many_open_files_are_told_as_such(program, most, ranks, cold, told):
    path = program("""
        import resource
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        print(json.dumps({"limit": limit}))
    """)
    words = [sys.executable, "-c", FEW_FILES, str(most), str(ranks), path, cold]
    done = subprocess.run(words, cwd=HOUSE, capture_output=True, text=True, timeout=120)
    assert re.match(told, done.stdout), done.stdout + done.stderr
    if not told.startswith("ok"):
        assert "than `ulimit -n` allows" in done.stdout


HOLDS_ALL = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(open(__file__))
except OSError:
    pass
"""


@pytest.mark.parametrize("then", ["pass", "held.append(open(__file__))"])
def test_a_rank_without_a_free_descriptor_leaves_word(program, then):
    path = program(HOLDS_ALL + then, head="import resource")
    launch = f"--nproc-per-node 2 {path}"
    if then == "pass":
        run = torchrun(launch)
        assert [
            note for note in run.notes if "joined a process group" not in note
        ] == []
        return
    failure = torchrun(launch, expect_failure=True).failure
    assert failure.symptom == "too many open files"
    assert f"    {then}" in failure.traceback  # with its line, which is in a file


SLOW_THREAD = """
import resource, sys, threading, time
from pathlib import Path
from whichrank.run.inside import answers, program

begin, threads = threading.Thread.start, []
threading.Thread.start = lambda thread: threads.append(thread)  # as on a busy machine
answers.open_up(Path(sys.argv[1]))
make_room = program._make_room
program._make_room = lambda: (make_room(), begin(threads[0]), time.sleep(0.2))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(open(__file__))
except OSError as error:
    program._leave_word(Path(sys.argv[1]), error)
"""


def test_the_thread_that_answers_takes_no_descriptor_from_the_last_word(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_THREAD)
    words = [sys.executable, str(tmp_path / "slow.py"), str(tmp_path)]
    subprocess.run(words, check=True)
    said = json.loads((tmp_path / "raised.json").read_text())["traceback"]
    assert "    held.append(open(__file__))" in said


def test_an_exception_that_cannot_be_shown_leaves_word_of_when_and_where(tmp_path):
    class Mute:
        def __str__(self):
            raise RuntimeError

    error, before = ValueError("b"), time.time()
    vars(error)["__notes__"] = [Mute()]
    try:
        raise error
    except ValueError:
        _leave_word(tmp_path, error)
    left = json.loads((tmp_path / "raised.json").read_text())
    assert left["error"].startswith("ValueError, which cannot be shown: ")
    assert [frame[0] for frame in left["frames"]] == [__file__]
    assert before <= left["time"] <= time.time()


@pytest.mark.parametrize(
    "options, said, own",
    [
        ("--max-restarts 1", None, "1"),
        ("--max-restarts 1", "0", "0"),
        ("--max-restarts 0", None, None),
        ("--nnodes 1:1 --max-restarts 2", None, "1"),
        ("--max-restarts 1 --master-port 29613", None, None),
    ],
)
def test_each_attempt_has_a_store_of_its_own(program, monkeypatch, options, said, own):
    if said is not None:
        monkeypatch.setenv(OWN_STORE, said)
    path = program(f"print(os.environ.get({OWN_STORE!r}))")
    run = torchrun(f"{options} --nproc-per-node 1 {path}")
    assert run.lines == [[str(own)]]
    shown = f"{OWN_STORE}=1 " if own and not said else ""
    assert run.command.startswith(f"{shown}torchrun --")


def test_python_sorts_lines_by_the_rank_that_they_name(program):
    path = program(
        """
        print("[rank 1] one", flush=True)
        print("start", flush=True)
        print("[rank 0] zero[rank 1] two", flush=True)
        print('{"rank": 1, "loss": 2.5}{"rank": 0, "loss": 1.5}', flush=True)
        """,
        head="import json\n",
    )
    run = python(path)
    assert run.lines == [["start", "[rank 0] zero"], ["[rank 1] one", "[rank 1] two"]]
    assert run["loss"] == [1.5, 2.5]
    assert run.command.startswith("python ")


@pytest.mark.parametrize("command", ["", "-u", "-O train.py"])
def test_python_without_a_program_is_refused(command):
    with pytest.raises(RunFailed, match="needs a program"):
        python(command)


def test_python_tells_a_failure_but_blames_no_rank(program):
    run = python(program("raise ValueError('no')", head=""), expect_failure=True)
    assert (run.failure.kind, run.failure.rank) == ("exception", None)
    assert run.failure.cause == "ValueError: no"


SAME = """
import json, os, random, sys
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path[0], "name": __name__,
    "file": __file__, "env": os.environ["DDP_LAB_TEST"], "in": sys.stdin.read(),
    "rank": os.environ["RANK"], "threads": os.environ["RANK"] == "1" or
    __import__("torch").get_num_threads(),
}), flush=True)
print(random.random(), flush=True)
if os.environ["RANK"] == "0" or "torch" in sys.modules:  # whose import takes long
    print(__import__("torch").initial_seed(), flush=True)
"""


def test_a_warm_start_is_like_a_cold_one(program, monkeypatch):
    """So are the exit codes of programs that fail: see test_ends.py."""
    let_torchrun_be_a_fork(monkeypatch)
    monkeypatch.setenv("DDP_LAB_TEST", "as in a shell")
    command = f"--nproc-per-node 2 {program(SAME, head='')} a b"
    warm, cold = (torchrun(command, cold=cold) for cold in (False, True))
    assert warm.facts == cold.facts
    assert warm.exit_codes == cold.exit_codes == [0, 0]
    lines = [line for lines in warm.lines for line in lines]
    assert len(set(lines)) == 4, "two ranks draw the same random numbers"


NEIGHBOURS = """
import errors, fork_server, names, rank, sys
found = [each.__file__ for each in (errors, fork_server, names, rank)]
print(*found, __name__, sys.argv[1:])
"""


@pytest.mark.parametrize("cold", [False, True])
def test_a_program_may_have_modules_that_are_named_as_ours(program, tmp_path, cold):
    files = [tmp_path / f"{n}.py" for n in ("errors", "fork_server", "names", "rank")]
    for file in files:
        file.touch()
    path = program(NEIGHBOURS, head="")  # called program.py
    run = python(f"{path} a", cold=cold)
    assert run.lines == [[f"{' '.join(map(str, files))} __main__ ['a']"]]


INHERITED = """
import inspect, json, sys
frames = [frame.frame for frame in inspect.stack()]
kit = sorted(name for name in sys.modules if name.startswith("whichrank"))
unknown = [f.f_code.co_filename for f in frames if inspect.getmodule(f) is None]
print(json.dumps({"kit": kit, "unknown": unknown}))
"""


INSIDE = [
    "whichrank",
    "whichrank.record",
    "whichrank.record.names",
    "whichrank.run",
    "whichrank.run.channels",
    "whichrank.run.inside",
    "whichrank.run.inside.answers",
    "whichrank.run.inside.errors",
    "whichrank.run.inside.kernel",
    "whichrank.run.inside.pending",
    "whichrank.run.inside.program",
    "whichrank.run.inside.recorder",
]
OF_THE_FORK_SERVER = [
    f"whichrank.run.{name}" for name in ("fork_server", "guard", "namespaces", "tricks")
]


def test_a_program_inherits_little_of_the_kit_and_no_frame_without_a_module(program):
    run = python(program(INHERITED, head=""))
    assert run["kit"] == [sorted(INSIDE + OF_THE_FORK_SERVER)]
    assert run["unknown"] == [[]], "torchrun asks inspect often, which searches long"


PLAIN = """
import json, sys
import whichrank
found = sorted(sys.modules), sys.path, sys.argv, vars(whichrank).get("mine")
print(json.dumps([*found, sorted(globals()), type(__builtins__).__name__]))
"""


def test_a_cold_start_leaves_the_program_its_own_modules_and_path(program, tmp_path):
    """Be that a whichrank: the rank's Python may have another one than the launcher."""
    (tmp_path / "whichrank.py").write_text("mine = True")
    command = [program(PLAIN, head=""), "a"]
    rank = str(SOURCE / "run" / "rank.py")
    ours, plain = (
        json.loads(subprocess.check_output([sys.executable, "-u", *how, *command]))
        for how in ([rank], [])
    )
    assert {*plain[0]} <= {*ours[0]}
    assert not [name for name in ours[0] if name.startswith("whichrank.")]
    assert ours[1:4] == plain[1:4] and plain[3] is True
    assert {*ours[4]} <= {*plain[4]} and ours[5] == plain[5]


AT_EXIT = """
import sys

def note(frame, event, arg):
    code = frame.f_code
    if event == "call" and code.co_name in ("cleanup", "dump_compile_times"):
        print(code.co_name, code.co_filename)

sys.setprofile(note)
print("done")
"""


def test_a_fork_takes_nothing_apart_that_its_end_frees_anyway(program):
    run = python(program(AT_EXIT, head=""))
    assert run.lines == [["done"]]


TRICKS = """
import gc, json, os, re
maps = open(f"/proc/{os.getppid()}/smaps").read()
huge = sum(map(int, re.findall(r"AnonHugePages: +(\\d+) kB", maps)))
print(json.dumps({"frozen": gc.get_freeze_count(), "huge": huge}))
"""


def test_a_fork_has_frozen_objects_and_its_parent_huge_pages(program):
    run = python(program(TRICKS, head=""))
    assert run["frozen"][0] > 100_000
    can = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if can.exists() and "[never]" not in can.read_text():
        assert run["huge"][0] > 100_000 or platform.release() < "6.1"


def test_torchrun_asks_for_no_lines_of_code():
    with mock.patch.object(inspect, "stack"):
        tricks.list_no_source()
        assert inspect.stack.args == (0,)


@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=FULL)])
def test_a_module_runs_as_a_program(tmp_path, monkeypatch, cold):
    for name in ("a_package/__init__.py", "a_package/__main__.py", "a_module.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("import sys; print(__spec__.name, __package__, sys.argv)")
    monkeypatch.chdir(tmp_path)
    package = python("-m a_package x", cold=cold)
    file = tmp_path / "a_package" / "__main__.py"
    name = "a_package"
    told = [f"{name} {name} ['-m', 'x']", f"{name}.__main__ {name} ['{file}', 'x']"]
    assert package.lines[0] == told
    module = python("-m a_module", cold=cold)
    assert module.lines[0] == [f"a_module  ['{tmp_path / 'a_module.py'}']"]
    with pytest.raises(RunFailed, match="No module named no_such_module"):
        python("-m no_such_module", cold=cold)


def test_torchrun_alone_need_not_wait():
    assert (
        Random(tricks.SEED_WITHOUT_SLEEP).uniform(0, 0.3) < 0.01
    )  # torchrun ignores less


# What the variable says when torch is loaded counts, not what is set later.
SETS_FIRST = """
import os
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
import torch.distributed as dist
print(dist.get_debug_level())
"""


def test_a_program_that_sets_variables_for_torch_is_started_the_plain_way(
    program, monkeypatch
):
    let_torchrun_be_a_fork(monkeypatch)
    run = torchrun(f"--nproc-per-node 1 {program(SETS_FIRST, head='')}")
    assert run.lines == [["DebugLevel.DETAIL"]]
    assert "sets variables before it imports torch" in run.notes[0]


def test_a_changed_variable_starts_the_warm_process_anew(program, warm, monkeypatch):
    path = program("print(os.environ.get('TORCH_WORD'))")
    assert torchrun(f"--nproc-per-node 1 {path}").lines == [["None"]]
    first = server_of(warm)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/tmp/a")  # torch does so itself
    assert torchrun(f"--nproc-per-node 1 {path}").lines == [["None"]]
    assert server_of(warm) == first
    monkeypatch.setenv("TORCH_WORD", "three")
    assert torchrun(f"--nproc-per-node 1 {path}").lines == [["three"]]
    assert server_of(warm) != first


def test_a_variable_that_torch_reads_later_needs_no_other_warm_process(
    program, warm, monkeypatch
):
    level = program("import torch.distributed as t; print(t.get_debug_level())")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert torchrun(f"--nproc-per-node 1 {level}").lines == [["DebugLevel.OFF"]]
    first = server_of(warm)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert torchrun(f"--nproc-per-node 1 {level}").lines == [["DebugLevel.DETAIL"]]
    assert server_of(warm) == first


def test_a_warm_start_that_is_not_to_be_had_is_told_once(
    program, warm, monkeypatch, tmp_path
):
    let_torchrun_be_a_fork(monkeypatch)
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torchvision.py").write_text(
        "raise ImportError('half installed')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    command = f"--nproc-per-node 1 {program('print(rank)')}"
    first, second = torchrun(command), torchrun(command)
    assert first.lines == second.lines == [["0"]]
    told = "not a warm start: ImportError: half installed"
    assert first.notes == [told] and second.notes == []


def test_nothing_is_warm_if_nobody_wants_it(program, warm, monkeypatch):
    path = program("import os; print(os.getppid())", head="")
    let_torchrun_be_a_fork(monkeypatch)
    monkeypatch.setenv("WHICHRANK_COLD", "1")
    torchrun(f"--nproc-per-node 1 {path}")
    assert warm.process is None
    monkeypatch.delenv("WHICHRANK_COLD")
    ours = torchrun(f"--nproc-per-node 1 {path}").lines
    assert ours == [[server_of(warm)]]
    monkeypatch.setenv("WHICHRANK_COLD", "1")
    assert torchrun(f"--nproc-per-node 1 {path}").lines != ours


def test_a_lent_warm_process_is_used_as_long_as_it_serves(
    program, warm, monkeypatch, tmp_path
):
    file = program("import os; print(os.getppid())", head="")

    def grandparent():
        return torchrun(f"--nproc-per-node 1 {file}").lines[0]

    lender, env = Warm(), environment()
    monkeypatch.setenv(LENT, "")  # so that it is removed in the end
    lender.lend(env)
    server = [server_of(lender)]
    assert grandparent() == server and warm.process is None
    warm.stop()
    assert grandparent() == server, "the borrower has ended it"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert grandparent() == [server_of(warm)] != server, "another setting"
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    assert grandparent() == server
    lender.process.kill()
    time.sleep(0.5)  # it is a zombie now
    assert grandparent() == [server_of(warm)] != server
    lender.stop()
    own = server_of(warm)
    shutil.rmtree(warm.folder)  # somebody has tidied /tmp, or the lender has ended
    assert grandparent() == [server_of(warm)] != [own]


def test_a_warm_process_that_was_killed_is_replaced(program, warm):
    command = f"--nproc-per-node 1 {program('print(rank)')}"
    torchrun(command)
    warm.process.kill()
    warm.process.wait()
    run = torchrun(command)
    assert run.lines == [["0"]] and run.notes == []
    assert warm.process.poll() is None and not warm.trouble


def test_a_silent_program_that_is_warm_has_no_more_time_than_others(program):
    path = program("time.sleep(600)")
    limits = Limits(silence=2, first_sign=200)  # for imports, of which there are none
    run = torchrun(f"--nproc-per-node 1 {path}", limits=limits, expect_failure=True)
    assert run.failure.kind == "timeout" and run.seconds < limits.first_sign


BEATS = """
    import threading
    def beat():
        while True:
            print("alive", flush=True)
            time.sleep(0.2)
    threading.Thread(target=beat, daemon=True).start()
"""


def test_a_hang_beside_a_thread_that_prints_is_told(program):
    path = program(f"{BEATS}\n    time.sleep(600)", "import time\n")
    run = torchrun(f"--nproc-per-node 1 {path}", timeout=1, expect_failure=True)
    assert run.failure.kind == "timeout"
    assert "time.sleep(600)" in run.failure.where


@FULL  # see test_watchdog.py
def test_a_rank_that_computes_while_it_prints_is_left_alone(program):
    path = program(f"""{BEATS}
    begin = time.monotonic()
    while time.monotonic() < begin + 8:  # who stands still is ended after 5
        pass
    """)
    assert torchrun(f"--nproc-per-node 1 {path}", timeout=1).failure is None


NO_SERVER = """
import ctypes
from torch.distributed import TCPStore
resolver = ctypes.CDLL(None)
resolver.__res_init()
resolver.__res_state.restype = ctypes.POINTER(ctypes.c_int)
resolver.__res_state()[1] = 0  # attempts: a question for a server fails, and is told
TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
"""


def test_a_warm_start_asks_no_server_for_the_names_of_ranks(program):
    run = torchrun(f"--nproc-per-node 1 {program('', NO_SERVER)}")
    assert run.warnings == [[]]
