"""A real SLURM cluster of two nodes, played on this machine in its own folder.

It needs slurm-wlm and munge, no systemd, and leaves /etc alone. Each node has a host
name, a network, a /tmp, memory to share and processes of its own; this machine, at
which jobs are submitted, is joined to the same switch (kit/played/wiring.py). What lies
elsewhere than in /tmp and /dev/shm is the machine's, and so a disk that the nodes
share; this folder and the lab are shared wherever they lie. Clusters can stand side by
side.

    python slurm_cluster.py FOLDER SHARED...

is a process that holds the daemons, and stops them when it is told to (SIGTERM) or when
whoever started it dies.

The settings that are not obvious: nobody is there to read cgroups (linuxproc, no
accounting), the nodes have more CPUs than the machine (config_overrides), a requeued
job may start after seconds (cred_expire), and a busy machine is no reason to give up a
node.
"""

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ddp_lab import ROOT
from ddp_lab.kit.played.wiring import NoNetwork, make, run
from whichrank.run.namespaces import BIND, enter, mount, unshare
from whichrank.run.ports import free_port

NEEDED = ("munged", "slurmctld", "slurmd", "salloc", "srun", "scancel", "unshare")
BIND_ALL = BIND | 1 << 14  # with what is mounted there: a flag of mount(2)
NODES = ("box1", "box2")
CPUS = 16  # of each node, so that several jobs fit
OWN = Path("/tmp")  # of each node, and MEMORY
MEMORY = "/dev/shm"
READY_WAIT = 60.0  # seconds
STOP_WAIT = 10.0  # seconds that jobs and daemons have to end
MARK = "DDP_LAB_CLUSTER"  # in the environment of the daemons
PR_SET_PDEATHSIG = 1  # see prctl(2)
SBIN = "/usr/sbin:/sbin"
# A node's first process is a shell, which cares for orphans; all others end with it.
ISOLATED = "unshare --pid --ipc --fork --kill-child --mount-proc".split()

CONF = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
ReturnToService=2
MessageTimeout=60
SlurmdTimeout=3600
KillWait=5
"""


def missing() -> str:
    """Return why there can be no cluster here; "" if there can."""
    path = f"{os.environ['PATH']}:{SBIN}"
    absent = [name for name in NEEDED if not shutil.which(name, path=path)]
    if absent:
        return f"no {absent[0]}: apt-get install slurm-wlm munge"
    if os.getuid() != 0:
        return "munged and slurmd are started as root here"
    try:
        for file in make({}):
            os.close(file)
    except NoNetwork as error:
        return str(error)
    probe = subprocess.run([*ISOLATED, "true"], capture_output=True)
    return probe.stderr.decode().strip()


class Cluster:
    """Two nodes that wait for jobs; a context manager.

    Args:
        shared: folders in /tmp that all nodes see even so.
    """

    def __init__(self, shared: Sequence[Path] = ()):
        # Short, because the path of a socket has to be.
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir=OWN))
        self.shared = shared
        self.conf = self.folder / "conf"

    def __enter__(self) -> "Cluster":
        """Start a process that holds the daemons; wait until the nodes are idle."""
        words = [__file__, str(self.folder), *map(str, self.shared)]
        with open(self.folder / "log", "wb") as log:
            self.holder = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_WAIT
        while self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") != str(len(NODES)):
            if self.holder.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "log").read_text(errors="replace")
                logs = "".join(p.read_text()[-500:] for p in self.folder.glob("*.log"))
                self.__exit__()
                raise RuntimeError(f"no cluster: {said}\n{logs}")
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the cluster and all that runs on it; remove its folder."""
        self.holder.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.holder.wait(4 * STOP_WAIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *command: str) -> str:
        """Return what a command of SLURM prints, in this cluster."""
        env = os.environ | {"SLURM_CONF": str(self.conf)}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        return done.stdout.strip()

    def jobs(self) -> str:
        """Return the jobs and steps that are there, a line each."""
        jobs = self.ask("squeue", "--noheader")
        return "\n".join(filter(None, [jobs, self.ask("squeue", "--noheader", "-s")]))


def hold(folder: Path, *shared: str) -> None:
    """Start the daemons, and stop them when we are told to."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    env = os.environ | {MARK: str(folder), "SLURM_CONF": str(folder / "conf")}
    env["PATH"] += f":{SBIN}"
    daemons: list[subprocess.Popen] = []
    try:
        network, nodes = _joined()
        _write_files(folder, network)
        _start(folder, env, daemons)
        for name, files in nodes.items():
            seen = [folder, ROOT, Path(sys.prefix), *map(Path, shared)]
            own = partial(_move, files, folder / "tmp" / name, seen)
            words = [*ISOLATED, "sh", "-c", f"slurmd -D -N {name}; exit"]
            daemons.append(subprocess.Popen(words, env=env, preexec_fn=own))
        signal.pause()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _stop(folder, daemons, env)
        shutil.rmtree(folder, ignore_errors=True)


def _joined() -> tuple[str, dict[str, list[int]]]:
    """Make the nodes' networks, and join this machine to them.

    Returns:
        How all addresses begin, and the namespaces of each node.
    """
    taken = {name for _, name in socket.if_nameindex()}
    number = random.choice([n for n in range(256) if f"cluster{n}" not in taken])
    network, link = f"198.18.{number}", f"cluster{number}"  # for tests: RFC 2544
    hosts = {name: _address(network, name) for name in NODES}
    switch, mounts, *files = make(hosts)
    run(f"""ip -batch -
        link add {link} type veth peer login netns /proc/{os.getpid()}/fd/{switch}
        address add {_address(network)}/24 dev {link}
        link set dev {link} up
    """)
    run("ip link set dev login master switch up", [switch])
    own = {name: files[2 * n : 2 * n + 2] for n, name in enumerate(NODES)}
    return network, {name: [*each, mounts] for name, each in own.items()}


def _address(network: str, node: str = "") -> str:
    """Return the address of a node, or of this machine."""
    return f"{network}.{10 + NODES.index(node) if node else 1}"


def _start(folder: Path, env: dict[str, str], daemons: list[subprocess.Popen]) -> None:
    key = [f"--{each}={folder}/munge.{each[:3]}" for each in ("key-file", "pid-file")]
    key += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
    munge = ["munged", "--foreground", "--force", *key]
    munge.append(f"--socket={folder}/munge.socket")
    daemons.append(subprocess.Popen(munge, env=env))
    while not (folder / "munge.socket").exists() and daemons[0].poll() is None:
        time.sleep(0.02)
    daemons.append(subprocess.Popen(["slurmctld", "-D", "-i"], env=env))


def _move(files: Sequence[int], own: Path, shared: Sequence[Path]) -> None:
    """Move this process to a node.

    Args:
        files: its namespaces.
        own: what is its /tmp.
        shared: what it sees there even so.
    """
    enter(files)
    unshare("mnt")
    for path in shared:
        if path.is_relative_to(OWN):
            there = own / path.relative_to(OWN)
            there.mkdir(parents=True, exist_ok=True)
            mount(str(path), str(there), "", BIND)
    mount(str(own), str(OWN), "", BIND_ALL)
    mount("tmpfs", MEMORY, "tmpfs")


def _write_files(folder: Path, network: str) -> None:
    folder.chmod(0o755)
    host, own = socket.gethostname().partition(".")[0], _address(network)
    conf = CONF.format(folder=folder, host=host, address=own, port=free_port())
    for name in NODES:
        where = f"NodeAddr={_address(network, name)} CPUs={CPUS}"
        conf += f"NodeName={name} {where} State=UNKNOWN\n"
    always = f"Nodes={','.join(NODES)} MaxTime=INFINITE State=UP"
    conf += f"PartitionName=main Default=YES {always}\n"
    conf += f"PartitionName=short {always.replace('INFINITE', '1')}\n"
    (folder / "conf").write_text(conf)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    for name in ("state", *NODES, *(f"tmp/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)


def _stop(folder: Path, daemons: list[subprocess.Popen], env: dict[str, str]) -> None:
    """Cancel all jobs, and end the daemons with all that is on the nodes."""
    subprocess.run(["scancel", "--full", "--user", str(os.getuid())], env=env)
    deadline = time.monotonic() + STOP_WAIT
    while time.monotonic() < deadline:
        command = ["squeue", "--noheader"]
        if not subprocess.run(command, env=env, capture_output=True).stdout.strip():
            break
        time.sleep(0.1)
    for daemon in reversed(daemons):
        daemon.kill()  # and with it, a node's first process and all others
        daemon.wait()


if __name__ == "__main__":
    hold(Path(sys.argv[1]), *sys.argv[2:])
