"""Faults at random: each number stands for a program, and some of them happen.

`python -m tests.random_faults` lets more of them happen than a test has time for.
"""

import pytest
from random_faults import Summary, happen_all
from random_programs import draw
from support import FULL

SEED, COUNT, JOBS = 7, 100, 4  # three minutes on two cores


def test_a_number_stands_for_the_same_program_each_time():
    first = [draw(SEED, number) for number in range(300)]
    assert first[::-1] == [draw(SEED, number) for number in reversed(range(300))]
    assert first != [draw(SEED + 1, number) for number in range(300)]
    for fault in first:
        text = fault.program()
        compile(text, "sick.py", "exec")
        assert not [line for line in text.splitlines() if line.strip().startswith("#")]


@FULL
@pytest.mark.alone
@pytest.mark.processes
def test_faults_at_random_are_told_rightly():
    verdicts = list(happen_all(SEED, range(COUNT), JOBS))
    summary = Summary(verdicts)
    table = "\n".join(str(v) for v in verdicts if v.wrong) + f"\n{summary}"
    assert summary.right_rank >= 0.99, table
    for name in ("survivors", "false success", "false failure", "trouble"):
        assert not summary.wrong(name), table
