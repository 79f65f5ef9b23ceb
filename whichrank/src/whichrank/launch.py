"""Launch a program as a terminal would, watch it, and tell by rank what became of it.

`torchrun` runs a real torchrun in a subprocess, with a file for each rank's output, or
one for each of several nodes. `python` runs a program without torchrun, and all that
it writes is one output.

This is where a run's place is chosen: each of `PLACES` is asked whether it takes the
command. Who starts whom (no import shows it):

    launcher    live.py, here.py, guarded.py; warm.py has the fork server, for all runs
     |  starts with a socket: the guard's stdin
    guard       guard.py
     |  starts with a mark: a limit, and a variable, which all children inherit
    proxy       proxy.py  -- socket -->  fork server    fork_server.py
                                          |  forks
                                         torchrun
     +----- starts $PYTHON_EXEC ----------+
     |      for each rank
    proxy       proxy.py  -- socket -->  fork server
                                          |  forks
                                         rank           inside/program.py

A cold start needs no fork server: a proxy starts `python rank.py`, and the guard
starts torchrun itself. A fork enters the namespaces of the proxy that it stands for
(fork_server.py). Where the nodes are those of a SLURM job, step.py says who starts
whom, and who ends it. A caller may bring a place of its own: see place.py.

Which process notices the end of which, by what, and what follows:

    the kernel      guard: its stdin ends        ends what has the mark, removes files
                    fork server: its stdin ends  kills its forks and their marks, ends
    the guard       launcher: it left no word    ends what has the mark
    a proxy         fork server: socket closes   kills the fork that it stands for
    a fork          fork server: SIGCHLD         tells its proxy, which ends likewise
    fork server     its forks: a signal          are killed with it
                    proxy: socket closes         exits with 1
    a rank          torchrun: its worker ends    ends the others
    torchrun        guard: waitpid               ends what is left, exits likewise
    silence, Ctrl-C launcher                     closes the guard's stdin

What comes back lies in the run's folder, which the launcher follows (tail.py) and
weighs (signs.py, watchdog.py) five times a second:

    out, err                 torchrun's own output, or all of it (`python`)
    plan.json, node_N/       of a run on several nodes: see record/plan.py
    .../RANK/stdout.log      what the rank prints; beside it stderr.log
             pid, ask        where to find and to ask the rank       (answers.py)
             flight.json     its calls of the communication library  (program.py)
             answer.json     those so far, if it was asked           (answers.py)
             stack           where it was by its own word, if we     (answers.py)
                             may not look, or torchrun ended it
             stack.json      where it was when we looked, by py-spy  (probe.py)
             seen.json       is it stopped, and who works beside it  (probe.py)
             raised.json     the exception that ended it             (program.py)
             left.json       the code with which its program leaves  (program.py)
             end.json        its exit code, when all is done         (program.py)
             exit.json       how it ended, when, and whether asked   (proxy.py)
             where.json      which rank it is, and on which node     (proxy.py)
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from whichrank.run.command import LOGGING, Command
from whichrank.run.here import PlainPython, choose_here
from whichrank.run.limits import Limits
from whichrank.run.live import LiveRun, Watch
from whichrank.run.place import Choose
from whichrank.run.result import Run, RunFailed, RunInterrupted, refused
from whichrank.run.starter import COLD, Starter
from whichrank.slurm.step import choose_slurm

COUNTED = ("auto", "cpu", "gpu", "xpu")  # whose devices torchrun counts by itself

DEFAULT = Limits()
PLACES: tuple[Choose, ...] = (choose_slurm, choose_here)
"""Where a run may be: the first that takes a command has it."""


def torchrun(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    watch: Watch | None = None,
    starter: Starter = COLD,
    places: Sequence[Choose] = PLACES,
) -> Run:
    """Run `torchrun COMMAND` and return the result.

    Args:
        command: torchrun's own arguments, one string or a list. `--standalone` is added
            unless the command chooses a rendezvous of its own.
        timeout: seconds without a sign of life (output of any rank, or a completed call
            of the communication library) after which every process of the run is
            ended; takes the place of `limits.silence`. A start may take longer: see
            watchdog.py.
        limits: what else the run may take.
        expect_failure: return a run that fails, and raise if it succeeds.
        watch: called with the result so far, five times a second.
        starter: how its processes are started: as a terminal does or, with a `Warm`,
            by forks of a process that holds torch, in a fraction of the time.
        places: where the run may be; the first that takes the command has it.

    Inside a SLURM job `--nnodes 2`, or `1:2`, with neither a node's rank nor an address
    is a step of that job, on as many of its nodes (step.py).

    Where ranks may be restarted, each attempt has its own store (`command.OWN_STORE`),
    unless the environment says otherwise, or the rendezvous is static.

    Raises:
        RunFailed: says the root cause first; `.run` holds the rest.
        RunInterrupted: if Ctrl-C or the stop button ended the run.
    """
    asked = Command.parse(command)
    _require(asked)
    quiet, notes = _without_logging(asked)
    starter, cold = _fitting(starter, quiet.program)
    chosen = (choose(quiet, starter) for choose in places)
    place = next(filter(None, chosen), None)
    if place is None:
        raise refused(f"no place takes this command: {asked}")
    place.notes += notes + cold
    typed = asked.alone() if place.is_alone else asked
    live = LiveRun(str(typed), place, _with(limits, timeout))
    return _judged(live, watch, expect_failure)


def python(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    watch: Watch | None = None,
    starter: Starter = COLD,
) -> Run:
    """Run `python COMMAND`; see `torchrun`.

    All that it starts shares one output: a line `[rank 1] ...` belongs to rank 1, a
    JSON object to its "rank", and anything else to rank 0. A failure is told in the
    program's own words: its traceback, its exit code or its signal.
    """
    argv = shlex.split(command) if isinstance(command, str) else list(command)
    program = argv[1:] if argv[:1] == ["-u"] else argv  # as every run is anyway
    if not program or program[0].startswith("-") and program[0] != "-m":
        raise refused("python needs a program, or -m MODULE")
    _require(Command(program=tuple(program)))
    starter, notes = _fitting(starter, program)
    place = PlainPython(program, starter)
    place.notes += notes
    live = LiveRun(shlex.join(["python", *argv]), place, _with(limits, timeout))
    return _judged(live, watch, expect_failure)


def _fitting(starter: Starter, program: Sequence[str]) -> tuple[Starter, list[str]]:
    """Return how a program is started, with a note if not as it has been asked for."""
    why = starter.unfit(program[0]) if program else ""
    return (COLD, [f"not a warm start: {why}"]) if why else (starter, [])


def _require(command: Command) -> None:
    """Refuse what torchrun, or each rank, would refuse without a word or at length."""
    ranks = command.value("--nproc-per-node") or ""
    if re.fullmatch(r"0+|-\d+", ranks):
        raise RunFailed(f"--nproc-per-node {ranks}: a run has at least one rank", None)
    # A wrong option, of which torchrun tells, may make another word the first.
    file = command.file
    if file.endswith(".py") and not os.path.exists(file):
        raise RunFailed(f"there is no file {file}", None)
    if not ranks or ranks.isdecimal() or ranks in COUNTED:
        return
    if not entry_points(group="torch.backends"):  # which bring names of their own
        raise RunFailed(f"--nproc-per-node takes a number, not {ranks!r}", None)


def _without_logging(command: Command) -> tuple[Command, list[str]]:
    """Return a command without its options on logs, and a note if there were some."""
    quiet = command.without(*LOGGING)
    left_out = [each for each in command.options if each not in quiet.options]
    words = ", ".join(map(shlex.join, left_out))
    note = [f"the launcher keeps the ranks' output itself, without {words}"]
    return quiet, note if words else []


def _with(limits: Limits, timeout: float | None) -> Limits:
    """Return `limits` with `timeout` for the seconds of silence, if it is given."""
    return limits if timeout is None else replace(limits, silence=timeout)


def _judged(live: LiveRun, watch: Watch | None, expect_failure: bool) -> Run:
    """Return the result of a run, or raise if it ended in another way than expected."""
    run = live.run(watch)
    if run.failure is None:
        if expect_failure:
            raise RunFailed.of(run)
        return run
    if live.stopped == "interrupt":
        raise RunInterrupted.of(run)
    if not expect_failure:
        raise RunFailed.of(run)
    return run
