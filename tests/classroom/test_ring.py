"""Assignment 1: the solution passes, the starter does not, a mistake has its price."""

import pytest
from course import FULL, changed, judged, solution, starter, states

# Each mistake: the criteria that it violates, a text in the solution, and its stand-in.
WHOLE_VECTORS = """    total, send_buf = x.clone(), x.clone()
    for _ in range(world_size - 1):
        recv_buf = torch.empty_like(x)
        exchange(send_buf, recv_buf)
        total += recv_buf
        send_buf = recv_buf
    x.copy_(total)
"""
WRONG = {
    "rest dropped": (
        {"any_length"},
        "[length * i // parts for i in range(parts + 1)]",
        "[length // parts * i for i in range(parts + 1)]",
    ),
    "buffer of float32": (
        {"any_dtype"},
        "torch.empty_like(mine)",
        "torch.empty(mine.shape)",
    ),
    "new tensor": (
        {"in_place"},
        "    world_size = dist.get_world_size()\n    b = bounds",
        "    x, world_size = x.clone(), dist.get_world_size()\n    b = bounds",
    ),
    "a collective on the side": (
        {"messages"},
        "    reduce_scatter(chunks)\n",
        "    dist.all_reduce(torch.zeros(1))\n    reduce_scatter(chunks)\n",
    ),
    "whole vectors": (
        {"bytes_sent"},
        "    reduce_scatter(chunks)\n    all_gather(chunks)\n",
        WHOLE_VECTORS,
    ),
    "send first if it is much": (
        {"no_deadlock"},
        "    works = [",
        "    if send_buf.numel() > 5_000_000:\n"
        "        dist.send(send_buf, dst=right)\n"
        "        dist.recv(recv_buf, src=left)\n"
        "        return\n"
        "    works = [",
    ),
}
RETURNED = "    all_gather(chunks)\n", "    all_gather(chunks)\n    return x\n"
ALL = {"right", "any_length", "any_dtype", "in_place", "messages", "bytes_sent"}
ALL |= {"no_deadlock"}


def test_the_solution_gets_full_marks():
    found = judged("ring", solution("ring"))
    assert states(found) == dict.fromkeys(ALL, "pass"), found


def test_the_starter_gets_nothing():
    found = judged("ring", starter("ring"), None if FULL else {"right", "bytes_sent"})
    assert set(states(found).values()) == {"not yet"}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_costs_its_criterion_and_no_other(name):
    lost, old, new = WRONG[name]
    answer = changed("ring", old, new)
    if name == "new tensor":
        answer = {n: text.replace(*RETURNED) for n, text in answer.items()}
    only = None if FULL else lost | {"right"}
    found = judged("ring", answer, only)
    assert {n for n, state in states(found).items() if state != "pass"} == lost, found


def test_the_feedback_says_rank_expected_and_got():
    answer = changed("ring", "mine += recv_buf", "mine -= recv_buf")
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "fail: rank 0 expected [" in found["lines"][-1]
    assert "numbers differ, first at" in found["lines"][-1]


def test_a_hang_shows_where_each_rank_stands():
    answer = changed(
        "ring", "    works = [", "    dist.send(send_buf, right)\n    works = ["
    )
    found = judged("ring", answer, {"right"})["right"]
    assert found["state"] == "fail"
    assert "rank 0 waits in send for rank 1" in found["lines"][-1]
    assert "ring.py:" in found["lines"][-1] and "in exchange" in found["lines"][-1]
