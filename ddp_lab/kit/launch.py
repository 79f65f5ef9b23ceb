"""Launch a program as a terminal would, watch it, and tell by rank what became of it.

`torchrun` runs a real torchrun in a subprocess, with a file for each rank's output, or
one for each of several nodes. `python` runs a program without torchrun, and all that
it writes is one output.

This is where a run's place is chosen: this machine (run), nodes that it plays (played),
or the nodes of a SLURM job (slurm). Who starts whom (no import shows it):

    cell        %torchrun (magics.py) calls the launcher in the kernel
     |
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
                                         rank           rank.py

A cold start needs no fork server: a proxy starts `python rank.py`, and the guard
starts torchrun itself. A run on several nodes, which this machine plays, has one
torchrun for each of them, and a process in between:

    guard       guard.py
     |  starts, with the mark
    room        room.py  -- makes a network for each node (network.py), if it may
     |  starts for each node, inside its network, with the mark of the node
    proxy       proxy.py, and all that is below it, as above

A fork enters the network of the proxy that it stands for (fork_server.py). Where the
nodes are those of a SLURM job, step.py says who starts whom, and who ends it.

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
    a node's        room.py: waitpid             after a while asks the others to end,
      torchrun                                   if every node is needed
    room.py         guard: waitpid               ends what is left, exits likewise; then
                                                 nobody holds the networks any more
    silence, Ctrl-C launcher                     closes the guard's stdin

What comes back lies in the run's folder, which the launcher follows (tail.py) and
weighs (signs.py, watchdog.py) five times a second:

    out, err                 torchrun's own output, or all of it (`python`)
    plan.json, node_N/       of a run on several nodes: see room.py
    .../RANK/stdout.log      what the rank prints; beside it stderr.log
             pid, ask        where to find and to ask the rank       (rank.py)
             flight.json     its calls of the communication library  (rank.py)
             answer.json     those so far, if it was asked           (rank.py)
             stack           where it was when torchrun ended it     (rank.py)
             stack.json      where it was when we looked, by py-spy  (probe.py)
             seen.json       is it stopped, and who works beside it  (probe.py)
             raised.json     the exception that ended it             (rank.py)
             left.json       the code with which its program leaves  (rank.py)
             end.json        its exit code, when all is done         (rank.py)
             exit.json       how it ended, when, and whether asked   (proxy.py)
             where.json      which rank it is, and on which node     (proxy.py)
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from ddp_lab.kit.played.play import Played
from ddp_lab.kit.run import options as opts
from ddp_lab.kit.run.cold import why_cold
from ddp_lab.kit.run.here import Here, PlainPython
from ddp_lab.kit.run.limits import Limits
from ddp_lab.kit.run.live import LiveRun, Watch
from ddp_lab.kit.run.options import Option
from ddp_lab.kit.run.place import Place
from ddp_lab.kit.run.result import Run, RunFailed, RunInterrupted, refused
from ddp_lab.kit.run.warm import Warm, wanted
from ddp_lab.kit.slurm import step

NO_FILE = (opts.NO_PYTHON, *opts.MODULE, "--help", "-h")
DEFAULT = Limits()


def torchrun(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Watch | None = None,
    events: Sequence[str] = (),
    rate: str = "",
    warm: Warm | None = None,
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
        cold: import torch anew in every process, as a terminal does (see warm.py); done
            for any program that a fork would run otherwise (see cold.py).
        watch: called with the result so far, five times a second.
        events: what happens to a run on several nodes, and when (see events.py).
        rate: that of each node's link, say "100mbit".
        warm: the fork server of a warm start, if not this process's own.

    With `--nnodes 2`, or `1:2`, and neither a node's rank nor an address, this machine
    plays the nodes (see room.py), unless we run in a SLURM job that has them (step.py).

    Where ranks may be restarted, each attempt has its own store (`options.OWN_STORE`),
    unless the environment says otherwise, or the rendezvous is static.

    Raises:
        RunFailed: says the root cause first; `.run` holds the rest.
        RunInterrupted: if Ctrl-C or the stop button ended the run.
    """
    argv = _words(command)
    options, program = opts.split(argv)
    _require(options, program)
    options, notes = _without_logging(options)
    options = step.spread(options)
    cold = _starts_cold(cold, program, notes)
    ours = not opts.is_fixed(options) and opts.OWN_STORE not in os.environ
    env = {opts.OWN_STORE: "1"} if ours else {}
    several, happening = opts.is_for_all(options), bool(events or rate)
    if happening and not several:
        raise refused("events and a rate are for several nodes: --nnodes 2")
    place: Place
    if several and not happening and step.takes(options):
        place = step.SlurmStep(options, program)
        place.env |= env
    elif several:
        place = Played(options, program, env, events, rate, cold=cold, server=warm)
    else:
        if not any(opts.OWN_RENDEZVOUS.match(option[0]) for option in options):
            argv.insert(0, "--standalone")
            options.insert(0, ["--standalone"])
        env = {} if opts.is_static(options) else env
        meets = opts.meets(options) if opts.nodes(options)[1] > 1 else None
        words = opts.words(options, program)
        place = Here(words, cold=cold, server=warm, meets=meets)
        place.env |= env
    place.notes += notes
    plain = [*map("=".join, env.items()), shlex.join(["torchrun", *argv])]
    live = LiveRun(" ".join(plain), place, _with(limits, timeout))
    return _judged(live, watch, expect_failure)


def python(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run `python COMMAND`; see `torchrun`.

    All that it starts shares one output: a line `[rank 1] ...` belongs to rank 1, a
    JSON object to its "rank", and anything else to rank 0. A failure is told in the
    program's own words: its traceback, its exit code or its signal.
    """
    argv = _words(command)
    program = argv[1:] if argv[:1] == ["-u"] else argv  # as every run is anyway
    if not program or program[0].startswith("-") and program[0] != "-m":
        raise refused("python needs a program, or -m MODULE")
    _require([], program)
    notes: list[str] = []
    place = PlainPython(program, cold=_starts_cold(cold, program, notes))
    place.notes += notes
    live = LiveRun(shlex.join(["python", *argv]), place, _with(limits, timeout))
    return _judged(live, watch, expect_failure)


def _starts_cold(cold: bool, program: Sequence[str], notes: list[str]) -> bool:
    """Tell whether a program starts cold, with a note if it has not been asked to."""
    why = why_cold(Path(program[0])) if program and wanted() and not cold else ""
    if why:
        notes.append(f"not a warm start: {why}")
    return cold or bool(why)


def _require(options: Sequence[Option], program: Sequence[str]) -> None:
    """Refuse what torchrun, or each rank, would refuse without a word or at length."""
    ranks = opts.value(options, "--nproc-per-node") or ""
    if re.fullmatch(r"0+|-\d+", ranks):
        raise RunFailed(f"--nproc-per-node {ranks}: a run has at least one rank", None)
    if opts.has(options, *NO_FILE):
        return
    # A wrong option, of which torchrun tells, may make another word the first.
    if program and program[0].endswith(".py") and not os.path.exists(program[0]):
        how = "in a notebook, first run the cell that writes it"
        known = [str(path) for path in Path().glob("ddp_lab/*/*.py")]
        if near := get_close_matches(program[0], known, 1, cutoff=0.9):
            how += f"; or did you mean {near[0]}?"
        raise RunFailed(f"there is no file {program[0]}: {how}", None)


def _words(command: str | Sequence[str]) -> list[str]:
    """Return the words of a command line."""
    return shlex.split(command) if isinstance(command, str) else list(command)


def _without_logging(options: list[Option]) -> tuple[list[Option], list[str]]:
    """Return torchrun's options but those on logs, and a note if there were some."""
    left_out = [option for option in options if opts.named(option, *opts.LOGGING)]
    words = ", ".join(map(shlex.join, left_out))
    note = [f"the lab keeps the ranks' output itself, without {words}"]
    return opts.without(options, *opts.LOGGING), note if words else []


def _with(limits: Limits, timeout: float | None) -> Limits:
    """Return `limits` with `timeout` for the seconds of silence, if it is given."""
    return limits if timeout is None else replace(limits, silence=timeout)


def _judged(live: LiveRun, watch: Watch | None, expect_failure: bool) -> Run:
    """Return the result of a run, or raise if it ended in another way than expected."""
    run = live.run(watch)
    if run.failure is None:
        if expect_failure:
            message = "expected the run to fail, but it succeeded"
            raise RunFailed(f"{message}\n\n$ {run.command}", run)
        return run
    message = f"{run.failure.report()}\n\n$ {run.command}"
    if live.stopped == "interrupt":
        raise RunInterrupted(message, run)
    if not expect_failure:
        raise RunFailed(message, run)
    return run
