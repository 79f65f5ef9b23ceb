"""Assignment 4: what is special to it; test_solutions.py has the rest."""

import pytest
from course import changed, verdict, visible

pytestmark = pytest.mark.sandbox


def test_a_deadlock_says_where_each_rank_stood():
    # Rank 0 sends an activation while rank 1 sends a gradient, and nobody receives.
    send = "self.works.append((dist.isend(send_buf, dst=to), send_buf))"
    answer = changed("split", (send, "dist.send(send_buf, dst=to)"))
    found = verdict("split", answer, "grads", visible("split")["grads"][:1])
    assert found.state == "fail"
    assert "rank 0" in found.words and "rank 1" in found.words
    assert "split.py" in found.words and "send" in found.words
