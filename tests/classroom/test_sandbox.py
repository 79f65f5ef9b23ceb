"""The bounds of a sandbox: who sets them, and what is done where nobody can."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from course import UNSAFE
from support import wait_until

from classroom.engine import groups, remedy, sandbox, zygote

pytestmark = pytest.mark.sandbox
IN_GROUP = pytest.mark.skipif(not groups.homes(), reason="no control groups for us")


def test_without_a_control_group_nothing_is_graded(monkeypatch):
    monkeypatch.setattr(groups, "homes", lambda: [])
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}")
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(subprocess, "run", lambda words, **how: done)
    assert sandbox.available() == f"{sandbox.REFUSAL}\n{remedy.NO_GROUP}"
    monkeypatch.setattr(groups, "homes", lambda: ["/"])
    assert sandbox.available() is None


@IN_GROUP
@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("for _ in range(99): os.write(memory, bytes(10**7))", "memory"),
        ("for _ in range(40): os.fork() or os._exit(time.sleep(2) or 0)", "pids"),
        ("os.fork()", ""),
    ],
)
def test_a_control_group_bounds_and_is_gone_in_the_end(text, met):
    group = groups.make(500_000_000, 20)
    own = group.entries()
    enter = "\n".join(f"os.write({entry}, b'0')" for entry in own)
    enter += "\nmemory = os.memfd_create('memory')"
    words = [sys.executable, "-c", f"import os, time\n{enter}\n{text}"]
    assert not group.over()
    subprocess.run(words, pass_fds=own, timeout=60, stderr=subprocess.DEVNULL)
    for entry in own:
        os.close(entry)
    assert group.over() == met
    group.close()
    assert group.folders and not any(folder.exists() for folder in group.folders)


@IN_GROUP
def test_many_processes_have_no_more_of_a_core_than_one_of_another_submission():
    offered = {*groups._own()}  # version 1
    for path in (home / "cgroup.controllers" for home in groups.homes()):
        offered |= {*path.read_text().split()} if path.exists() else set()
    if "cpu" not in offered:
        pytest.skip("no controller of cores")
    few, many = (groups.make(10**9, 50) for _ in range(2))
    gate, core = os.pipe(), min(os.sched_getaffinity(0))
    text = f"import os, time\nos.sched_setaffinity(0, [{core}])\n"
    text += f"print('here', flush=True)\nos.read({gate[0]}, 1)\n"
    text += "end = time.monotonic() + 2\nbefore = time.process_time()\n"
    text += "while time.monotonic() < end: pass\nprint(time.process_time() - before)"
    running = []
    for group in [few] + [many] * 10:
        own = group.entries()
        enter = "".join(f"os.write({entry}, b'0')\n" for entry in own)
        words = [sys.executable, "-c", f"import os\n{enter}{text}"]
        theirs = [*own, gate[0]]
        running.append(subprocess.Popen(words, pass_fds=theirs, stdout=subprocess.PIPE))
        for entry in own:
            os.close(entry)
    for process in running:
        process.stdout.readline()
    for end in gate:  # so they begin
        os.close(end)
    first, *others = [float(process.communicate()[0]) for process in running]
    few.close(), many.close()
    assert first > sum(others) / 3, (first, others)


KILLED = """
import os, sys
import psutil
from classroom.engine import groups, sandbox
sandbox.PYTHON = sys.argv[1]
group = groups.make(10**9, 50)
run = sandbox._Run(sandbox.Limits(), os.devnull, group)
first, keeper = (open(f"/proc/self/fdinfo/{life}").read() for life in run.lives)
pids = [int(told.partition("Pid:")[2].split()[0]) for told in (first, keeper)]
psutil.Process(pids[0]).children()[0].suspend()
print(group.folders[0], *pids, flush=True)
os._exit(1)
"""


@pytest.mark.skipif(UNSAFE, reason="there is no sandbox here")
def test_what_a_judge_that_was_killed_has_left_ends_and_its_group_is_removed():
    """Though the sandbox's command, which waits for the judge, is stopped."""
    words = [sys.executable, "-c", KILLED, sandbox.PYTHON]
    left, *pids = subprocess.run(words, stdout=subprocess.PIPE).stdout.split()
    processes = [Path("/proc", os.fsdecode(pid), "cmdline") for pid in pids]
    assert len(pids) == 2
    assert wait_until(lambda: not any(p.exists() and p.read_bytes() for p in processes))
    ours = groups.make(10**8, 50)
    assert os.path.exists(left)
    groups.homes.cache_clear()
    assert groups.homes()
    assert not os.path.exists(left) and all(path.exists() for path in ours.folders)
    ours.close()


# --- version 2: `own` is what the system says of us, the folder is made up ---


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a folder that stands for our group, which is no session of systemd's."""
    (tmp_path / "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    (tmp_path / "cgroup.subtree_control").touch()
    monkeypatch.setattr(groups, "_own", lambda: {"": tmp_path})
    monkeypatch.setattr(os.path, "ismount", lambda path: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    groups.homes.cache_clear()
    yield tmp_path
    groups.homes.cache_clear()


def busctl(folder, code: int):
    """Let systemd answer so; return the file in which is what it was asked."""
    file = folder / "busctl"
    file.write_text(f"#!/bin/sh\necho $* > {folder}/said\nexit {code}\n")
    file.chmod(0o755)
    return folder / "said"


def test_in_a_container_the_topmost_group_makes_room(machine, monkeypatch):
    """Version 2 gives no controllers to those below a group with processes."""
    assert groups.homes() == []
    groups.homes.cache_clear()
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    assert groups.homes() == [machine]
    assert (machine / groups.HOLDER / "cgroup.procs").read_text() == str(os.getpid())


def test_version_1_has_a_group_in_each_hierarchy(machine, monkeypatch):
    memory, pids, cores = (machine / name for name in ("memory", "pids", "cpu"))
    for folder in (memory, pids, cores):
        folder.mkdir()
    own = {"memory": memory, "pids": pids, "cpuacct": cores, "cpu": cores}
    monkeypatch.setattr(groups, "_own", lambda: {"": machine} | own)
    assert groups.homes() == [memory, pids, cores]


def test_who_is_lent_a_scope_moves_into_it(machine, monkeypatch):
    said = busctl(machine, 0)

    def own():
        if said.exists():
            words = said.read_text().split()
            assert words[words.index("PIDs") + 3] == str(os.getpid())
            scope = next(word for word in words if word.endswith(".scope"))
            if not (machine / scope).exists():
                (machine / scope).mkdir()
                (machine / scope / "cgroup.procs").write_text(f"{os.getpid()}\n")
            return {"": machine / scope}
        return {"": machine}

    monkeypatch.setattr(groups, "_own", own)
    (home,) = groups.homes()
    assert home.suffix == ".scope"
    assert (home / groups.HOLDER / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("code", [0, 1])
def test_where_systemd_lends_nothing_there_is_no_group(code, machine, monkeypatch):
    said = busctl(machine, code)
    monkeypatch.setattr(groups, "WITHIN", 0)
    assert groups.homes() == [] and said.exists()


def test_no_job_of_slurms_is_left_for_a_scope(machine, monkeypatch):
    said = busctl(machine, 0)
    step = machine / "system.slice" / "box1_slurmstepd.scope" / "job_1"
    monkeypatch.setattr(groups, "_own", lambda: {"": step})
    assert groups.homes() == [] and not said.exists()


# --- what runs beside ---


def test_a_rank_that_has_failed_is_told_though_the_launcher_does_not_know():
    answer = {"failure": None, "exit_codes": [0, 0, None]}
    told = zygote.judged(answer, {0: 0, 1: -9, 2: 0})
    assert told["exit_codes"] == [0, -9, None]
    assert told["failure"] == "rank 1 ended with -9"


def test_a_python_above_the_lab_does_not_show_it(monkeypatch):
    assert any(sys.prefix.startswith(path) for path in sandbox._python())
    monkeypatch.setattr(sandbox, "ROOT", Path(sys.prefix, "lab"))
    assert not any(sys.prefix.startswith(path) for path in sandbox._python())


def test_bubblewrap_is_found_where_the_judge_finds_it(monkeypatch):
    """A run has another PATH."""
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/opt/my/{name}")
    words = sandbox._bwrap(sandbox.Limits(), "recorder", Path("etc"))
    assert words[0] == "/opt/my/bwrap"


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
    assert order == ["alone", "later"] and slots._free._value == 2


def test_the_scratch_folder_has_one_name():
    assert zygote.SCRATCH == sandbox.SCRATCH
