"""Launches of tests: warm, unless they are told to be cold."""

import whichrank
from whichrank import COLD, Run, Warm

WARM = Warm()
"""The fork server of these tests; see `warm` in support.py."""


def torchrun(command, *, cold: bool = False, **how) -> Run:
    """Run `torchrun COMMAND`; see `whichrank.torchrun`."""
    return whichrank.torchrun(command, starter=COLD if cold else WARM, **how)


def python(command, *, cold: bool = False, **how) -> Run:
    """Run `python COMMAND`; see `whichrank.python`."""
    return whichrank.python(command, starter=COLD if cold else WARM, **how)
