"""Assignment 1: as it is graded, in a sandbox; test_solutions.py has the rest."""

from contextlib import closing

import pytest
from course import (
    RING,
    UNSAFE,
    box,
    cells,
    changed,
    judged,
    solution,
    some,
    states,
    verdict,
    visible,
)

from classroom.assignments.ring import criteria as ring
from classroom.engine.check import try_case
from classroom.engine.rig import Outcome, Rig

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize(
    "criteria",
    [
        pytest.param(["messages", "bytes_sent"], id="what is counted outside"),
        pytest.param([*ring.CRITERIA], id="all", marks=pytest.mark.full),
    ],
)
def test_the_solution_gets_full_marks(criteria):
    found = judged("ring", solution("ring"), criteria)
    assert states(found) == dict.fromkeys(criteria, "pass"), found


def test_the_feedback_says_rank_expected_and_got():
    answer = changed("ring", ("mine += recv_buf", "mine -= recv_buf"))
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "fail: rank 0 expected [" in found["lines"][-1]
    assert "numbers differ, first at" in found["lines"][-1]


def test_a_hang_shows_where_each_rank_stands():
    works = "    works = ["
    answer = changed("ring", (works, f"    dist.send(send_buf, right)\n{works}"))
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "rank 0 waits in send for rank 1" in found["lines"][-1]
    assert "ring.py:" in found["lines"][-1] and "in exchange" in found["lines"][-1]


# --- answers in other styles, and other ways ---

EXCHANGE = """\
    works = [dist.isend(send_buf, dst=right), dist.irecv(recv_buf, src=left)]
    for work in works:
        work.wait()
"""
HEAD = "import gc\nimport os\n"
RIGHT = {
    "one at a time": changed(
        "ring",
        (
            EXCHANGE,
            """    for turn in range(2):
        if turn == (rank % 2 if rank < world_size - 1 else 1):
            dist.send(send_buf, dst=right)
        else:
            dist.recv(recv_buf, src=left)
""",
        ),
    ),
    "in a batch": changed(
        "ring",
        (
            EXCHANGE,
            """    sends = dist.P2POp(dist.isend, send_buf, right)
    receives = dist.P2POp(dist.irecv, recv_buf, left)
    for work in dist.batch_isend_irecv([sends, receives]):
        work.wait()
""",
        ),
    ),
    "a thread that sends": changed(
        "ring",
        (
            EXCHANGE,
            """    thread = threading.Thread(target=dist.send, args=[send_buf, right])
    thread.start()
    dist.recv(recv_buf, src=left)
    thread.join()
""",
        ),
        (HEAD, f"{HEAD}import threading\n"),
    ),
    "returns a view": changed(
        "ring",
        ("    all_gather(chunks)\n", "    all_gather(chunks)\n    return x.view(-1)\n"),
    ),
}
OBJECTS = changed(
    "ring",
    (
        EXCHANGE,
        """    for turn in range(2):
        if turn == (rank % 2 if rank < world_size - 1 else 1):
            dist.send_object_list([send_buf.clone()], dst=right)
        else:
            box = [None]
            dist.recv_object_list(box, src=left)
            recv_buf.copy_(box[0])
""",
    ),
)
BODY = solution("ring")["ring.py"]
BODY = BODY[BODY.index("    world_size = dist.get_world_size()\n    b = bounds") :]
BODY = BODY[: BODY.index("@record")]
STORE = """    rank, world_size = dist.get_rank(), dist.get_world_size()
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*address, world_size + 1, False)
    store.set(f"x{rank}", pickle.dumps(x))
    x.copy_(sum(pickle.loads(store.get(f"x{r}")) for r in range(world_size)))


"""
MODULES = f"import pickle\n{HEAD}"


def instead(body: str) -> dict[str, str]:
    """Return the solution with another body of all_reduce."""
    return changed("ring", (BODY, body), (HEAD, MODULES))


@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes(name):
    """The criteria that look most closely; test_..._every_criterion has the rest."""
    for criterion in ("in_place", "bytes_sent"):
        found = verdict("ring", RIGHT[name], criterion, visible("ring")[criterion])
        assert found.state == "pass", (criterion, found)


@pytest.mark.full
@pytest.mark.parametrize("cell", cells("ring"), ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes_every_criterion(name, cell):
    found = verdict("ring", RIGHT[name], cell.name, cell.cases)
    assert found.state == "pass", found


def test_objects_are_messages_too_and_cost_what_they_send():
    """As the notebook says: a pickled chunk of few numbers is far larger than they."""
    case = visible("ring")["bytes_sent"][0]
    assert str(verdict("ring", OBJECTS, "messages", [case])) == "pass"
    found = verdict("ring", OBJECTS, "bytes_sent", [case])
    assert found.state == "fail" and "bytes, expected 4,000 =" in found.words, found
    case = case | {"length": 1_000_000}
    assert str(verdict("ring", OBJECTS, "bytes_sent", [case])) == "pass"


def test_what_comes_through_a_store_is_no_message():
    case = visible("ring")["messages"]
    found = verdict("ring", instead(STORE), "messages", case)
    assert str(found).startswith("fail: rank 0 receives 0 bytes in messages"), found


ALL_REDUCE = "    dist.all_reduce(x)\n\n\n"


@pytest.mark.parametrize(
    "name", some([n for n in ring.CRITERIA if n != "chunks"], "messages")
)
def test_the_library_s_all_reduce_passes_nothing(name):
    found = verdict("ring", instead(ALL_REDUCE), name, visible("ring")[name][:1])
    assert found.state == "fail" and " is not allowed here: " in found.words, found


LACKING = """    from torch.distributed import _functional_collectives as functional
    n, said = dist.get_world_size(), []
    for call in (
        lambda: dist.reduce(x, 0),
        lambda: dist.scatter(x, None if dist.get_rank() else [x] * n),
        lambda: dist.reduce_scatter(x, [x] * n),
        lambda: dist.reduce_scatter_tensor(x, torch.cat([x] * n)),
        lambda: dist.all_to_all([x] * n, [x] * n),
        lambda: dist.all_to_all_single(x, x),
        dist.monitored_barrier,
        lambda: functional.all_gather_tensor(x, 0, dist.group.WORLD) + 0,
        lambda: functional.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD) + 0,
    ):
        try:
            call()
        except RuntimeError as error:
            said.append(str(error).split(" is not allowed here: the wire knows")[0])
    raise RuntimeError(" ".join(said))


"""


def test_what_the_wire_lacks_is_not_allowed():
    found = verdict("ring", instead(LACKING), "right", visible("ring")["right"][:1])
    told = "reduce scatter reduce_scatter reduce_scatter_tensor all_to_all"
    told += " all_to_all_single monitored_barrier all_gather reduce_scatter_tensor\n"
    assert f"RuntimeError: {told}" in found.words, found


@pytest.mark.skipif(UNSAFE, reason="nobody counts the bytes without a sandbox")
def test_messages_for_show_are_seen_on_the_wire():
    """The numbers come by another way, and as many go round the ring."""
    show = BODY.rstrip().replace("x[b[i]", "shown[b[i]")
    body = f"    shown = x.clone()\n{show}\n{STORE}\n\n"
    case = {"ranks": 2, "length": 200_000}
    with closing(box(RING, instead(body))) as rig:
        found = try_case(rig, "in_place", case)
    assert found.state == "fail" and "bytes went another way" in found.words, found


PIECES = EXCHANGE.replace(
    """    works = [dist.isend(send_buf, dst=right), dist.irecv(recv_buf, src=left)]
    for work in works:
        work.wait()
""",
    """    for a, b in zip(send_buf.split(4000), recv_buf.split(4000)):
        works = [dist.isend(a, dst=right), dist.irecv(b, src=left)]
        for work in works:
            work.wait()
""",
)


@pytest.mark.full
def test_many_small_pieces_are_as_good():
    answer = changed("ring", (EXCHANGE, PIECES))
    found = verdict("ring", answer, "no_deadlock", visible("ring")["no_deadlock"])
    assert found.state == "pass", found


# --- without any run: what the judge says of results that are given here ---


class Given(Rig):
    """A rig whose runs have always had one outcome."""

    def __init__(self, *outputs: dict, wire: int | None = None, sent: int = 0):
        super().__init__(RING, {})
        ranks = range(len(outputs))
        told = {"what": "messages", "bytes": sent}
        machine = [told | {"rank": rank, "to": 1 - rank} for rank in ranks]
        events = [[] for _ in ranks] + [machine]
        well = {"same": True, "waited": True, "intact": True}
        outputs = [well | given for given in outputs]
        self.outcome = Outcome([*outputs, {}], bytes_on_wire=wire, events=events)

    def run(self, *args, **more) -> Outcome:
        return self.outcome


LENGTH = 250_000
SUM = Given().draw(0).integers(-ring.EXACT // 2 + 1, ring.EXACT // 2 + 1, (2, LENGTH))
SUM = SUM.sum(0).astype("float32")


def test_the_machine_is_not_to_blame_for_a_hang():
    rig = Given({}, {})
    waits = "ranks 0 and 1 wait in Work.wait"
    told = f"no end after 20 seconds\nrank 2: has not come, and {waits}"
    rig.outcome.failure = f"{told}\n  rank 0: ring.py:20\n  rank 2: wire.py:30"
    rig.programs = solution("ring")
    found = str(try_case(rig, "right", {"ranks": 2, "length": 8}))
    assert found == f"fail: no end after 20 seconds\n{waits}\n  rank 0: ring.py:20"
    waits = "the run: ranks 0 and 1 stand at ring.py:7"
    rig.outcome.failure = f"{waits}, rank 2 stands in the check, outside your program\n"
    assert str(try_case(rig, "right", {"ranks": 2, "length": 8})) == f"fail: {waits}"


def test_who_knows_the_sum_still_has_to_receive_the_vector():
    rig = Given(*[{"result": SUM}] * 2, sent=10_000)
    found = ring.no_deadlock(rig, ranks=2, megabytes=1)
    told = "10,000 bytes in messages, expected at least the 1,000,000 of the vector"
    assert str(found) == f"fail: rank 0 receives {told}"
