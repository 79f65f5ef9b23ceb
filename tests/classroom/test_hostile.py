"""A hostile submission costs its author points, and nobody else anything."""

import json
import os
import platform
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from conftest import wait_until, words_of
from course import RING, as_notebook, box, cells, changed, solution

from classroom.engine import fence, groups, judge, sandbox, traces, watchdog
from classroom.engine.check import try_case
from ddp_lab import ROOT

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        sandbox.available() is not None, reason="there is no sandbox here"
    ),
]
GB = 1_000_000_000
LIMITS = sandbox.Limits(seconds=200, memory=4 * GB)
CASE = {"ranks": 2, "length": 8, "seed": 1}
HEAD = "import os, sys, time\nimport torch\nimport torch.distributed as dist\n\n\n"
DEF = "def all_reduce(x):\n"
# By name: the body of all_reduce, and the words with which its only case ends.
HOSTILE = {
    "raises": ("raise RuntimeError('no')", "RuntimeError: no"),
    "hangs": ("time.sleep(10_000)", "no end after"),
    "prints 1 GB": (
        "for _ in range(1000):\n        print('x' * 1_000_000)",
        "bytes of output",
    ),
    "forks without end": (
        "while True:\n        try:\n            os.fork()\n"
        "        except OSError:\n            pass",
        "more than 300 processes",
    ),
    "allocates all memory": (
        "time.sleep(1000 * dist.get_rank())\n"
        "    kept = []\n    while True:\n        kept.append(torch.ones(25_000_000))",
        "can't allocate memory",  # a process has two thirds of what all may have
    ),
    "shares all memory": (
        "import mmap\n    kept = []\n    while True:\n"
        "        kept.append(mmap.mmap(-1, 100_000_000))\n"
        "        kept[-1].write(b'x' * 100_000_000)\n"
        "        print(len(kept), flush=True)",  # slow on a busy machine, and no hang
        "more than 4 GB of memory",
    ),
    "holds memory that no process has": (
        "kept = []\n    for _ in range(60):\n"
        "        kept.append(os.memfd_create('hidden'))\n"
        "        os.write(kept[-1], bytes(100_000_000))\n"
        "        print(len(kept), flush=True)",
        "more than 4 GB of memory",
    ),
    "fills the disk": (
        "for i in range(100):\n        open(f'/tmp/{i}', 'wb').write(bytes(10 ** 8))",
        "No space left on device",
    ),
    "deletes its folder": (
        "import shutil\n    shutil.rmtree(sys.argv[1])",
        "fail: ",
    ),
    "leaves with 0": ("os._exit(0)", "ended before it had given its result"),
    "kills its parent": ("os.kill(os.getppid(), 9)\n    time.sleep(60)", "fail: "),
    "kills everybody": ("os.kill(-1, 9)", "fail: "),
    "kills process 1": ("os.kill(1, 9)\n    raise OSError('it lives')", "it lives"),
    "closes all files": ("os.closerange(0, 1000)", "fail: "),
    "patches the harness": (
        "import ranks\n    ranks.give.__code__ = (lambda **values: None).__code__",
        "ended before it had given its result",
    ),
    "patches torch": (
        "dist.get_world_size = lambda: 1\n    torch.equal = lambda a, b: True",
        "expected [",
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
        "import ranks\n    ranks.give(result='\\ud800', same=True)\n"
        "    ranks.give.__code__ = (lambda **values: None).__code__",
        "got ?",
    ),
    "is no Python": ("return (", "SyntaxError"),
}
# These keep the machine busy, or wait.
SLOW = {"hangs", "prints 1 GB", "forks without end", "allocates all memory"}
SLOW |= {
    "holds memory that no process has",
    "shares all memory",
    "fills the disk",
    "kills its parent",
}


@pytest.fixture
def nobody_left(monkeypatch):
    """See that no process of a sandbox of this test is left behind."""
    inside = {}

    class Seen(sandbox._Run):
        def __init__(self, *args):
            super().__init__(*args)
            # Held open, or its number could soon be another sandbox's.
            kept = open(f"/proc/{self.init}/ns/pid")
            inside[watchdog._namespace(self.init)] = kept

    monkeypatch.setattr(sandbox, "_Run", Seen)
    yield

    def alive() -> list[int]:
        left = [pid for pid in psutil.pids() if watchdog._namespace(pid) in inside]
        return [*filter(sandbox._lives, left)]

    # All have been killed; where the machine is busy, that takes its time.
    assert inside and wait_until(lambda: not alive(), 120), alive()
    for kept in inside.values():
        kept.close()


def tried(text: str, criterion: str = "right", case: dict | None = None):
    """Return the verdict of one case."""
    with closing(box(RING, {"ring.py": text}, LIMITS)) as rig:
        return try_case(rig, criterion, case or CASE)


def marks(name: str) -> list[pytest.MarkDecorator]:
    bomb = [pytest.mark.alone] if name == "forks without end" else []
    return [pytest.mark.full, *bomb] if name in SLOW else bomb


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name)) for name in HOSTILE]
)
def test_a_hostile_program_fails(name):
    body, words = HOSTILE[name]
    verdict = tried(f"{HEAD}{DEF}    {body}\n")
    assert verdict.state == "fail", verdict
    assert words in str(verdict)


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


def two_judged(body: str, **limits: float) -> list[str]:
    """Return what is said of two criteria, one after the other."""
    wanted = [cell for cell in cells("ring") if cell.name in ("right", "any_length")]
    programs = {"ring.py": f"{HEAD}{DEF}    {body}\n"}
    with closing(box(RING, programs, sandbox.Limits(**limits))) as rig:
        rig.at_once = 1
        found, _ = judge.try_all(rig, wanted)
    return ["\n".join(found[cell.name]["lines"]) for cell in wanted]


def test_after_an_ending_by_force_nothing_more_is_started(monkeypatch):
    """What was too much is known with the answer, before anybody looks again."""
    monkeypatch.setattr(sandbox, "LOOK_EVERY", 600)
    busy = "while time.process_time() < 1.5: pass"
    assert two_judged(busy, seconds=1)[1] == f"any_length: fail: {sandbox.NOT_STARTED}"


def test_time_that_passes_is_no_zero():
    """A busy machine may need long for all runs of a right answer."""
    for said in two_judged("time.sleep(1000)", wall=1):
        assert "blocked: the machine is too busy" in said


# What a program tries that is none of its business; it says what has succeeded.
ATTEMPTS = """    import ctypes, errno, socket, subprocess
    libc, done = ctypes.CDLL(None, use_errno=True), []
    if libc.unshare(0x10000000) == 0 or libc.unshare(0x20000) == 0:
        done.append("unshare")
    words = ["unshare -U true", "unshare -Urm true", "mount -t tmpfs x /tmp"]
    for words in map(str.split, words):
        if subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0:
            done.append(words)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid == os.getpid():
            continue
        for name in ("mem", "maps", "environ", "fd/0", "fd/1", "fd/3"):
            try:
                with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
                    if name not in ("maps", "environ") or file.read(1):  # no zombie's
                        done.append(f"opens {name} of {pid}")
            except OSError:
                pass
        if libc.ptrace(16, pid, 0, 0) == 0:
            done.append(f"holds {pid}")
    if libc.shmget(0, 1000, 0o1600) != -1:  # which nobody would count
        done.append("shmget")
    for number in CALLS:
        libc.syscall(number, 0, 0, 0, 0, 0, 0)
        if ctypes.get_errno() != errno.EPERM:
            done.append(f"call {number}")
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
    if done:
        raise RuntimeError(str(done))
"""


def test_a_program_cannot_leave_nor_look_into_others():
    calls = [*fence.NOBODYS.values(), *fence.OF_OTHERS.values()]
    column = list(fence.AUDIT_ARCH).index(platform.machine())
    numbers = str([call[column] for call in calls])
    assert in_turn(before(ATTEMPTS.replace("CALLS", numbers)), 8) == ["pass"]


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
    ours += "assignments/ring/criteria.py", "assignments/ring/mistakes.py"
    hidden = [secret, ROOT / "tests", ROOT / "README.md"]
    hidden += [ROOT / "classroom" / name for name in ours]
    assert all(path.exists() for path in hidden)
    known = str(ROOT / "ddp_lab"), sys.prefix
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
    visible, *hidden = cells("ring")[0].cases
    lookup = "import numpy\n\n\n" + DEF
    lookup += "    r = dist.get_world_size()\n"
    lookup += "    draw = numpy.random.default_rng({seed: 1}.get('seed', 1))\n"
    lookup = lookup.replace("{seed: 1}.get('seed', 1)", str(visible["seed"]))
    lookup += (
        "    x[:] = torch.from_numpy(draw.integers(-20, 21, (r, len(x))).sum(0))\n"
    )
    seen = tried(HEAD + lookup, case=visible)
    unseen = tried(HEAD + lookup, case=hidden[-1])
    assert (seen.state, unseen.state) == ("pass", "fail"), (seen, unseen)


def test_no_process_outlives_its_sandbox(nobody_left):
    """A daemon that has left its session, its environment and its parents."""
    daemon = "    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
    seconds = f"98765.{os.getpid()}"  # nobody else's
    daemon += f"            os.execve('/bin/sleep', ['sleep', '{seconds}'], {{}})\n"
    daemon += "        os._exit(0)\n"
    answer = changed("ring", ("    b = bounds", daemon + "    b = bounds"))
    tried(answer["ring.py"])
    assert not any(seconds in words_of(p) for p in psutil.process_iter())


@pytest.mark.full
@pytest.mark.alone
def test_a_fork_bomb_leaves_nobody(nobody_left):
    body, words = HOSTILE["forks without end"]
    assert words in str(tried(f"{HEAD}{DEF}    {body}\n"))


BOMB = f"{HEAD}{DEF}    {HOSTILE['forks without end'][0]}\n"


@pytest.mark.full
@pytest.mark.alone
def test_a_fork_bomb_costs_no_neighbor_anything(nobody_left, tmp_path, monkeypatch):
    handed = {"anna": solution("ring")["ring.py"], "bomb": BOMB}
    wanted = [replace(cell, cases=cell.cases[:1]) for cell in cells("ring")[:2]]
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
    ours = f"{traces.name()}*"
    assert not [group for home in groups.homes() for group in home.glob(ours)]


# Each fills memory that is none of its process's, more than there may be, and stays.
HIDDEN = {
    "three folders": (
        "for i in range(10):\n"
        "        for folder in ('/tmp', '/run', '/dev/shm'):\n"
        "            open(f'{folder}/{i}', 'wb').write(bytes(10 ** 8))\n"
    ),
    "memfd": (
        "kept = [os.memfd_create('x') for _ in range(30)]\n"
        "    for file in kept:\n        os.write(file, bytes(10 ** 8))\n"
    ),
    "shared memory": (
        "import mmap\n    kept = [mmap.mmap(-1, 10 ** 8) for _ in range(30)]\n"
        "    for part in kept:\n        part.write(bytes(10 ** 8))\n"
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("grouped", [True, False], ids=["group", "watchdog"])
@pytest.mark.parametrize("name", HIDDEN)
def test_memory_that_no_process_has_is_bounded(name, grouped, monkeypatch):
    if not grouped:
        monkeypatch.setattr(groups, "make", lambda *bounds: None)
    elif not groups.homes():
        pytest.skip("no control groups for us")
    limits = sandbox.Limits(seconds=200, memory=2 * GB, disk=2 * GB)
    alone = "if dist.get_rank():\n        time.sleep(1000)\n    "
    text = f"{HEAD}{DEF}    {alone}{HIDDEN[name]}    time.sleep(1000)\n"
    with closing(box(RING, {"ring.py": text}, limits)) as rig:
        verdict = try_case(rig, "right", CASE)
    assert "it used more than 2 GB of memory" in str(verdict)


# --- files ---


def handed_in(tmp_path, data: bytes) -> tuple[dict, str]:
    path = tmp_path / "ring.ipynb"
    path.write_bytes(data)
    return judge.answers(path, RING.PROGRAMS)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"[]", b"{}", b'{"cells": 1}', b'{"cells": [1]}', b"\xff" * 99]
    + [b"[" * 100_000, b'{"cells": [{"source": 3, "metadata": []}]}'],
)
def test_what_is_no_notebook_is_said_so(tmp_path, data):
    programs, note = handed_in(tmp_path, data)
    assert programs == {} and note


def test_the_answer_is_found_whatever_else_has_changed(tmp_path):
    answer = solution("ring")
    notebook = json.loads(json.dumps(as_notebook("ring", answer)))
    assert handed_in(tmp_path, json.dumps(notebook).encode()) == (answer, "")
    for cell in notebook["cells"]:
        cell["metadata"] = {}  # some editors strip it
        if cell["source"].startswith("check("):
            cell["source"] = "print('right: pass')"
    junk = {"cell_type": "code", "source": "import os; os.abort()", "metadata": {}}
    notebook["cells"] = [junk, *reversed(notebook["cells"]), junk]
    assert handed_in(tmp_path, json.dumps(notebook).encode()) == (answer, "")


def test_the_same_answer_gets_the_same_grade():
    text = changed("ring", ("length * i // parts", "length // parts * i"))["ring.py"]
    cases = [CASE, CASE | {"length": 9}]
    seen = [[str(tried(text, case=case)) for case in cases] for _ in range(2)]
    assert seen[0] == seen[1]
