"""The bounds of a sandbox: who sets them, what is counted where nobody does."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest
from conftest import wait_until

from classroom.engine import groups, sandbox, traces, watchdog, zygote

pytestmark = pytest.mark.sandbox

main = pytest.importorskip("classroom.engine.__main__")
IN_GROUP = pytest.mark.skipif(not groups.homes(), reason="no control groups for us")
HOLDS = """
import os, sys, threading
file = os.memfd_create("hidden")
os.write(file, bytes(50_000_000))
for _ in range(3):
    threading.Thread(target=sys.stdin.read, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(("homes", "said"), [([], [sandbox.WEAK]), (["/"], [])])
def test_who_has_no_control_groups_is_told(homes, said, monkeypatch, capsys):
    monkeypatch.setattr(groups, "homes", lambda: homes)
    monkeypatch.setattr(sandbox, "available", lambda: None)
    monkeypatch.setattr(main, "students", lambda assignment: [])
    monkeypatch.setattr(sys, "argv", ["engine", "grade", "ring"])
    monkeypatch.setattr(main, "release", lambda assignment: None)
    with pytest.raises(SystemExit, match="nobody has handed in"):
        main.main()
    assert capsys.readouterr().out.splitlines() == said


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_watchdog_counts_threads_and_memory_that_no_process_has(monkeypatch):
    monkeypatch.setattr(watchdog, "FOLDERS", ())  # which are our own here
    pipe, limit = subprocess.PIPE, 10_000_000
    words = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        tasks, memory = watchdog.count([os.getpid()], limit)
        process.kill()
    assert tasks >= 4 and memory > 50_000_000
    assert watchdog.count([process.pid], limit) == (0, 0)


@IN_GROUP
def test_a_control_group_bounds_memory_and_is_gone_in_the_end():
    group = groups.make(100_000_000, 50)
    folders = list(group.folders)
    text = "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, bytes(10**7))"
    own = group.entries()
    enter = "\n".join(f"os.write({entry}, b'0')" for entry in own)
    words = [sys.executable, "-c", f"import os\n{enter}\n{text}"]
    assert not group.over()
    subprocess.run(words, pass_fds=own, timeout=60)
    for entry in own:
        os.close(entry)
    assert group.over() == "memory"
    group.close()
    assert folders and not any(folder.exists() for folder in folders)


@IN_GROUP
def test_the_groups_of_a_judge_that_was_killed_are_swept():
    text = "import time\nfrom classroom.engine import groups\n"
    text += "print(groups.make(10**8, 50).folders[0], flush=True)\ntime.sleep(1000)"
    words = [sys.executable, "-c", text]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as judge:
        left = judge.stdout.readline().strip()
        process = subprocess.Popen(["sleep", "1000"])  # what it leaves behind
        with open(f"{left}/cgroup.procs", "w") as file:
            file.write(str(process.pid))
        judge.kill()
    assert os.path.exists(left)
    groups.homes.cache_clear()
    assert groups.homes()
    assert process.wait() == -9 and not os.path.exists(left)


def test_who_is_lent_a_scope_moves_into_it(monkeypatch, tmp_path):
    """Version 2 lets no ordinary user send a process in from a group of root's."""
    home = tmp_path / "cgroup" / "user"
    home.mkdir(parents=True)
    (home / "cgroup.procs").write_text(f"{os.getpid()}\n")
    said = tmp_path / "said"
    busctl = tmp_path / "busctl"
    busctl.write_text(f"#!/bin/sh\necho $* > {said}\n")
    busctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(groups, "_mounts", lambda: {"": tmp_path / "cgroup"})
    monkeypatch.setattr(groups, "_shares_out", lambda home: True)

    def own():
        if not said.exists():
            return {"": "/user.slice/user-1000.slice/session-1.scope"}
        words = said.read_text().split()
        assert words[words.index("PIDs") + 3] == str(os.getpid())
        scope = next(word for word in words if word.endswith(".scope"))
        home.rename(home.with_name(scope))
        return {"": f"/{scope}"}

    monkeypatch.setattr(groups, "_own", own)
    (folder,) = groups._scope()
    assert (folder / groups.HOLDER / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("code", [0, 1])
def test_where_systemd_lends_nothing_there_is_no_group(code, monkeypatch, tmp_path):
    busctl = tmp_path / "busctl"
    busctl.write_text(f"#!/bin/sh\nexit {code}\n")
    busctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(groups, "MOVED_WITHIN", 0)
    monkeypatch.setattr(groups, "_mounts", lambda: {"": tmp_path})
    monkeypatch.setattr(groups, "_own", lambda: {"": "/user.slice/session.scope"})
    assert groups._scope() == []


def test_no_job_of_slurms_is_left_for_a_scope(monkeypatch, tmp_path):
    asked = []
    step = "/system.slice/box1_slurmstepd.scope/job_1/step_0/user/task_0"
    monkeypatch.setattr(groups, "_mounts", lambda: {"": tmp_path})
    monkeypatch.setattr(groups, "_own", lambda: {"": step})
    monkeypatch.setattr(groups.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(groups, "MOVED_WITHIN", 0)
    monkeypatch.setattr(
        groups.subprocess,
        "run",
        lambda words, **how: (
            asked.append(words) or groups.subprocess.CompletedProcess(words, 0)
        ),
    )
    assert groups._scope() == [] == asked


def test_in_a_container_the_topmost_group_makes_room(monkeypatch, tmp_path):
    """Version 2 gives no controllers to those below a group with processes."""
    procs, moved = tmp_path / "cgroup.procs", tmp_path / groups.HOLDER / "cgroup.procs"
    procs.write_text("1\n42\n")
    monkeypatch.setattr(groups, "_mounts", lambda: {"": tmp_path})
    monkeypatch.setattr(groups, "_own", lambda: {"": "/"})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(groups, "_shares_out", lambda home: moved.exists())
    assert groups._version_2() == [tmp_path]
    assert moved.read_text() == "42"


def test_a_group_with_processes_gets_no_controller_at_all(monkeypatch, tmp_path):
    """It takes pids and cpu, and then no process can be moved below it any more."""
    taken = []

    def write(path, text):
        if text == "+memory":
            raise OSError("busy")
        taken.append(text)

    monkeypatch.setattr(type(tmp_path), "write_text", write)
    assert not groups._shares_out(tmp_path) and not taken


def test_no_group_is_taken_for_another_judges():
    assert traces.started(os.getpid()) and not traces.started(0)


def test_only_folders_of_a_judge_that_was_killed_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine, other = traces.folder(), tmp_path / "classroom-notes-of-mine-2"
    start = traces.started(os.getpid())
    killed = tmp_path / f"classroom-{os.getpid()}-{int(start) - 1}-x"
    other.mkdir(), killed.mkdir()
    (killed / "hosts").touch()
    traces.sweep()
    assert {*tmp_path.iterdir()} == {mine, other}


def test_who_cannot_be_asked_for_is_not_taken_for_dead(tmp_path, monkeypatch):
    """A judge that has no file left to open learns nothing of any process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = traces.folder()
    monkeypatch.setattr(watchdog, "stat_of", lambda pid: [])
    traces.sweep()
    assert mine.exists()


def test_a_rank_that_has_failed_is_told_though_the_launcher_does_not_know():
    answer = {"failure": None, "exit_codes": [0, 0, None]}
    told = zygote.judged(answer, {0: 0, 1: -9, 2: 0})
    assert told["exit_codes"] == [0, -9, None]
    assert told["failure"] == "rank 1 ended with -9"


def test_a_run_that_measures_time_has_the_machine_for_itself():
    slots, order = sandbox._Slots(2), []

    def take(name, room):
        with room:
            order.append(name)

    with slots.take(1):
        alone = threading.Thread(target=take, args=["alone", slots.take(2)])
        alone.start()
        assert wait_until(slots._in_line.locked)
        # There is room for one more, but who was first in line is not overtaken.
        later = threading.Thread(target=take, args=["later", slots.take(1)])
        later.start()
        alone.join(0.3), later.join(0.3)
        assert order == []
    alone.join(), later.join()
    assert order == ["alone", "later"] and slots.free == 2


def test_the_scratch_folder_has_one_name():
    assert zygote.SCRATCH == sandbox.SCRATCH
