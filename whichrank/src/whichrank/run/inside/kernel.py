"""What a rank asks of the kernel: see prctl(2). Elsewhere than on Linux, nothing."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_PTRACER, ANY = 0x59616D61, -1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent is killed, or ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def allow_py_spy() -> None:
    """Let processes of this user look at our stack, which Ubuntu forbids by default."""
    _prctl(PR_SET_PTRACER, ANY)


def _prctl(what: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, ctypes.c_ulong(value), 0, 0, 0)
