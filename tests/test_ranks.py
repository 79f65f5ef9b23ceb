"""Ranks that run several programs in turn: what one leaves is nothing to the next."""

import pytest
from ranks import take_turns

from ddp_lab import ROOT

pytestmark = pytest.mark.processes

# Rank 0 joins and leaves at once; rank 1 is told of that while it joins.
LEAVES = """
import os
import torch.distributed as dist
from torch.distributed import distributed_c10d

make, failing = distributed_c10d._create_gloo_process_group, [os.environ["RANK"] == "1"]

def broken(*words):  # torch may keep it, and so it is broken once only
    made = make(*words)
    if failing and failing.pop():
        raise RuntimeError("Connection closed by peer")
    return made

distributed_c10d._create_gloo_process_group = broken
dist.init_process_group("gloo")
dist.destroy_process_group()
"""


def test_a_rank_that_could_not_join_joins_the_next_time(tmp_path):
    (leaves := tmp_path / "leaves.py").write_text(LEAVES)
    right = ROOT / "ddp_lab" / "start" / "hello.py"
    ended, printed = take_turns(2, [leaves, right], timeout=10)
    # In a crowd the next program may find the other rank gone, but it waits for nobody.
    assert ended[leaves] == "exception" and ended[right] != "timeout", printed
