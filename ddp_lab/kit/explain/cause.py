"""Why a run failed, or stands still, as facts. What a reader is told is in say.py.

A `Cause` has a kind, the rank or the node to blame, the line, and its evidence: the
words of the program or of torch, the calls, and where the ranks stand.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.record.calls import Call
from ddp_lab.kit.record.stacks import Frame

MEETING = "init_process_group"


class Kind(Enum):
    """What has happened. Behind each: which fields of a `Cause` it needs."""

    # How a rank ended, or the command.
    RAISED = auto()  # error; name: the function of torch.distributed, if in one
    SIGNAL = auto()  # code; name: of the event, if one has sent it
    EXIT = auto()  # code; error: its last words
    UNWILLING = auto()  # it was asked to end; stands: where it was
    LAUNCHER = auto()  # code: of the signal that has ended it
    STOPPED = auto()  # name: a key of say.STOPPED; limit
    # Why the ranks stand still.
    CYCLE = auto()  # stands: each waits for the next one
    OTHER_TAG = auto()  # stands: of a sender and its receiver
    PAIR = auto()  # stands: likewise, of one tag
    OTHER_SOURCE = auto()  # stands: who receives; waiting: who sends to it
    FEWER_GROUPS = auto()  # ranks: that have called new_group less often
    OLD_FILE = auto()  # places: where the ranks do not meet
    NOT_MET = auto()
    MEETS_ELSEWHERE = auto()  # ranks; places: theirs, and what torchrun has told them
    NOBODY_LISTENS = auto()  # places
    JOINS_AS_ANOTHER = auto()  # ranks; places: what the first of them says, and is
    CALLS_DIFFER = auto()  # calls: by rank; of: where an earlier one was made
    CALLED_ELSEWHERE = auto()  # calls: by rank, of which one is at another line
    SIZES_DIFFER = auto()  # sizes: bytes that came, and that were expected; name
    SAID_TO_DIFFER = auto()  # calls: of two ranks, as torch names them
    PARAMETERS_DIFFER = auto()  # counts: by rank, of DDP's parameters
    ROOTS_DIFFER = auto()  # stands: each with a root
    PASSED_BY = auto()  # waiting; ranks: that have passed the call
    UNABLE = auto()  # stands: halted, or ended early; waiting
    ABSENT = auto()  # stands: of those that have not come; waiting
    ALONE = auto()  # stands: of the others; waiting: one
    NO_GRADIENTS = auto()  # stands: of the one elsewhere; waiting
    APART = auto()  # waiting: in different calls, or groups
    LINES_APART = auto()  # stands: the one at another line; waiting
    NOBODY_SENDS = auto()  # waiting
    NOT_TOGETHER = auto()  # waiting: in calls of one name
    BUSY = auto()  # stands: of those elsewhere; name: a key of say.OTHERS
    LINGERS = auto()  # stands
    WORLD_IN_A_WORLD = auto()  # ranks
    # What a few looks from outside show; see `ddp-lab why`.
    DOES = auto()  # stands: of all ranks
    ALL_MOVE = auto()  # ranks; rank: the slowest
    ENDED = auto()  # while we looked
    # Nodes.
    CUT_OFF = auto()  # node
    SLOW_LINK = auto()  # limit: bytes a second that a link carried
    NODE_LOST = auto()  # node, ranks; code: of its torchrun, None if asked to end
    NODE_SAID = auto()  # node; error: of its torchrun
    NODES_NOT_COME = auto()  # nodes; sides: where the others wait
    NODE_ALONE = auto()  # places; name: of --nnodes; limit: how many are missing
    NO_NODE_0 = auto()  # places
    NODES_NOT_MET = auto()  # places
    NODES_NOT_MET_AGAIN = auto()  # places; nodes: new ones; name: as below
    OWN_LOOPBACK = auto()  # node; places: the address; ranks: that have looked there
    NODES_CHANGED = auto()  # nodes: that have gone; sides: that have come
    # What is told beside another cause.
    KNOWN_AS = auto()  # symptom; name: the folder on a full disk
    BEFORE = auto()  # of: what was not the same on all ranks
    SAID = auto()  # of: how a rank ended that has only noticed it
    PRINTED = auto()  # a traceback that was not the end: rank, error, frame; name: of
    # the task of asyncio that has failed by it, if nobody has printed it
    HANDLED = auto()  # error, frame: in whose handling it left
    EVENT = auto()  # name: what was done to a node
    RENDEZVOUS_LOST = auto()  # with the node
    NOT_MET_AGAIN = auto()  # after a restart; of; name: "shared", of a store
    HELD = auto()  # error: who holds a port
    WATCHED = auto()  # limit: seconds; stands
    # What is odd about a run that succeeds.
    LEFT_EARLY = auto()  # ranks
    KEPT_GROUP = auto()  # ranks
    NOT_JOINED = auto()  # limit: how many copies of the program ran
    NOT_THE_SAME = auto()  # of
    RESTARTED = auto()  # attempts
    UNRECORDED = auto()  # NCCL's calls, of which there is no record


@dataclass(frozen=True)
class Watched:
    """What several looks from outside show of a rank beside its stack."""

    pid: int
    share: float = 0.0
    """Of a core."""
    waited: float = 0.0
    """The share of the looks in which it waited in a communication."""
    places: tuple[str, ...] = ()
    """The lines at which it was seen, if it moves."""
    trouble: str = ""
    """Why it cannot be seen."""


@dataclass(frozen=True)
class Stand:
    """Where one rank stood."""

    rank: int
    state: str
    """"waits" in a communication, "elsewhere", "stopped" (halted by a signal),
    "lingers" (has done its main program, and does not end), "left", "serves" (remote
    calls), or "unknown"; of one that is watched also "moves", "busy", "away" (on
    another machine), or "unseen"."""
    frame: Frame | None = None
    """The program's own line."""
    name: str = ""
    """The function that it waits in, such as `all_reduce` or `send`; or what of it
    lingers, such as `thread Thread-1`."""
    call: Call | None = None
    """The same as the flight recorder has it; it knows no send and recv of gloo."""
    peers: tuple[int, ...] = ()
    """The ranks that it waits for, as far as that is known."""
    root: int | None = None
    """The src or dst of a collective that has one."""
    tag: int | None = None
    """By which a send and a recv find each other."""
    given: bool = False
    """Whether the call was given a group, of which a stack does not tell the ranks."""
    members: str = ""
    """The ranks of the group that it makes, as they were given."""
    end: "Cause | None" = None
    """How it ended if not well, or what it has raised before it came here."""
    outer: tuple[Frame, ...] = field(default=(), repr=False, compare=False)
    """All lines of the program in which it was, from the innermost."""
    beside: tuple[tuple[str, Frame | None], ...] = ()
    """Where its other threads and its processes stand, by name."""
    printed: str = ""
    """Its last line, if nothing else is known."""
    watched: Watched | None = None


@dataclass(frozen=True)
class Cause:
    """Why something happened. Which fields are filled depends on the kind."""

    kind: Kind
    rank: int | None = None
    """The one to blame, if it is one alone."""
    frame: Frame | None = None
    """The program's own line."""
    symptom: Symptom | None = None
    """What this is called, if it is a known way to go wrong."""
    node: int | None = None
    """The node to blame, if it is one and no rank is."""
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    error: str = ""
    """In the words of the program, of torch, or of the system."""
    code: int | None = None
    """An exit code, negative for a signal."""
    name: str = ""
    limit: float | str = 0
    places: tuple[str, ...] = ()
    """Addresses and ports, or files, at which ranks or nodes mean to meet."""
    sizes: tuple[int, int] = (0, 0)
    sides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    calls: Mapping[int, Call] = field(default_factory=dict)
    stands: tuple[Stand, ...] = ()
    waiting: tuple[Stand, ...] = ()
    of: "Cause | None" = None
    attempts: "Attempts | None" = None

    @property
    def way(self) -> tuple[Kind, str, int | None]:
        """What it has in common with the end of another rank that went alike."""
        if self.kind is Kind.RAISED:
            return self.kind, self.error.partition(":")[0], None
        return self.kind, "", self.code

    @property
    def meeting(self) -> bool:
        """Whether ranks did not find each other."""
        names = [self.name, *(stand.name for stand in self.stands + self.waiting)]
        return MEETING in names


@dataclass(frozen=True)
class Attempts:
    """How the attempts before the last one failed: torchrun starts ranks again."""

    ways: tuple[tuple[tuple[int, ...], Cause], ...]
    """The numbers of those that failed alike, from 1, and how."""
    count: int
    """Of all attempts, with the last one."""
    same: int = 0
    """How many of the earlier ones failed as the last one did, if that is a bug."""


def odd_one(of_rank: Mapping[int, object]) -> int | None:
    """Return the rank that differs from all others, if there is exactly one."""
    counts = Counter(of_rank.values())
    odd = [rank for rank, what in of_rank.items() if counts[what] == 1]
    return odd[0] if len(counts) == 2 and len(odd) == 1 else None
