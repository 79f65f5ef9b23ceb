"""Play the nodes of a run on this machine: start their agents, let events happen.

    python -IS room.py FOLDER WHICHRANK

The guard starts this file instead of torchrun. WHICHRANK is where that package lies;
FOLDER/plan.json says what each node
runs (plan.py); here each gets an agent, which is a real torchrun, and what the agent
starts belongs to the node. What we leave in FOLDER, record/plan.py of whichrank says.

A process of a node has, beside the run's mark, that of the node: the limit's other
half, which a process keeps when it leaves its session or clears its environment.

We end with 0 if enough agents have. Where every node is needed, the failure of one ends
the others, after they have had time to notice by themselves.
"""

import os
import resource
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

if __name__ == "__main__":  # -IS has left out both
    sys.path[:0] = [str(Path(__file__).parents[3]), sys.argv[2]]

from ddp_lab.kit.played import events  # noqa: E402
from ddp_lab.kit.played.network import Network  # noqa: E402
from ddp_lab.kit.played.plan import RoomPlan  # noqa: E402
from ddp_lab.kit.played.wiring import NoNetwork  # noqa: E402
from whichrank import (  # noqa: E402
    AGENT,
    FOLLOW,
    LEAVE,
    PORT,
    TICK,
    AgentEnd,
    Event,
    Played,
    add_event,
    channels,
    free_port,
    guard,
    names,
    read_json,
)

HEAD_START = 1.0  # seconds, at most, that the others leave to node 0
LISTEN = "0A"  # a socket's state in /proc/net/tcp
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
LOOPBACK = "DDP_LAB_LOOPBACK"  # set: do without networks of the nodes' own
# Two ranks of one NCCL group cannot share a GPU, and nodes cannot tell whose is whose.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
KILLED = -int(signal.SIGKILL)


@dataclass
class Node:
    """One node, and the agent that runs there, if one does."""

    number: int
    folder: Path
    words: list[str]
    """The agent's command."""
    pid: int = 0
    """The agent's process; 0 while there is none."""
    end: AgentEnd = AgentEnd()
    """How the last agent ended; as long as there is one, what was done to end it."""


class Room:
    """The machine room: the nodes, and what has happened to them."""

    def __init__(self, folder: Path, mark: str):
        self.folder = folder
        self.mark = mark
        self.plan = RoomPlan.read(folder)
        self.events = list(self.plan.events)
        self.since = time.time()
        """When the last event was, or the start."""
        self.printed: dict[Path, int] = {}
        """How many bytes each life had printed by then."""
        self.network, why = self._network()
        self._leave_word(why)
        self.port = "" if self.network else str(free_port())
        """Where all meet, if that is for us to choose."""
        self.nodes = self._nodes()

    def _network(self) -> tuple[Network | None, str]:
        """Return the network of the nodes; if there is none, why not."""
        if elsewhere := self.plan.elsewhere:
            return None, f"the rendezvous is at {elsewhere}"
        if os.environ.get(LOOPBACK):
            return None, f"{LOOPBACK} is set"
        try:
            network = Network(len(self.plan.typed))
            for node in range(len(self.plan.typed)):
                if self.plan.rate:  # which not every kernel can limit
                    network.rate(node, self.plan.rate)
        except NoNetwork as reason:
            return None, str(reason)
        return network, ""

    def _leave_word(self, why: str) -> None:
        """Say how the nodes are played, and what is left out for want of a network."""
        count = len(self.plan.typed)
        how = f"{NUMBERS.get(count, count)} nodes on this machine, "
        how += f"on loopback: {why}" if why else "each a network namespace"
        needy = ["--rate"] if self.plan.rate else []
        on_links = [e for e in self.events if e.event.verb in events.ON_A_LINK]
        needy += [str(each.event) for each in on_links]
        if why:
            self.events = [each for each in self.events if each not in on_links]
        variables = [*map("=".join, self.plan.env.items())]
        typed = [
            " ".join([*variables, shlex.join(["torchrun", *words])])
            for words in self.plan.typed
        ]
        played = Played(how, typed, shared=bool(why), left_out=needy if why else [])
        names.write(self.folder / names.PLAYED, asdict(played))

    def _nodes(self) -> list[Node]:
        nodes = []
        torchrun = [*self.plan.python, *AGENT]
        command = self.plan.typed if self.network else self.plan.on_loopback
        for number, words in enumerate(command):
            home = self.folder / names.node(number)
            home.mkdir()
            logs = ["--log-dir", str(home)]
            own = [word.replace(PORT, self.port) for word in words]
            nodes.append(Node(number, home, [*torchrun, *logs, *own]))
        return nodes

    def run(self) -> int:
        """Play until every agent has ended and nothing is to come; return the code."""
        self._start_all()
        failed_at = 0.0
        while any(node.pid for node in self.nodes) or self._may_start():
            self._reap()
            self._next_event()
            if self.plan.fixed and not failed_at and self._one_has_failed():
                failed_at = time.time()
            if failed_at and time.time() > failed_at + FOLLOW:
                return self._end_all()
            time.sleep(TICK)
        return self._code()

    def _start_all(self) -> None:
        """Start the nodes that are there at first, and before the others node 0.

        All meet there, and a torchrun that comes too early tries again a second later.
        """
        away = events.absent(self.events)
        for node in self.nodes:
            if node.number not in away:
                self.start(node)
                # Where all meet elsewhere, nobody listens here.
                listens = node.number != 0 or bool(self.plan.elsewhere)
                deadline = time.time() + HEAD_START
                while not (listens or self._listens(node)) and time.time() < deadline:
                    time.sleep(TICK)

    def _listens(self, node: Node) -> bool:
        """Tell whether somebody listens, in the node's network, where all meet."""
        port = self.port or self.plan.meets[0].at.rpartition(":")[2]
        for name in ("tcp", "tcp6"):
            with suppress(OSError, ValueError):  # no such file, or no port
                text = Path(f"/proc/{node.pid}/net/{name}").read_text()
                for _, at, _, state, *_ in map(str.split, text.splitlines()[1:]):
                    if at.endswith(f":{int(port):04X}") and state == LISTEN:
                        return True
        return False

    def _end_all(self) -> int:
        """Ask the agents to end, and wait; the guard ends those that do not."""
        for node in self.nodes:
            self.ask(node)
        deadline = time.time() + LEAVE
        while any(node.pid for node in self.nodes) and time.time() < deadline:
            self._reap()
            time.sleep(TICK)
        return self._code()

    def _one_has_failed(self) -> bool:
        return any(node.end.code and not node.pid for node in self.nodes)

    def _may_start(self) -> bool:
        """Tell whether an event is still to come that starts a node.

        When no rank is left, it comes only if it waits for none to say something.
        """
        return any(each.event.verb == "start" for each in self.events) and (
            self.events[0].speaker is None or self._is_due(self.events[0])
        )

    def _code(self) -> int:
        """Return 0 if enough nodes have ended well, else what the others ended with."""
        codes = [node.end.code for node in self.nodes]
        if codes.count(0) >= self.plan.least:
            return 0
        return max((code for code in codes if code and code > 0), default=1)

    def start(self, node: Node) -> None:
        """Start the node's agent, unless it is there."""
        if node.pid:
            return
        (node.folder / names.EXIT).unlink(missing_ok=True)
        pid = os.fork()
        if pid:
            node.pid, node.end = pid, AgentEnd()
            return
        try:
            self._become(node)
        except OSError as error:
            os.write(2, f"OSError: {error}\n".encode())
        finally:
            os._exit(127)

    def _become(self, node: Node) -> None:
        """Be the agent of this node: we are its process."""
        for number, name in ((1, names.OUT), (2, names.ERR)):
            file = os.open(node.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, number)
        env = os.environ | self.plan.env | NO_GPU | {channels.NODE: str(node.number)}
        mark_node(self.mark, node.number)
        if self.network:
            self.network.enter(node.number)
        os.execve(node.words[0], node.words, env)

    def ask(self, node: Node, event: Event | None = None) -> None:
        """Ask the node's agent to end: an event does or, without one, the others."""
        if node.pid:
            if node.end.by_itself:
                why = "" if event else "another node has failed"
                node.end = AgentEnd(event=event, why=why)
            os.kill(node.pid, signal.SIGTERM)

    def kill(self, node: Node, event: Event) -> None:
        """Kill the agent and all that is on its node, as a power failure would."""
        node.end, at = replace(node.end, event=event), time.time()
        if node.pid:
            _kill(node.pid)
        while pids := list(processes(self.mark, node.number)):
            for pid in pids:
                _kill(pid)
            time.sleep(TICK)
        self._reap(at)
        for life in (node.folder / names.LIVES).glob("*"):
            left = read_json(life / names.EXIT)
            if not left or left["code"] is None:  # its proxy was killed, too
                end = {"code": KILLED, "time": time.time(), "asked": False}
                names.write(life / names.EXIT, end)

    def _reap(self, at: float = 0.0) -> None:
        """Note which agents have ended, and when: now, or at a time that is known."""
        for node in self.nodes:
            if not node.pid:
                continue
            pid, status = os.waitpid(node.pid, os.WNOHANG)
            if pid:
                code, when = os.waitstatus_to_exitcode(status), at or time.time()
                node.pid, node.end = 0, replace(node.end, code=code, time=when)
                node.end.write(node.folder)

    # --- what happens ---

    def _next_event(self) -> None:
        """Let the next thing happen, if it is time for it."""
        if not self.events or not self._is_due(self.events[0]):
            return
        event = replace(self.events.pop(0).event, time=time.time())
        self.since = event.time
        self.printed = {life: _size(life / names.STDOUT) for life in self._lives()}
        add_event(self.folder, event)
        node = self.nodes[event.node]
        if event.verb == "kill":
            self.kill(node, event)
        elif event.verb == "stop":
            self.ask(node, event)
        elif event.verb == "start":
            self.start(node)
        elif self.network:  # without one, these events have been left out
            change = self.network.cut if event.verb == "cut" else self.network.mend
            change(node.number)

    def _is_due(self, event: events.Awaited) -> bool:
        if event.speaker is None:
            return time.time() >= self.since + event.seconds
        return any(self._says(life, event) for life in self._lives())

    def _lives(self) -> list[Path]:
        """Return the folders of all lives of ranks, on all nodes."""
        return [*self.folder.glob(f"{names.node('*')}/{names.LIVES}/*")]

    def _says(self, life: Path, event: events.Awaited) -> bool:
        """Tell whether a life is the rank's that has to say something, and says it."""
        where = read_json(life / names.WHERE)
        if not where or where["rank"] != event.speaker:
            return False
        try:
            with open(life / names.STDOUT, "rb") as file:
                file.seek(self.printed.get(life, 0))
                return event.says.encode() in file.read()
        except OSError:
            return False  # a rank has removed it


def mark_node(mark: str, node: int) -> None:
    """Let this process, and all that it starts, bear the mark of its node."""
    kind = getattr(resource, "RLIMIT_RTTIME", -1)  # which macOS does not have
    if kind < 0:
        return
    try:
        resource.setrlimit(kind, (guard.limit(mark), _limit(mark, node)))
    except (ValueError, OSError):
        pass  # then the environment has to do


def processes(mark: str, node: int) -> Iterator[int]:
    """Yield the living processes of one node of the run `mark`."""
    limits, word = b"%d" % _limit(mark, node), f"{channels.NODE}={node}".encode()
    for pid in guard.pids(mark):
        try:
            proc = Path(f"/proc/{pid}")
            limit = (proc / "limits").read_bytes().partition(guard.LIMIT)[2]
            there = limit.split(maxsplit=2)[1] == limits
            there = there or word in (proc / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if there and pid != os.getpid():
            yield pid


def _limit(mark: str, node: int) -> int:
    return guard.limit(mark) + 1 + node


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    sys.exit(Room(Path(sys.argv[1]), os.environ[channels.RUN]).run())
