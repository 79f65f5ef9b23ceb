"""Assignment ddp: the solution is right, and each mistake costs what it violates."""

import pytest

pytest.importorskip("nbformat", reason="the assignments' tests need Jupyter")

from assignments import graded_cases, judged, program_of  # noqa: E402

NAME = "ddp"
TRAINED = "[p for p in module.parameters() if p.requires_grad]"
# By criterion: what somebody got wrong, and the changes that make it of the solution.
MISTAKES = [
    (
        "start",
        "buffers keep their own values",
        [("[*module.parameters(), *module.buffers()]", "module.parameters()")],
    ),
    (
        "steps",
        "a sum instead of the mean",
        [("mean = flat / dist.get_world_size()", "mean = flat")],
    ),
    (
        "steps",
        "always two ranks",
        [("mean = flat / dist.get_world_size()", "mean = flat / 2")],
    ),
    (
        "buckets",
        "counts numbers instead of bytes",
        [("parameter.numel() * parameter.element_size()", "parameter.numel()")],
    ),
    ("buckets", "closes a bucket too late", [("size > room", "room <= 0")]),
    ("overlap", "sends everything in finish()", [("if not self.syncing:", "if True:")]),
    (
        "overlap",
        "waits in the hook",
        [
            (
                "self.sent.append((flat, dist.all_reduce(flat, async_op=True)))",
                "work = dist.all_reduce(flat, async_op=True)\n"
                "        work.wait()\n"
                "        self.sent.append((flat, work))",
            )
        ],
    ),
    (
        "no_sync",
        "a raise leaves the switch off",
        [
            (
                "try:\n            yield\n        finally:\n            self.syncing = True",
                "yield\n        self.syncing = True",
            )
        ],
    ),
    (
        "frozen_tied",
        "a tied weight is counted twice",
        [
            (
                TRAINED,
                "[\n            p\n            for layer in module.modules()\n"
                "            for p in layer.parameters(recurse=False)\n"
                "            if p.requires_grad\n        ]",
            )
        ],
    ),
    (
        "frozen_tied",
        "frozen parameters are sent as zeros",
        [
            (TRAINED, "list(module.parameters())"),
            ("for parameter in parameters:", "for parameter in parameters:\n"
             "            if not parameter.requires_grad:\n                continue"),
        ],
    ),
    (
        "frozen_tied",
        "frozen parameters are not shared",
        [
            (
                "        for tensor in [*module.parameters(),",
                f"        for tensor in [*{TRAINED},",
            )
        ],
    ),
    (
        "unused",
        "what backward() has left out is not sent",
        [
            (
                "for bucket in self.buckets[len(self.sent) :]:  # backward()",
                "for bucket in []:  # backward()",
            ),
            ("zip(self.buckets, self.sent, strict=True)", "zip(self.buckets, self.sent)"),
        ],
    ),
    (
        "unused",
        "zeros in the place of what no_sync() has gathered",
        [
            (
                "torch.zeros_like(p) if p.grad is None else p.grad for p in bucket",
                "p.grad if p in self.ready else torch.zeros_like(p) for p in bucket",
            )
        ],
    ),
]
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


def test_the_solution_gets_full_marks():
    assert set(judged(NAME, program_of(NAME))) == {"pass"}
