"""The network of nodes that are played on one machine: a bridge, and a link to each.

    node0                          switch                         node1
    eth0 192.168.0.10 <- link -> node0 - bridge - node1 <- link -> eth0 192.168.0.11

A node is a network and a host name of its own, each a namespace; the switch is a
network namespace as well. All nodes have the same mounts, not the machine's: these say
how names are looked up. All of them are made inside a user namespace where we are not
root. None has a name: this process holds them open, and so does each that runs
in them. When these have gone, so have the namespaces with all links and queues,
whatever has ended them.

In a node, `node0`, `node1`... are the names of the nodes, and nothing asks a name
server, which could not answer. The host name stands for the address of eth0, so gloo
takes that link by itself, and torchrun holds the rendezvous where the endpoint is
`node0:PORT`. Here torchrun and all that it starts are root, if only in the eyes of the
node. Files are the machine's, /sys/class/net too, but /proc/net is the node's own.

On two cores two nodes take 0.03 s, eight 0.05 s; an order to a link takes 0.01 s. An
all_reduce of 16 MB between two nodes takes 18 ms, at 1 Gbit/s 134 ms, at 100 Mbit/s
1390 to 1450 ms; the bits and the headers alone would take 134 and 1340.
"""

from ddp_lab.kit.played.plan import name
from ddp_lab.kit.played.wiring import make, run
from whichrank import namespaces

QUEUE = 1 << 20  # bytes that wait for a link with a rate; what is more is lost
BURST, BURST_TIME = 4096, 0.001  # bytes, or seconds, that may go at once


class Network:
    """Namespaces and links for nodes 0 to `count` - 1.

    Raises:
        NoNetwork: if they are not to be had here.
    """

    def __init__(self, count: int):
        hosts = {name(node): self.address(node) for node in range(count)}
        files = make(hosts)
        first = len(files) - 2 * count
        *user, switch, mounts = files[:first]
        self.switch = [*user, switch]
        own = [files[i : i + 2] for i in range(first, len(files), 2)]
        self.nodes = [[*user, *each, mounts] for each in own]

    @staticmethod
    def address(node: int) -> str:
        """Return a node's address, such as a small network has.

        It is above 127.0.0.1: of two addresses gloo connects from the higher one, so
        that a node which offers 127.0.0.1 is not found, as between most machines.
        """
        return f"192.168.0.{10 + node}"

    def enter(self, node: int) -> None:
        """Move this process to a node: a fork calls it before it becomes a program."""
        namespaces.enter(self.nodes[node])

    def rate(self, node: int, bits_per_second: float) -> None:
        """Let a node's link carry so much each way."""
        burst = max(BURST, int(bits_per_second / 8 * BURST_TIME))
        queue = f"tbf rate {bits_per_second:.0f}bit burst {burst} limit {QUEUE}"
        run(f"tc qdisc replace dev eth0 root {queue}", self.nodes[node])
        self._switch(f"tc qdisc replace dev {name(node)} root {queue}")

    def cut(self, node: int) -> None:
        """Pull a node's cable, at the switch: its programs only notice the silence.

        Connections live on. After `mend` the node itself sends again within a second;
        what others have sent to it they send anew after ever longer pauses (TCP), the
        last of which is hardly longer than the cut was.
        """
        self._switch(f"ip link set dev {name(node)} down")

    def mend(self, node: int) -> None:
        """Plug the cable in again."""
        self._switch(f"ip link set dev {name(node)} up")

    def _switch(self, command: str) -> None:
        run(command, self.switch)
