"""Compute here, in one process, what the ranks should come to in every bit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def as_in_a_rank() -> Iterator[None]:
    """Compute with one thread, as each rank does: the same sums in the same order.

    What is drawn from PyTorch's generator in between is drawn for nobody else.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
