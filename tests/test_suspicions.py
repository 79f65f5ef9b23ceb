"""What a learner suspects is compared with what was found."""

import pytest

from ddp_lab.kit import suspect, torchrun

pytestmark = pytest.mark.processes
PROGRAM = """\
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
odd = dist.get_rank() == 1
{}
"""
LINE = 7


@pytest.fixture
def fail(tmp_path):
    """Return a function that runs a program with these lines, and expects no good."""

    def run(body: str):
        (tmp_path / "sick.py").write_text(PROGRAM.format(body))
        words = f"--nproc-per-node 2 {tmp_path / 'sick.py'}"
        return torchrun(words, timeout=3, expect_failure=True)

    return run


def test_a_suspicion_is_compared_with_what_was_found(fail, capsys):
    run = fail("if odd: time.sleep(600)\ndist.all_reduce(torch.ones(1))")
    suspect(1, LINE, "absent").compare(run)
    told = capsys.readouterr().out
    assert "✓ right: rank: you say 1; the run says rank 1" in told
    assert told.count("✓ right:") == 3
    for wrong in (suspect(0, LINE, "absent"), suspect(1, 1, "absent"), suspect()):
        wrong.compare(run)
        told = capsys.readouterr().out
        assert told.count("✓ right:") < 3
    assert "no guess yet: rank: the run says rank 1" in told
    suspect(1, LINE, "flu").compare(run)
    assert "symptoms are: absent, " in capsys.readouterr().out


def test_nobody_is_the_one_if_every_rank_raises(fail, capsys):
    run = fail("raise ValueError(odd)")
    suspect(None, LINE, None).compare(run)
    assert capsys.readouterr().out.count("✓ right:") == 3
