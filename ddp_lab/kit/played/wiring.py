"""Make the namespaces of network.py, with all links in them.

A fork makes them, because a process that makes namespaces moves into them, and hands
over open files that stand for them.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence

from whichrank import namespaces

PROGRAMS = ("ip", "tc")
MOST_FILES = 253  # in one message
SCRATCH = "/tmp"  # where the maker mounts something that no other process sees
# Of a node's link, and of no link at the switch: Linux believes in a link whose ends
# have one index only when it next looks, up to a second later.
INDEX = 1000
IPV6_OFF = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
# Settings that keep user namespaces from ordinary users, and what they say then.
KEEPS = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",  # Ubuntu
    "/proc/sys/kernel/unprivileged_userns_clone": "0",  # Debian
    "/proc/sys/user/max_user_namespaces": "0",
}


class NoNetwork(Exception):
    """Says in one sentence why nodes cannot have a network of their own."""


def make(hosts: dict[str, str]) -> list[int]:
    """Make a switch, and a node for each name and address.

    Returns:
        Files: the user namespace, where it takes one, the network of the switch and
        the mounts of all nodes; then network and host name of each node.

    Raises:
        NoNetwork: if that is not allowed here.
    """
    if sys.platform != "linux":
        raise NoNetwork("only Linux has network namespaces")
    for program in PROGRAMS:
        if not shutil.which(program, path=_path()):
            raise NoNetwork(f"there is no program {program} (package iproute2)")
    ours, theirs = socket.socketpair()
    root, maker = os.geteuid() == 0, os.fork()
    if maker == 0:
        why, files = "the process that makes them has failed", []
        try:
            files = _make(hosts)
        except OSError as error:
            why = _reason(error, root)
        except NoNetwork as error:
            why = str(error)
        finally:
            try:
                socket.send_fds(theirs, [why.encode()], files)
            finally:
                os._exit(0)  # a fork must not go on as its parent does
    theirs.close()
    with ours:
        reason, files, *_ = socket.recv_fds(ours, 4096, MOST_FILES)
    os.waitpid(maker, 0)
    if not files:
        raise NoNetwork(reason.decode() or "the process that makes them was killed")
    for file in files:
        os.set_inheritable(file, False)
    return files


def _make(hosts: dict[str, str]) -> list[int]:
    """Make all in this process; return what `make` does."""
    user = []
    try:
        namespaces.unshare("net", "mnt")
    except PermissionError:
        namespaces.become_root()
        user = namespaces.open_files(os.getpid(), "user")
        namespaces.unshare("net", "mnt")
    switch, mounts = namespaces.open_files(os.getpid(), "net", "mnt")
    port = f"/proc/{os.getpid()}/fd/{switch}"
    _silence()
    _cover_names(hosts)
    nodes = []
    for name, address in hosts.items():
        namespaces.unshare("net", "uts")
        nodes += namespaces.open_files(os.getpid(), "net", "uts")
        socket.sethostname(name)
        _silence()
        run(f"""ip -batch -
            link set dev lo up
            link add name eth0 index {INDEX} type veth peer {name} netns {port}
            address add {address}/24 dev eth0
            link set dev eth0 up
        """)
    namespaces.enter([switch])
    plugs = "\n".join(f"link set dev {name} master switch up" for name in hosts)
    run(f"""ip -batch -
        link add switch type bridge mcast_snooping 0
        link set dev switch up
        {plugs}
    """)
    return [*user, switch, mounts, *nodes]


def _cover_names(hosts: dict[str, str]) -> None:
    """Cover the files that say how names are looked up."""
    known = {"localhost": "127.0.0.1", **hosts}
    lines = [f"{address} {name}\n" for name, address in known.items()]
    files = {"/etc/hosts": "".join(lines)}
    switch = "/etc/nsswitch.conf"
    if os.path.exists(switch):
        with open(switch) as file:
            others = re.sub("^hosts:.*\n?", "", file.read(), flags=re.M)
        files[switch] = f"{others}\nhosts: files\n"
    namespaces.mount(
        "none", "/", "", namespaces.SLAVES
    )  # nothing of it shall be seen outside
    namespaces.mount("tmpfs", SCRATCH, "tmpfs")
    for path, text in files.items():
        copy = f"{SCRATCH}/{os.path.basename(path)}"
        with open(copy, "w") as file:
            file.write(text)
        namespaces.mount(copy, path, "", namespaces.BIND)
    namespaces.unmount(SCRATCH)


def _path() -> str:
    """Return where programs are, for ordinary users as well as for root."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _silence() -> None:
    """Let links send nothing by themselves, as far as IPv6 would."""
    with contextlib.suppress(OSError):
        with open(IPV6_OFF, "w") as file:
            file.write("1")


def run(command: str, where: Sequence[int] = ()) -> str:
    """Run a command, whose further lines are its input; return what it says."""
    words, _, text = command.partition("\n")
    done = subprocess.run(
        words.split(),
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": _path()},
        preexec_fn=lambda: namespaces.enter(where),
    )
    if done.returncode:
        error = done.stderr.strip().partition("\n")[0]
        raise NoNetwork(f"{words.split()[0]} says: {error}")
    return done.stdout


def _reason(error: OSError, root: bool) -> str:
    """Say in a sentence why namespaces could not be made."""
    for path, value in KEEPS.items():
        with contextlib.suppress(OSError), open(path) as file:
            if file.read().strip() == value and not root:
                return f"{path} is {value}, so only root may make namespaces"
    return f"namespaces are not allowed here ({error.strerror})"
