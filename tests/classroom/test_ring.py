"""Assignment 1: as it is graded, in a sandbox; test_solutions.py has the rest."""

from course import changed, judged, solution, states

from classroom.grading import ring


def test_the_solution_gets_full_marks():
    found = judged("ring", solution("ring"))
    assert states(found) == dict.fromkeys(ring.CRITERIA, "pass"), found


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
