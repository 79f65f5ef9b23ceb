"""What makes a warm start fast: each trick, and what a launch takes without it.

Measured on four ranks with one all_reduce, in pairs with and without, medians of 13
rounds on two busy cores: 802 ms with all of them, 1,754 ms without the first six.
tests/test_launch.py shows that each one does what it says here.

| trick | without it |
|---|---|
| `take_huge_pages`, `forget_exits`, `without_nanobinds_exit` | x 1.96 |
| `list_no_source`, `SEED_WITHOUT_SLEEP` | x 1.47 |
| `ask_for_no_names` | x 1.08; 5 to 10 seconds where no name server answers |
| `freeze` | 2,450 ms in place of 733 |
"""

import atexit
import contextlib
import datetime
import functools
import gc
import inspect
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

# torchrun sleeps random.uniform(0, 0.3) seconds, so that the machines of a cluster do
# not all come at once. On one machine it need not; after this seed it hardly does.
SEED_WITHOUT_SLEEP = 139
MADV_NOHUGEPAGE, MADV_COLLAPSE = 15, 25  # see madvise(2); the second since Linux 6.1
HUGE = 2 << 20  # bytes of a huge page


@contextlib.contextmanager
def without_nanobinds_exit() -> Iterator[None]:
    """Keep nanobind (in Triton) from registering what it would do at exit.

    It takes its types apart one by one: a third of the memory that a fork touches.
    """
    exits: Any = atexit
    register = exits.register

    def register_others(function: Callable, *args: Any, **kwargs: Any) -> Callable:
        code = getattr(function, "__code__", None)
        if not code or (code.co_filename, code.co_name) != ("<internal>", "cleanup"):
            register(function, *args, **kwargs)
        return function

    exits.register = register_others
    yield
    exits.register = register


def forget_exits() -> None:
    """Drop what torch would do when this process exits, which each fork would do, too.

    It undoes registrations, which end with the process anyway, and adds up the seconds
    of compilations, for a log (`TORCH_LOGS`): 25 ms of each fork, and the memory that
    it touches has to be copied.
    """
    import torch._dynamo.utils

    finalizers: Any = weakref.finalize
    for finalizer in list(finalizers._registry):
        finalizer.atexit = False
    if "TORCH_LOGS" not in os.environ:
        atexit.unregister(torch._dynamo.utils.dump_compile_times)


def ask_for_no_names() -> None:
    """Let torch log its peers by address, and not ask the network for their names.

    It asks at each connection of its store, 24 times in a launch of four ranks. Where
    the name server is slow, drops questions or cannot be reached, one takes 5 or 10
    seconds. After a question that failed torch asks no more, and neither do the forks:
    here is one, to be sent to no server at all.
    """
    import ctypes

    import torch

    resolver = ctypes.CDLL(None)
    if not hasattr(resolver, "__res_state"):  # another C library than glibc
        return
    resolver.__res_init()
    resolver.__res_state.restype = ctypes.POINTER(ctypes.c_int)
    state = resolver.__res_state()  # two numbers, and more: see resolv.h
    state[1], attempts = 0, state[1]
    stderr, silent = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)  # torch tells of the question
    store, at_most = torch.distributed.TCPStore, datetime.timedelta(seconds=3)
    with contextlib.suppress(RuntimeError):  # where one cannot even connect to oneself
        store("127.0.0.1", 0, None, True, timeout=at_most, wait_for_workers=False)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.close(silent)
    state[1] = attempts


def freeze() -> None:
    """Leave what was imported out of collections, which go through all there is."""
    gc.collect()
    gc.freeze()


def take_huge_pages() -> None:
    """Move this process's memory into huge pages, so that a fork copies fewer entries.

    Without it a fork and its exit cost 30 ms of system time, with it 6. A fork still
    copies a small page when it writes, and what it asks for later comes in small pages,
    so that the memory it keeps can be told. A kernel that cannot do it refuses, and
    nothing is lost.
    """
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        areas = [line.split()[:2] for line in maps]
    for span, mode in areas:
        start, end = (int(address, 16) for address in span.split("-"))
        if mode == "rw-p" and end - start >= HUGE:
            for advice in (MADV_COLLAPSE, MADV_NOHUGEPAGE):
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


def list_no_source() -> None:
    """Let torchrun's questions for who calls it be answered without lines of code.

    It asks `inspect` 18 times, which would go through all modules: 20 ms of a launch.
    """
    inspect.stack = functools.partial(inspect.stack, 0)
