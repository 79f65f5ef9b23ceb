"""Nodes on one machine: names, links, and nothing that stays behind.

Each test is a program of its own, which runs as we are, and as somebody who has none of
root's rights.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forked import let_servers_be_forks
from support import FULL, living, wait_until

from ddp_lab.kit.played import wiring
from ddp_lab.kit.played.network import Network
from ddp_lab.kit.played.wiring import NoNetwork

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="needs namespaces"),
]

# A user without rights, who may read the same files as we.
ORDINARY = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
USERS = {"as we are": [], "ordinary user": ORDINARY}

# Lets a user make one user namespace, which is that of the ordinary user.
NO_MORE = ["unshare", "--user", "--map-root-user", "sh", "-c"]
NO_MORE.append('echo 1 > /proc/sys/user/max_user_namespaces && exec "$@"')

HEAD = """
import ctypes, json, os, select, socket, subprocess, sys, threading, time
from whichrank.run.namespaces import KINDS, enter_like
from ddp_lab.kit.played.network import Network
from ddp_lab.kit.played.wiring import NoNetwork

try:
    network = Network(2)
except NoNetwork as why:
    sys.exit(f"no network: {why}")

def start(node, *words, **options):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    enter = lambda: network.enter(node)
    return subprocess.Popen(words, preexec_fn=enter, **{**pipes, **options})

def python(node, code, **options):
    code = f"import json, os, socket, sys, time\\n{code}"
    return start(node, sys.executable, "-c", code, **options)

def tell(**facts):
    print(json.dumps(facts))

# Node 0 answers each message of `size` bytes with one byte.
def answer(size):
    return python(0, f'''
server = socket.create_server(("", 5000))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv({size}, socket.MSG_WAITALL):
    connection.sendall(b"x")
''')

# How long node 1 has to wait for an answer, at best: a busy machine is late.
def seconds(size, count=1):
    with answer(size) as server:
        server.stdout.readline()
        asks = python(1, f'''
connection = socket.create_connection(("node0", 5000))
for _ in range({count}):
    since = time.monotonic()
    connection.sendall(bytes({size}))
    connection.recv(1)
    print(time.monotonic() - since)
''')
        return min(map(float, asks.communicate()[0].split()))
"""


@pytest.fixture(params=USERS)
def played(request):
    """Return a function that runs a program with two nodes, and returns its facts."""
    return lambda code: facts_of(request.param, code)


def facts_of(user: str, code: str) -> dict:
    """Return what a program says in its last line."""
    mark = f"{user} {os.getpid()} {time.monotonic()}"
    program = start(user, code, DDP_LAB_TEST=mark)
    try:
        out, error = program.communicate(timeout=120)
    finally:
        for process in living(mark):
            process.kill()
    skip_without(user, error)
    assert program.returncode == 0, error
    return json.loads(out.strip().splitlines()[-1])


def start(user: str, code: str, **variables: str) -> subprocess.Popen:
    """Start a program as a user of `USERS`."""
    return subprocess.Popen(
        [*USERS[user], sys.executable, "-c", HEAD + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )


def skip_without(user: str, error: str) -> None:
    """Skip this test if it is the system that lets this user have no network."""
    if "no network: " in error or "unshare: " in error:
        words = "unshare --user --map-root-user --net --uts --mount ip link"
        tried = subprocess.run([*USERS[user], *words.split()])
        assert tried.returncode, error
        pytest.skip(error)


def test_a_node_is_entered_from_a_folder_that_has_been_removed(played):
    facts = played("""
import tempfile
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
print(python(1, "print(json.dumps({'folder': os.getcwd()}))").communicate()[0])
""")
    assert facts == {"folder": "/"}


def test_links_are_up_at_once(played):
    """Linux looks at once only at a link whose ends have different indexes."""
    facts = played("""
from ddp_lab.kit.played.wiring import run
links = json.loads(run("ip -json link show type veth", network.switch))
tell(indexes=[[link["ifindex"], link["link_index"]] for link in links])
""")
    assert len(facts["indexes"]) == 2
    assert all(here != there for here, there in facts["indexes"])


def test_a_node_has_a_name_an_address_and_a_link_of_its_own(played):
    facts = played("""
code = '''
def address(name):
    return socket.getaddrinfo(name, 80)[0][4][0]

links = {}
for line in open("/proc/net/dev").readlines()[2:]:
    name, counts = line.split(":")
    links[name.strip()] = int(counts.split()[0])
since = time.monotonic()
try:
    unknown = address("example.org")
except socket.gaierror:
    unknown = time.monotonic() - since
print(json.dumps({
    "name": socket.gethostname(),
    "full": socket.getfqdn(),
    "own": address(socket.gethostname()),
    "other": address("node0"),
    "local": address("localhost"),
    "unknown": unknown,
    "lookup": [line for line in open("/etc/nsswitch.conf") if "hosts:" in line],
    "links": links,
    "folder": os.getcwd(),
}))
'''
print(python(1, code).communicate()[0])
""")
    assert facts["unknown"] < 2  # seconds: nobody asks a server that is not there
    assert facts["lookup"] == ["hosts: files\n"]
    assert {"lo", "eth0"} <= set(facts["links"])
    assert facts["folder"] == os.getcwd()
    names = {key: facts[key] for key in ("name", "full", "own", "other", "local")}
    assert names == {
        "name": "node1",
        "full": "node1",
        "own": "192.168.0.11",
        "other": "192.168.0.10",
        "local": "127.0.0.1",
    }


@pytest.mark.parametrize(
    "played", ["as we are", pytest.param("ordinary user", marks=FULL)], indirect=True
)
def test_gloo_takes_the_link_by_itself(played):
    facts = played("""
code = '''
import torch, torch.distributed as dist
dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=2)
dist.all_reduce(torch.ones(250_000))
dist.destroy_process_group()
'''
addressed = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
words = [sys.executable, "-c", f"import sys\\n{code}"]
ranks = [
    start(node, *words, str(node), env=os.environ | addressed) for node in (0, 1)
]
codes = [rank.wait() for rank in ranks]
count = '''
line, = (line for line in open("/proc/net/dev") if "eth0:" in line)
print(line.split(":")[1].split()[8])
'''
tell(codes=codes, sent=[int(python(node, count).communicate()[0]) for node in (0, 1)])
""")
    assert facts["codes"] == [0, 0]
    assert all(1e6 <= sent < 1.2e6 for sent in facts["sent"])  # each half once


def test_a_link_holds_its_rate_both_ways_until_it_has_another(played):
    facts = played("""
network.rate(0, 1e8)
slow_here = seconds(2_500_000, count=3)
network.rate(0, 1e11)
network.rate(1, 1e8)
slow_there = seconds(2_500_000, count=3)
network.rate(1, 1e11)
tell(slow=[slow_here, slow_there], fast=seconds(2_500_000, count=30))
""")
    assert all(0.19 < slow < 2 for slow in facts["slow"])  # 20 Mbit at 100 Mbit/s: 0.2
    assert facts["fast"] < 0.19  # one of many tries has a core, on any machine


def test_a_cut_stops_all_and_connections_go_on_when_it_is_mended(played):
    facts = played("""
class Stream:
    def __init__(self):
        self.server = python(0, '''
connection, _ = socket.create_server(("", 5001)).accept()
while data := connection.recv(1):
    print(data[0], flush=True)
''')
        self.sender = python(1, '''
while True:
    try:
        connection = socket.create_connection(("node0", 5001))
        break
    except OSError:
        time.sleep(0.05)
for number in range(50):
    connection.sendall(bytes([number]))
    time.sleep(0.02)
''')
        self.seen = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.server.stdout:
            self.seen.append(int(line))

    def wait(self, count):
        while len(self.seen) < count:
            time.sleep(0.01)

stream = Stream()
stream.wait(10)
network.cut(1)
time.sleep(0.1)
cut = len(stream.seen)
time.sleep(0.5)
silent = len(stream.seen) == cut
network.mend(1)
stream.wait(50)
stream.sender.wait()
stream.reader.join()
tell(silent=silent, whole=stream.seen == list(range(50)), cut=cut)
""")
    assert facts["silent"] and facts["cut"] < 40
    assert facts["whole"]


def test_a_process_from_outside_enters_like_one_that_is_in(played):
    facts = played("""
inside = python(1, "sys.stdin.read()")
names = []
for pid in (os.getpid(), inside.pid):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        enter_like(pid)
        said = [socket.gethostname(), os.getcwd(), open("/etc/hosts").read()]
        os.write(theirs, json.dumps(said).encode())
        os._exit(0)
    names.append(json.loads(os.read(ours, 10_000)))
inside.communicate()
tell(ours=names[0], theirs=names[1], before=socket.gethostname())
""")
    assert facts["ours"][0] == facts["before"] == os.uname().nodename
    assert facts["theirs"][:2] == ["node1", os.getcwd()]
    assert "192.168.0.10 node0\n" in facts["theirs"][2]
    assert "node0" not in facts["ours"][2]


@pytest.mark.parametrize(
    "user", ["as we are", pytest.param("ordinary user", marks=FULL)]
)
def test_ranks_are_forked_on_their_nodes(user, tmp_path, monkeypatch):
    (tmp_path / "who.py").write_text("""
import json, os, socket
facts = {"rank": int(os.environ["RANK"]), "node": socket.gethostname()}
links = [line.split(":")[0].strip() for line in open("/proc/net/dev")]
print(json.dumps({**facts, "links": links}), flush=True)
""")
    if user == "as we are":  # another one may not use our warm process
        let_servers_be_forks(monkeypatch)
    launch = f"""
from ddp_lab.kit import torchrun
import forked
if forked.HOLDS_TORCH in os.environ:
    forked.servers()
words = "--nnodes 2 --nproc-per-node 2 {tmp_path}/who.py"
ways = (False, True) if {user != "as we are"} else (False,)  # cold, which takes long
tell(runs=[torchrun(words, cold=cold).facts for cold in ways])
"""
    warm, *cold = facts_of(user, launch)["runs"]
    assert cold in ([], [warm])
    assert [fact["node"] for fact in warm] == ["node0", "node0", "node1", "node1"]
    assert all("eth0" in fact["links"] for fact in warm)


@pytest.mark.parametrize("user", USERS)
def test_nothing_stays_when_its_maker_is_killed(user, tmp_path):
    mark = str(tmp_path)
    before = links()
    code = """
network.rate(0, 1e9)
die = lambda node: (network.enter(node), ctypes.CDLL(None).prctl(1, 9, 0, 0, 0))
for node in (0, 1):
    subprocess.Popen(["sleep", "100"], preexec_fn=lambda: die(node))
    names = [os.readlink(f"/proc/self/fd/{file}") for file in network.nodes[node]]
    print(*names)
print(os.readlink(f"/proc/self/fd/{network.switch[-1]}"), flush=True)
time.sleep(100)
"""
    program = start(user, code, DDP_LAB_TEST=mark)
    names = {name for _ in range(3) for name in program.stdout.readline().split()}
    if not names:
        skip_without(user, program.communicate()[1])
    assert len(names) >= 6  # two for each node, their mounts, and the switch
    assert names <= {link for link in namespaces()}
    assert len(living(mark)) == 3  # the program, and one in each node
    program.send_signal(signal.SIGKILL)
    try:
        assert wait_until(lambda: not living(mark), 5)
    finally:
        for process in living(mark):
            process.kill()
    assert wait_until(lambda: names.isdisjoint(namespaces()))
    program.communicate()
    assert links() == before


def links() -> list[str]:
    """Return the links of the machine's own network."""
    return sorted(os.listdir("/sys/class/net"))


def namespaces() -> Iterator[str]:
    """Yield all namespaces that are alive by a process, an open file or a name."""
    for process in psutil.process_iter():
        for folder in ("ns", "fd"):
            try:
                for file in Path(f"/proc/{process.pid}/{folder}").iterdir():
                    yield os.readlink(file)
            except OSError:
                continue  # ended meanwhile, or somebody else's
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        yield line.split()[3]


def test_who_may_not_is_told_so_in_a_sentence(monkeypatch):
    monkeypatch.setitem(USERS, "nobody", [*NO_MORE, "sh", *ORDINARY])
    program = start("nobody", "")
    _, error = program.communicate(timeout=60)
    if "unshare: " in error:
        pytest.skip(error)
    said = "no network: namespaces are not allowed here (No space left on device)\n"
    assert (program.returncode, error) == (1, said)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("PROGRAMS", ("no-ip",), "there is no program no-ip (package iproute2)"),
        ("SCRATCH", "/no-such-folder", "(No such file or directory)"),
        ("IPV6_OFF", None, "the process that makes them has failed"),
    ],
)
def test_what_is_missing_is_told_and_the_caller_stays_where_it_is(
    name, value, said, monkeypatch, capfd
):
    before = [
        os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/self/ns")
    ]
    monkeypatch.setattr(wiring, name, value)
    with pytest.raises(NoNetwork) as caught:
        Network(2)
    if "not allowed" not in str(caught.value):
        assert said in str(caught.value)
    after = [
        os.readlink(f"/proc/self/ns/{kind}") for kind in os.listdir("/proc/self/ns")
    ]
    assert before == after


def test_a_setting_that_keeps_namespaces_from_users_is_named(tmp_path, monkeypatch):
    setting = tmp_path / "restrict_userns"
    setting.write_text("1\n")
    monkeypatch.setattr(
        wiring, "KEEPS", {str(tmp_path / "none"): "1", str(setting): "1"}
    )
    denied = PermissionError(1, "Operation not permitted")
    told = wiring._reason(denied, root=False)
    assert told == f"{setting} is 1, so only root may make namespaces"
    told = wiring._reason(denied, root=True)
    assert told == "namespaces are not allowed here (Operation not permitted)"
    setting.write_text("0\n")
    assert "not allowed here" in wiring._reason(denied, root=False)
