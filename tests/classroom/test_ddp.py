"""Assignment 2: what is special to it; test_solutions.py has the rest."""

import pytest
from course import solution, starter, verdict, visible

pytestmark = pytest.mark.sandbox

WRAPPED = """
from contextlib import contextmanager

from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DataParallel(nn.Module):
    def __init__(self, module, bucket_bytes=1_000_000):
        super().__init__()
        self.ddp = DistributedDataParallel(module, find_unused_parameters=True)

    def forward(self, *args, **kwargs):
        return self.ddp(*args, **kwargs)

    def finish(self):
        pass

    def no_sync(self):
        return self.ddp.no_sync()
"""


def test_a_start_may_pass_before_the_rest_is_written():
    right, stub = solution("ddp")["ddp.py"], starter("ddp")["ddp.py"]
    end = "def fill_buckets"
    answer = {"ddp.py": right[: right.index(end)] + stub[stub.index(end) :]}
    assert verdict("ddp", answer, "start", visible("ddp")["start"]).state == "pass"


def test_the_library_s_own_ddp_is_no_answer():
    for criterion in ("start", "steps"):
        cases = visible("ddp")[criterion][:1]
        found = verdict("ddp", {"ddp.py": WRAPPED}, criterion, cases)
        assert found.state == "fail"
