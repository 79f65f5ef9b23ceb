"""The network of nodes that are played on one machine: a bridge, and a link to each.

    node0                          switch                        node1
    eth0 10.0.0.10 <--- link ---> node0 - bridge - node1 <--- link ---> eth0 10.0.0.11

A node is a set of namespaces: a network, a host name and mounts of its own; the switch
is a network namespace as well. All of them are made inside a user namespace where we
are not root. None has a name: this process holds them open, and so does whoever runs
in them. When these have gone, so have the namespaces with all links and queues,
whatever has ended them.

In a node, `node0`, `node1`... are the names of the nodes, and nothing asks a name
server, which could not answer. The host name stands for the address of eth0, so gloo
and torchrun choose that link by themselves. All other files are the machine's.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ddp_lab.kit.run.namespaces import check, enter, libc, opened, unshare

MOST_FILES = 253  # in one message
SCRATCH = "/tmp"  # where the maker may mount something: nobody else sees it
QUEUE = 1 << 20  # bytes that wait for a link with a rate; what is more is lost
BURST, BURST_TIME = 1 << 16, 0.001  # bytes, or seconds, that may go at once
MS_BIND, MS_REC, MS_SLAVE, MNT_DETACH = 1 << 12, 1 << 14, 1 << 19, 2  # see mount(2)
LINKS = ("class/net", "devices/virtual/net")  # folders of /sys
IPV6_OFF = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
# Settings that keep user namespaces from ordinary users, and what they say then.
KEEPS = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",  # Ubuntu
    "/proc/sys/kernel/unprivileged_userns_clone": "0",  # Debian
    "/proc/sys/user/max_user_namespaces": "0",
}


class NoNetwork(Exception):
    """Says in one sentence why nodes cannot have a network of their own."""


@dataclass(frozen=True)
class Traffic:
    """What has crossed a node's link since it was made, as the link has counted it."""

    bytes_sent: int
    bytes_received: int
    packets_sent: int
    """What the link was given at once: up to 64 KB, unless it has a rate."""
    packets_received: int


class Network:
    """Namespaces and links for nodes 0 to `count` - 1.

    Raises:
        NoNetwork: if they are not to be had here.
    """

    def __init__(self, count: int):
        if sys.platform != "linux":
            raise NoNetwork("only Linux has network namespaces")
        for program in ("ip", "tc"):
            if not shutil.which(program):
                raise NoNetwork(f"there is no program {program} (package iproute2)")
        files = _made(count)
        first = len(files) - 3 * count
        user, self.switch = files[: first - 1], files[:first]
        self.nodes = [[*user, *files[i : i + 3]] for i in range(first, len(files), 3)]

    @staticmethod
    def name(node: int) -> str:
        """Return the host name of a node."""
        return f"node{node}"

    @staticmethod
    def address(node: int) -> str:
        """Return a node's address: any would do, as no other network is in reach."""
        return f"10.0.0.{10 + node}"

    def enter(self, node: int) -> None:
        """Move this process to a node: a fork calls it before it becomes a program."""
        enter(self.nodes[node])

    def rate(self, node: int, bits_per_second: float | None) -> None:
        """Let a node's link carry so much each way; None: as much as it can."""
        queue = "noqueue"
        if bits_per_second:
            burst = max(BURST, int(bits_per_second / 8 * BURST_TIME))
            queue = f"tbf rate {bits_per_second:.0f}bit burst {burst} limit {QUEUE}"
        self._run(self.nodes[node], f"tc qdisc replace dev eth0 root {queue}")
        self._run(self.switch, f"tc qdisc replace dev {self.name(node)} root {queue}")

    def cut(self, node: int) -> None:
        """Pull a node's cable, at the switch: its programs only see that all is silent.

        Connections live on, and go on some time after `mend`: TCP tries again after
        0.2, 0.4, 0.8... seconds, so at most after as long as the cut has lasted.
        """
        self._run(self.switch, f"ip link set dev {self.name(node)} down")

    def mend(self, node: int) -> None:
        """Plug the cable in again."""
        self._run(self.switch, f"ip link set dev {self.name(node)} up")

    def traffic(self, node: int) -> Traffic:
        """Return what has crossed a node's link so far."""
        said = self._run(
            self.switch, f"ip -json -stats link show dev {self.name(node)}"
        )
        count = json.loads(said)[0]["stats64"]  # at the switch, which gets what we send
        sent, received = count["rx"], count["tx"]
        return Traffic(
            sent["bytes"], received["bytes"], sent["packets"], received["packets"]
        )

    def _run(self, files: list[int], command: str) -> str:
        return _run(command, lambda: enter(files))


def _made(count: int) -> list[int]:
    """Have a fork make it all; return files: the user's, if need be, and the switch's;
    the network, the host name and the mounts of each node.
    """
    ours, theirs = socket.socketpair()
    maker = os.fork()
    if maker == 0:
        why, files = "", []
        try:
            files = _make(count)
        except (OSError, subprocess.CalledProcessError) as error:
            why = _reason(error)
        finally:
            socket.send_fds(theirs, [why.encode() or b"-"], files)
            os._exit(0)
    with ours, theirs:
        theirs.close()
        said, files, *_ = socket.recv_fds(ours, 4096, MOST_FILES)
    os.waitpid(maker, 0)
    if not files:
        raise NoNetwork(said.decode() or "namespaces ended the process that made them")
    for file in files:
        os.set_inheritable(file, False)
    return files


def _make(count: int) -> list[int]:
    """Make all in this process; return what `_made` does."""
    user = []
    try:
        unshare("net", "mnt")
    except PermissionError:
        _become_root()
        user = opened(os.getpid(), "user")
        unshare("net", "mnt")
    switch, mounts = opened(os.getpid(), "net", "mnt")
    _silence()
    _cover(count)
    names = [Network.name(node) for node in range(count)]
    nodes = []
    for node in range(count):
        unshare("net", "uts", "mnt")
        nodes += opened(os.getpid(), "net", "uts", "mnt")
        socket.sethostname(names[node])
        _silence()
        _cover_links()
        _run(f"""ip -batch -
            link set dev lo up
            link add eth0 type veth peer {names[node]} netns {_path(switch)}
            address add {Network.address(node)}/24 dev eth0
            link set dev eth0 up
        """)
        enter([mounts])
    enter([switch])
    plugs = "\n".join(f"link set dev {name} master switch up" for name in names)
    _run(f"""ip -batch -
        link add switch type bridge mcast_snooping 0
        link set dev switch up
        {plugs}
    """)
    return [*user, switch, *nodes]


def _become_root() -> None:
    """Enter a new user namespace, in which we are root."""
    user, group = os.geteuid(), os.getegid()
    unshare("user")
    for file, text in (
        ("setgroups", "deny"),  # which is the price for a map of groups
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as entry:
            entry.write(text)


def _cover(count: int) -> None:
    """Cover the files that say how names are looked up."""
    hosts = ["127.0.0.1 localhost", "::1 localhost"]
    for node in range(count):
        hosts.append(f"{Network.address(node)} {Network.name(node)}")
    files = {"/etc/hosts": "\n".join([*hosts, ""])}
    switch = "/etc/nsswitch.conf"
    if os.path.exists(switch):
        with open(switch) as file:
            files[switch] = re.sub("^hosts:.*", "hosts: files", file.read(), flags=re.M)
    _mount("none", "/", "", MS_REC | MS_SLAVE)  # nothing of it shall be seen outside
    _mount("tmpfs", SCRATCH, "tmpfs", 0)
    for path, text in files.items():
        copy = f"{SCRATCH}/{os.path.basename(path)}"
        with open(copy, "w") as file:
            file.write(text)
        _mount(copy, path, "", MS_BIND)
    check(libc.umount2(SCRATCH.encode(), MNT_DETACH))


def _cover_links() -> None:
    """Let /sys tell of this node's links, or of none: the machine's would mislead."""
    try:
        _mount("sysfs", SCRATCH, "sysfs", 0)
    except PermissionError:  # in a container, say
        _mount("tmpfs", f"/sys/{LINKS[0]}", "tmpfs", 0)
        return
    for folder in LINKS:
        _mount(f"{SCRATCH}/{folder}", f"/sys/{folder}", "", MS_BIND)
    check(libc.umount2(SCRATCH.encode(), MNT_DETACH))


def _mount(what: str, where: str, kind: str, flags: int) -> None:
    check(libc.mount(what.encode(), where.encode(), kind.encode(), flags, None))


def _path(file: int) -> str:
    """Return a name of a file that we have open, for a program that we start."""
    return f"/proc/{os.getpid()}/fd/{file}"


def _silence() -> None:
    """Let links send nothing by themselves, as far as IPv6 would."""
    with contextlib.suppress(OSError):
        with open(IPV6_OFF, "w") as file:
            file.write("1")


def _run(command: str, before: Callable[[], None] | None = None) -> str:
    """Run a command, whose further lines are its input; return what it says."""
    words, _, text = command.partition("\n")
    done = subprocess.run(
        words.split(),
        input=text,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=before,
    )
    return done.stdout


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    """Say in a sentence why nothing came of it."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"{error.cmd[0]} says: {' '.join(error.stderr.split())}"
    for path, value in KEEPS.items():
        with contextlib.suppress(OSError), open(path) as file:
            if file.read().strip() == value:
                return f"{path} is {value}, so user namespaces are root's only"
    return f"this system does not let us make namespaces: {error.strerror}"
