"""Which rank, which line, and why: a torchrun job that fails, hangs, or is wrong.

`torchrun` and `python` run a program in processes of its own, watch them, end them, and
return a `Run`; one that fails raises `RunFailed`, which says the root cause first.
`examine` runs a training script under a witness, and tells what is wrong although
nothing fails. The command `whichrank` does the same in a terminal, and `whichrank why`
explains a job that hangs already.

This is the whole face of the package. A name is looked up when it is asked for: every
program inherits what the fork server has imported, so that shall not be all of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.examine.examined import WATCHED_STEPS, examine
    from whichrank.explain.cause import Stand
    from whichrank.explain.failure import Failure
    from whichrank.explain.symptoms import Symptom
    from whichrank.launch import PLACES, python, torchrun
    from whichrank.record import names
    from whichrank.record.calls import Call, Key
    from whichrank.record.files import read_json
    from whichrank.record.lives import Life
    from whichrank.record.plan import (
        AgentEnd,
        Event,
        Meets,
        Plan,
        Planned,
        Played,
        add_event,
    )
    from whichrank.run import channels, fork_server, guard, namespaces
    from whichrank.run.command import (
        AGENT,
        ENDPOINT,
        LOOPBACK,
        NO_PYTHON,
        PORT,
        Command,
    )
    from whichrank.run.here import Here, environment
    from whichrank.run.inside import program
    from whichrank.run.limits import FOLLOW, LEAVE, SHORT, TICK, Limits
    from whichrank.run.place import Choose
    from whichrank.run.ports import free_port
    from whichrank.run.result import Run, RunFailed, RunInterrupted, refused
    from whichrank.run.starter import COLD, Starter, write_python
    from whichrank.run.warm import Warm

# ruff: noqa: F401  (for those who check types)
FOR_USERS = {
    "examination.examined": "WATCHED_STEPS examine",
    "explain.cause": "Stand",
    "explain.failure": "Failure",
    "explain.symptoms": "Symptom",
    "launch": "python torchrun",
    "record.calls": "Call Key",
    "record.lives": "Life",
    "run.here": "environment",
    "run.limits": "Limits SHORT",
    "run.ports": "free_port",
    "run.result": "Run RunFailed RunInterrupted",
    "run.starter": "COLD Starter",
    "run.warm": "Warm",
}
"""By the module in which they are: what a caller needs."""

FOR_PLACES = {
    "launch": "PLACES",
    "record.files": "read_json",
    "record.plan": "AgentEnd Event Meets Plan Planned Played add_event",
    "run.command": "AGENT Command ENDPOINT LOOPBACK NO_PYTHON PORT",
    "run.here": "Here",
    "run.limits": "FOLLOW LEAVE TICK",
    "run.place": "Choose",
    "run.result": "refused",
    "run.starter": "write_python",
}
"""The same for those who bring a place of a run, or a way to start it, of their own."""

MODULES = {
    "record": "names",
    "run": "channels fork_server guard namespaces",
    "run.inside": "program",
}
"""By the room: modules that those need as a whole."""


def __getattr__(name: str) -> Any:
    for module, names in (*FOR_USERS.items(), *FOR_PLACES.items()):
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    for room, names in MODULES.items():
        if name in names.split():
            return import_module(f"{__name__}.{room}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
