"""Assignment 1: as it is graded, in a sandbox; test_solutions.py has the rest."""

import pytest
from course import (
    RING,
    UNSAFE,
    cells,
    changed,
    judged,
    solution,
    states,
    verdict,
    visible,
)

from classroom.assignments.ring import criteria as ring
from classroom.engine import sandbox
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


# --- answers in other styles, and hostile ones ---

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
}
BODY = solution("ring")["ring.py"]
BODY = BODY[BODY.index("    world_size = dist.get_world_size()\n    b = bounds") :]
BODY = BODY[: BODY.index("@record")]
STORE = """    rank, world_size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    store.set(f"x{rank}", pickle.dumps(x))
    x.copy_(sum(pickle.loads(store.get(f"x{r}")) for r in range(world_size)))


"""
SEEDS = """    rank, world_size = dist.get_rank(), dist.get_world_size()
    for seed in range(100):
        draw = numpy.random.default_rng(seed)
        vectors = torch.from_numpy(draw.integers(-20, 21, size=(world_size, len(x))))
        if torch.equal(vectors[rank].to(x.dtype), x):
            x.copy_(vectors.sum(0))


"""
LOG = """    frame = sys._getframe()
    while frame and "log" not in frame.f_locals:
        frame = frame.f_back
    world_size, total, send_buf = dist.get_world_size(), x.clone(), x.clone()
    for _ in range(world_size - 1):
        recv_buf = torch.empty_like(x)
        exchange(send_buf, recv_buf)
        total += recv_buf
        send_buf = recv_buf
    x.copy_(total)
    if frame:
        frame.f_locals["log"].sent = 2 * (world_size - 1) * x.nbytes // world_size
    else:
        facts = {"bytes": (2 - world_size) * (world_size - 1) * x.nbytes // world_size}
        sys.modules["ranks"].say("call", name="send", numel=1, dtype="", **facts)


"""
MODULES = f"import pickle\nimport sys\nimport numpy\n{HEAD}"


def hostile(body: str) -> dict[str, str]:
    """Return the solution with another body of all_reduce."""
    return changed("ring", (BODY, body), (HEAD, MODULES))


@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes(name):
    """The criteria that look most closely; test_..._every_criterion has the rest."""
    for criterion in ("messages", "bytes_sent"):
        found = verdict("ring", RIGHT[name], criterion, visible("ring")[criterion])
        assert found.state == "pass", (criterion, found)


@pytest.mark.full
@pytest.mark.parametrize("cell", cells("ring"), ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes_every_criterion(name, cell):
    found = verdict("ring", RIGHT[name], cell.name, cell.cases)
    assert found.state == "pass", found


@pytest.mark.parametrize(("secret", "state"), [("", "pass"), ("3f9c", "fail")])
def test_seeds_can_be_tried_until_there_is_a_secret(secret, state, monkeypatch):
    monkeypatch.setattr(Rig, "secret", secret)
    found = verdict("ring", hostile(SEEDS), "right", visible("ring")["right"])
    assert found.state == state, found


def test_what_comes_through_the_store_is_no_message():
    case = visible("ring")["messages"]
    found = verdict("ring", hostile(STORE), "messages", case)
    assert str(found).startswith("fail: rank 0 receives 0 bytes in messages"), found


@pytest.mark.skipif(UNSAFE, reason="nobody counts the bytes without a sandbox")
def test_messages_for_show_are_seen_on_the_wire():
    """The numbers come through the store, and as many go round the ring."""
    show = BODY.rstrip().replace("x[b[i]", "shown[b[i]")
    body = f"    shown = x.clone()\n{show}\n{STORE}"
    found = judged("ring", hostile(body), {"messages"})["messages"]
    assert found["state"] == "fail", found
    assert "over the wire" in found["lines"][-1], found


def test_a_count_cannot_be_assigned_nor_lowered():
    case = {"ranks": 4, "length": 1000, "seed": 1}
    found = verdict("ring", hostile(LOG), "bytes_sent", [case])
    assert found.state == "fail" and "makes no sense" in found.words, found


# --- without any run: what the judge says of results that are given here ---


class Given(Rig):
    """A rig whose runs have always had one outcome."""

    def __init__(self, *outputs: dict, wire: int | None = None, sent: int = 0):
        super().__init__(RING, {})
        call = {"what": "call", "name": "send", "bytes": sent}
        events = [[{"what": "begin"}, call, {"what": "end"}]] * len(outputs)
        self.outcome = Outcome(list(outputs), bytes_on_wire=wire, events=events)

    def run(self, *args, **more) -> Outcome:
        return self.outcome


def held(length: int, lowest: float, highest: float) -> dict:
    return {"length": length, "lowest": lowest, "highest": highest}


NAN = float("nan")
SUM = int(Given().draw(0).integers(1, 1000, 2).sum())
WRONG = f"fail: rank 1 expected 250,000 times {SUM}"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (held(250_000, SUM, SUM), "pass"),
        (held(250_000, -1, SUM), f"{WRONG}, got numbers from -1 to {SUM}"),
        (held(250_000, 4, 4), f"{WRONG}, got numbers from 4 to 4"),
        (held(250_000, NAN, NAN), f"{WRONG}, got numbers from nan to nan"),
        (held(1, SUM, SUM), f"{WRONG}, got 1 numbers"),
        ({"length": 0}, f"{WRONG}, got 0 numbers"),
    ],
)
def test_no_deadlock_says_what_should_be_where(second, said):
    rig = Given(held(250_000, SUM, SUM), second)
    assert str(ring.no_deadlock(rig, ranks=2, megabytes=1)) == said


def test_who_knows_the_sum_still_has_to_send_the_vector():
    rig = Given(*[held(250_000, SUM, SUM)] * 2, wire=1_000_000)
    found = ring.no_deadlock(rig, ranks=2, megabytes=1)
    told = "1,000,000 bytes went over the wire in all, expected about 2,000,000"
    assert str(found) == f"fail: {told}"
    rig.outcome.bytes_on_wire = 10_000_000  # which is for `bytes_sent` to judge
    assert str(ring.no_deadlock(rig, ranks=2, megabytes=1)) == "pass"


def test_nobody_knows_the_sum_of_a_large_vector():
    known = "    n = dist.get_world_size()\n    x.fill_(n * (n + 1) / 2)\n"
    case = {"ranks": 2, "megabytes": 1}
    found = verdict("ring", hostile(known), "no_deadlock", [case])
    assert found.state == "fail" and "250,000 times" in found.words, found


@pytest.mark.parametrize(("gpus", "state"), [(0, "fail"), (1, "fail"), (2, "pass")])
def test_where_each_rank_has_a_gpu_the_wire_tells_nothing(gpus, state, monkeypatch):
    monkeypatch.setattr(sandbox, "gpus", lambda: gpus)
    expected = ring.run(Given(), 2, 1_000_000, "float32", 1)[1]
    given = {"result": expected}
    rig = Given(given, given, wire=1000, sent=4_000_000)
    verdict = ring.bytes_sent(rig, ranks=2, length=1_000_000, seed=1)
    assert verdict.state == state
