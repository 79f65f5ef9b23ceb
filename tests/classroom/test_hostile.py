"""A hostile submission costs its author points, and nobody else anything."""

import os
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from course import RING, box, cells, changed, solution
from support import words_of

from classroom.engine import fence, groups, judge, sandbox
from classroom.engine.check import try_case
from ddp_lab import ROOT

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        sandbox.available() is not None, reason="there is no sandbox here"
    ),
]
GB = 1_000_000_000
LIMITS = sandbox.Limits(seconds=200, memory=2 * GB, disk=4 * GB)
CASE = {"ranks": 2, "length": 8, "seed": 1}
RIGHT = next(cell for cell in cells("ring") if cell.name == "right")
HEAD = "import os, sys, time\nimport torch\nimport torch.distributed as dist\n\n\n"
DEF = "def all_reduce(x):\n"
MEMORY = "it used more than 2 GB of memory"
# By name: the body of all_reduce, and the words with which its only case ends.
HOSTILE = {
    "hangs": ("time.sleep(10_000)", "no end after"),
    "prints 1 GB": (
        "for _ in range(1000):\n        print('x' * 1_000_000)",
        "more than",  # bytes of output, or of memory
    ),
    "forks without end": (
        "while True:\n        try:\n            os.fork()\n"
        "        except OSError:\n            pass",
        "it had more than 300 processes and threads",
    ),
    "allocates all memory": (
        "kept = [torch.ones(25_000_000) for _ in range(30)]",
        MEMORY,
    ),
    "shares all memory": (
        "import mmap\n    kept = [mmap.mmap(-1, 10 ** 8) for _ in range(30)]\n"
        "    for part in kept:\n        part.write(bytes(10 ** 8))",
        MEMORY,
    ),
    "has files without a name": (
        "kept = [os.memfd_create('hidden') for _ in range(30)]\n"
        "    for file in kept:\n        os.write(file, bytes(10 ** 8))",
        MEMORY,
    ),
    "fills the folders": (
        "for i in range(10):\n        for folder in ('/tmp', '/run', '/dev/shm'):\n"
        "            open(f'{folder}/{i}', 'wb').write(bytes(10 ** 8))",
        MEMORY,
    ),
    "deletes its folder": (
        "import shutil\n    shutil.rmtree(sys.argv[1])",
        "fail: ",
    ),
    "leaves with 0": ("os._exit(0)", "ended before it had given its result"),
    "kills its parent": ("os.kill(os.getppid(), 9)\n    time.sleep(60)", "fail: "),
    "kills everybody": (
        "os.kill(-1, 9)",
        "the run broke off: one of its processes has killed the others",
    ),
    "kills process 1": ("os.kill(1, 9)\n    raise OSError('it lives')", "it lives"),
    "patches the harness": (
        "import ranks\n    ranks.give.__code__ = (lambda **values: None).__code__",
        "ended before it had given its result",
    ),
    "prints a forged report": (
        'print(\'{"state": "pass", "result": [1, 2]}\')\n    print("right: pass")',
        "expected [",
    ),
    "forges a result": (
        "open(f'{sys.argv[1]}/out/rank_0', 'wb').write(b'PK' + bytes(100))\n"
        "    os._exit(0)",
        "cannot be read",
    ),
    "gives half a character": (
        "import ranks\n"
        "    ranks.give(result='\\ud800', same=True, waited=True, intact=True)\n"
        "    ranks.give.__code__ = (lambda **values: None).__code__",
        "got ?",
    ),
    "is no Python": ("return (", "SyntaxError"),
}
# These keep the machine busy, or wait.
SLOW = {"hangs", "prints 1 GB", "forks without end", "fills the folders"}
SLOW |= {"has files without a name", "shares all memory", "kills its parent"}


def tried(text: str, criterion: str = "right", case: dict | None = None):
    """Return the verdict of one case."""
    with closing(box(RING, {"ring.py": text}, LIMITS)) as rig:
        return try_case(rig, criterion, case or CASE)


def marks(name: str) -> list[pytest.MarkDecorator]:
    full = [pytest.mark.full] if name in SLOW else []
    return [*full, pytest.mark.alone] if name == "forks without end" else full


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name)) for name in HOSTILE]
)
def test_a_hostile_program_fails(name):
    body, words = HOSTILE[name]
    verdict = tried(f"{HEAD}{DEF}    {body}\n")
    assert verdict.state == "fail", verdict
    assert words in str(verdict)


def test_who_forks_without_end_is_ended_at_the_limit_of_processes():
    """And not at that of seconds: meanwhile all of them would want the cores."""
    text = f"{HEAD}{DEF}    {HOSTILE['forks without end'][0]}\n"
    limits = replace(LIMITS, tasks=80)
    with closing(box(RING, {"ring.py": text}, limits)) as rig:
        verdict = try_case(rig, "right", CASE)
        assert "it had more than 80 processes" in str(verdict)
        assert rig._group.seconds() < 4, "of a core"


def in_turn(text: str, *lengths: int) -> list[str]:
    """Return the verdicts of cases of one submission, one after the other."""
    cases = [CASE | {"length": length} for length in lengths]
    with closing(box(RING, {"ring.py": text}, LIMITS)) as rig:
        return [str(try_case(rig, "right", case)) for case in cases]


def before(look: str) -> str:
    """Return the solution, with lines of code that come before its own."""
    return changed("ring", ("    b = bounds", f"{look}    b = bounds"))["ring.py"]


def test_after_a_kill_the_next_case_is_judged():
    first, second = in_turn(before("    if len(x) == 8: os.kill(-1, 9)\n"), 8, 9)
    assert first.startswith("fail: ") and second == "pass", (first, second)


def test_what_one_case_leaves_behind_is_not_there_for_the_next():
    look = """    folders = ["/tmp", "/dev/shm", "/run"]
    for folder in folders if dist.get_rank() == 0 else []:
        if os.path.exists(f"{folder}/left"):
            raise RuntimeError(f"{folder} is not empty")
        if len(x) == 8:
            os.makedirs(f"{folder}/left/behind")
    if dist.get_rank() == 0:
        import ctypes
        get = ctypes.CDLL(None).shmget  # shared memory by a number
        if get(98765, 100, 0) >= 0 or len(x) == 8 and get(98765, 100, 0o1600) < 0:
            raise RuntimeError("shared memory is left")
"""
    assert in_turn(before(look), 8, 9, 8) == ["pass"] * 3


def test_a_daemon_does_not_live_to_see_the_next_case():
    """It has left its session, its environment and its parents."""
    look = """    for pid in filter(str.isdigit, os.listdir("/proc")):
        if b"98765" in open(f"/proc/{pid}/cmdline", "rb").read():
            raise RuntimeError("the daemon is here")
    if dist.get_rank() == 0 and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "98765"], {})
        os._exit(0)
    dist.barrier()
"""
    assert in_turn(before(look), 8, 9) == ["pass"] * 2


ORPHAN = """    done, say = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            while time.process_time() < 1.5: pass
            os.write(say, b"!")
        os._exit(0)
    os.wait()
    os.read(done, 1)
"""


def test_after_an_ending_by_force_nothing_more_is_started():
    """What takes the time is a process that no other waits for."""
    wanted = [cell for cell in cells("ring") if cell.name in ("right", "any_length")]
    text = f"{HEAD}{DEF}{ORPHAN}"
    with closing(box(RING, {"ring.py": text}, sandbox.Limits(seconds=1))) as rig:
        rig.at_once = 1
        first, second = judge.try_all(rig, wanted).values()
    assert "it took more than 1 seconds of a core" in first["lines"][0]
    assert sandbox.NOT_STARTED in second["lines"][0]


@pytest.mark.parametrize(
    ("bound", "body", "words"),
    [
        ("disk", "open('/dev/shm/x', 'wb').write(bytes(2 * 10 ** 8))", "No space left"),
        ("output", "print('x' * 2 * 10 ** 8)", "bytes of output"),
    ],
)
def test_a_folder_and_the_output_are_bounded(bound, body, words):
    limits = replace(LIMITS, **{bound: 10**8})
    with closing(box(RING, {"ring.py": f"{HEAD}{DEF}    {body}\n"}, limits)) as rig:
        assert words in str(try_case(rig, "right", CASE))


def test_a_launcher_that_is_stopped_keeps_nobody(monkeypatch):
    """It is of the same user as the ranks, and the only one that ends a silent run."""
    monkeypatch.setattr(sandbox.runner, "limit", lambda timeout: 0)
    monkeypatch.setattr(sandbox.runner, "FIRST_SIGN", 8)
    stop = "import signal\n    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
    stop += "        if pid != str(os.getpid()):\n"
    stop += "            os.kill(int(pid), signal.SIGSTOP)\n    time.sleep(1000)"
    verdict = tried(f"{HEAD}{DEF}    {stop}\n")
    assert "it had given no answer" in str(verdict)


# What a program tries that is none of its business; it says what has succeeded.
ATTEMPTS = """    import socket, subprocess
    done, launcher = [], ""
    words = ["unshare -U true", "unshare -n true", "mount -t tmpfs x /tmp"]
    for words in map(str.split, words):
        if subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0:
            done.append(words)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            told = open(f"/proc/{pid}/status").read()
        except OSError:
            continue  # it has ended
        if "CapEff:\\t0000000000000000\\n" not in told:
            done.append(f"{pid} has a capability")
        if "Seccomp:\\t2\\n" not in told:
            done.append(f"{pid} may call what it likes")
        try:
            open(f"/proc/{pid}/mem").close()
        except PermissionError:
            launcher = pid  # whose memory is its own
        except ProcessLookupError:
            pass  # it has ended
    for folder, _, names in os.walk("/run"):
        for path in (f"{folder}/{name}" for name in names):
            try:
                asked = socket.socket(socket.AF_UNIX)
                asked.settimeout(5)
                asked.connect(path)
                asked.send(bytes(8))
                if asked.recv(100):
                    done.append(f"is answered at {path}")
            except OSError:
                pass
    if done or not launcher:
        raise RuntimeError(str(done))
"""


def test_a_program_cannot_leave():
    assert in_turn(before(ATTEMPTS), 8) == ["pass"]


CALLS = """
    unshare setns bpf perf_event_open userfaultfd add_key request_key keyctl
    io_uring_setup io_uring_enter io_uring_register
"""


def test_a_refused_call_fails():
    """And clone, if it shall make a namespace of users, and clone3, which may."""
    machine = os.uname().machine
    column = list(fence.AUDIT_ARCH).index(machine)
    calls = [[fence.REFUSED[name][column], 0] for name in CALLS.split()]
    calls.append([fence.CLONE[machine], 0x10000000])
    look = f"""    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for call in {calls}:
        if libc.syscall(*call, 0, 0, 0) != -1 or ctypes.get_errno() != 1:
            raise RuntimeError(f"call {{call}}")
    if libc.syscall(435, 0, 0) != -1 or ctypes.get_errno() != 38:
        raise RuntimeError("clone3")
"""
    assert in_turn(before(look), 8) == ["pass"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="of x86-64 alone")
def test_a_call_by_the_numbers_of_32_bits_kills():
    """Among them unshare has another number."""
    look = """    import ctypes, mmap
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b8 14000000 cd80 c3"))  # getpid, by int 0x80
    if (child := os.fork()) == 0:
        ctypes.CFUNCTYPE(int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 31:  # SIGSYS
        raise RuntimeError("it lives")
"""
    assert in_turn(before(look), 8) == ["pass"]


def test_an_exit_code_is_what_the_kernel_says():
    """A child waits for the end of its rank, and writes another one into the log."""
    forge = """    import atexit, json
    folder = os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"])
    if os.fork() == 0:
        os.setsid()
        while True:
            for name in ("exit.json", "end.json"):
                if os.path.exists(f"{folder}/{name}"):
                    said = json.load(open(f"{folder}/{name}")) | {"code": -9}
                    open(f"{folder}/{name}", "w").write(json.dumps(said))
            time.sleep(0.001)
    atexit.register(os._exit, 3)
"""
    outcomes = []
    text = before(forge).replace("import torch\n", "import os, time\nimport torch\n", 1)
    with closing(box(RING, {"ring.py": text}, LIMITS)) as rig:
        run = rig.run
        rig.run = lambda *args, **more: (
            outcomes.append(run(*args, **more)) or outcomes[0]
        )
        verdict = try_case(rig, "right", CASE)
    codes = outcomes[0].exit_codes[:2]  # the wire is ended last
    assert codes in ([3, 3], [3, 1], [1, 3]), verdict
    assert verdict.state == "fail"


def test_nothing_of_the_course_is_in_sight(tmp_path):
    """The program looks around, and does its work only if it has found nothing."""
    secret = tmp_path / "secret"
    secret.write_text("grades")
    (ROOT / "classroom" / "submitted").mkdir(exist_ok=True)
    ours = "source", "submitted", "engine/rig.py", "engine/judge.py"
    ours += "assignments/ring/criteria.py", "assignments/ring/mistakes.diff"
    hidden = [secret, ROOT / "tests", ROOT / "README.md"]
    hidden += [ROOT / "classroom" / name for name in ours]
    assert all(path.exists() for path in hidden)
    launcher = str(ROOT / "whichrank" / "src")
    known = str(ROOT / "ddp_lab"), launcher, sys.prefix
    look = f"""
    import socket, sys, tempfile
    for path in {[str(path) for path in hidden]}:
        if os.path.exists(path):
            raise RuntimeError(f"sees {{path}}")
    for folder, _, names in os.walk({str(ROOT)!r}):
        for path in (f"{{folder}}/{{name}}" for name in names):
            if not path.startswith({known}):
                raise RuntimeError(f"sees {{path}}")
    for folder in ("/", "/etc", "/usr", "/dev", {str(ROOT / "ddp_lab")!r}, sys.prefix):
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        raise RuntimeError(f"writes to {{folder}}")
    for name, port in (("1.1.1.1", 53), ("8.8.8.8", 443)):
        try:
            socket.create_connection((name, port), timeout=2)
        except OSError:
            continue
        raise RuntimeError("has a network")
    if any("inputs" in name for name in os.listdir(sys.argv[1])):
        raise RuntimeError("sees what the others were given")
"""
    text = solution("ring")["ring.py"].replace(
        "    b = bounds", look + "    b = bounds", 1
    )
    assert str(tried(text)) == "pass"


def test_no_rank_remembers_what_another_was_given():
    """A rank is a fork, with the frames and the memory of whoever has made it."""
    look = """
    frame, found = sys._getframe(), ""
    while frame:
        found += "".join(key for v in frame.f_locals.values() if isinstance(v, dict)
                         for key in v if isinstance(key, str) and "inputs_" in key)
        frame = frame.f_back
    if found:
        raise RuntimeError(f"finds {found}")
"""
    text = before(look).replace("import os\n", "import os\nimport sys\n", 1)
    assert str(tried(text)) == "pass"


def test_the_visible_answer_does_not_help():
    visible, *hidden = RIGHT.cases
    lookup = "import numpy\n\n\n" + DEF
    lookup += "    r = dist.get_world_size()\n"
    lookup += f"    draw = numpy.random.default_rng({visible['seed']})\n"
    lookup += (
        "    x[:] = torch.from_numpy(draw.integers(-20, 21, (r, len(x))).sum(0))\n"
    )
    seen = tried(HEAD + lookup, case=visible)
    unseen = tried(HEAD + lookup, case=hidden[-1])
    assert (seen.state, unseen.state) == ("pass", "fail"), (seen, unseen)


def test_no_process_outlives_its_sandbox():
    """A daemon that has left its session, its environment and its parents."""
    daemon = "    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
    seconds = f"98765.{os.getpid()}"  # nobody else's
    daemon += f"            os.execve('/bin/sleep', ['sleep', '{seconds}'], {{}})\n"
    daemon += "        os._exit(0)\n"
    answer = changed("ring", ("    b = bounds", daemon + "    b = bounds"))
    tried(answer["ring.py"])
    assert not any(seconds in words_of(p) for p in psutil.process_iter())


BOMB = f"{HEAD}{DEF}    {HOSTILE['forks without end'][0]}\n"


@pytest.mark.full
@pytest.mark.alone
def test_a_fork_bomb_costs_no_neighbor_anything(tmp_path, monkeypatch):
    handed = {"anna": solution("ring")["ring.py"], "bomb": BOMB}
    few = RIGHT.cases[:1]
    wanted = [replace(RIGHT, name=name, cases=few) for name in ("right", "any_length")]
    monkeypatch.setattr(judge, "criteria", lambda name: wanted)
    monkeypatch.setattr(judge, "COURSE", tmp_path)
    monkeypatch.setattr(judge, "notebook", lambda *names: names[-1])
    monkeypatch.setattr(judge, "answers", lambda who, _: ({"ring.py": handed[who]}, ""))
    monkeypatch.setattr(sandbox, "SIDE_BY_SIDE", 1)  # of one submission
    reports = {r.student: r for r in judge.judge_all("ring", [*handed])}
    assert reports["anna"].score == reports["anna"].maximum > 0, reports["anna"]
    first, second = reports["bomb"].criteria.values()
    assert HOSTILE["forks without end"][1] in first["lines"][0]
    assert sandbox.NOT_STARTED in second["lines"][0]
    # A group with a process in it cannot be removed.
    ours = f"{groups.PREFIX}{os.getpid()}-*"
    assert not [group for home in groups.homes() for group in home.glob(ours)]


def test_the_same_answer_gets_the_same_grade():
    text = changed("ring", ("length * i // parts", "length // parts * i"))["ring.py"]
    first, second = in_turn(text, 9, 9)
    assert first.startswith("fail: ") and first == second
