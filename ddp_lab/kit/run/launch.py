"""Launch a program as a terminal would, watch it, and tell by rank what became of it.

`torchrun` runs a real torchrun in a subprocess, with a file for each rank's output.
`python` does the same for a program that starts its ranks itself.

Who starts whom (no import shows it):

    cell        %torchrun (magics.py) calls the launcher in the kernel
     |
    launcher    job.py; warm.py has started the fork server, once for all runs
     |  starts with a pipe: the guard's stdin
    guard       guard.py
     |  starts with a mark: DDP_LAB_RUN in the environment, which children inherit
    proxy       proxy.py  -- socket -->  fork server    fork_server.py
                                          |  forks
                                         torchrun
     +----- starts $PYTHON_EXEC ----------+
     |      for each rank
    proxy       proxy.py  -- socket -->  fork server
                                          |  forks
                                         rank           rank.py

A cold start needs no fork server: a proxy starts `python rank.py`, and the guard
starts torchrun itself.

Who notices that somebody has gone, by what, and what follows:

    the kernel      guard: its stdin ends        ends what has the mark, removes files
                    fork server: its stdin ends  kills its forks, and ends
    a proxy         fork server: socket closes   kills the fork that it stands for
    a fork          fork server: SIGCHLD         tells its proxy, which ends likewise
    fork server     proxy: socket closes         exits with 1
    a rank          torchrun: its worker ends    ends the others
    torchrun        guard: waitpid               ends what is left, exits likewise
    silence, Ctrl-C launcher                     closes the guard's stdin

What comes back lies in the run's folder, which the launcher reads five times a second:

    out, err                 torchrun's own output, or all of it (`python`)
    children                 what the program has started (`python`; children.py)
    .../RANK/stdout.log      what the rank prints; beside it stderr.log
             pid, ask        where to find and to ask the rank       (rank.py)
             flight.json     its calls of the communication library  (rank.py)
             stack           where it was when torchrun ended it     (rank.py)
             stack.json      where it was when we looked, by py-spy  (probe.py)
             seen.json       is it stopped, and who works beside it  (probe.py)
             raised.json     the exception that ended it             (rank.py)
             end.json        its exit code, when all is done         (rank.py)
             exit.json       how it ended, when, and whether asked   (proxy.py)
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from ddp_lab.kit.run.job import SPAWN, TORCHRUN, Job, Watch
from ddp_lab.kit.run.limits import Limits
from ddp_lab.kit.run.result import Run, RunFailed, RunInterrupted

OWN_RENDEZVOUS = re.compile(r"--(standalone|nnodes|node|rdzv|master)")
DEFAULT = Limits()


def torchrun(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run `torchrun COMMAND` and return the result.

    Args:
        command: torchrun's own arguments, one string or a list. `--standalone` is added
            unless the command chooses a rendezvous of its own.
        timeout: seconds without a sign of life (output of any rank, or a completed call
            of the communication library) after which every process of the run is
            ended; takes the place of `limits.silence`.
        limits: what else the run may take.
        expect_failure: return a run that fails, and raise if it succeeds.
        cold: import torch anew in every process, as a terminal does (see warm.py).
        watch: called with the result so far, five times a second.

    Raises:
        RunFailed: says the root cause first; `.run` holds the rest.
        RunInterrupted: if Ctrl-C or the stop button ended the run.
    """
    argv = _words(command)
    if not any(OWN_RENDEZVOUS.match(argument) for argument in argv):
        argv.insert(0, "--standalone")
    job = Job(shlex.join(["torchrun", *argv]), TORCHRUN, _with(limits, timeout))
    module = ["-m", "torch.distributed.run", "--redirects", "3"]
    words = [*module, "--log-dir", str(job.folder), *argv]
    return _judged(job, job.run(words, cold, watch), expect_failure)


def python(
    command: str | Sequence[str],
    *,
    timeout: float | None = None,
    limits: Limits = DEFAULT,
    expect_failure: bool = False,
    cold: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run `python COMMAND`, a program that starts its ranks itself; see `torchrun`.

    The ranks share one output: a line `[rank 1] ...` belongs to rank 1, a JSON object
    to its "rank", and anything else to rank 0.
    """
    argv = _words(command)
    job = Job(shlex.join(["python", *argv]), SPAWN, _with(limits, timeout))
    return _judged(job, job.run(argv, cold, watch), expect_failure)


def _words(command: str | Sequence[str]) -> list[str]:
    """Return the words of a command line."""
    return shlex.split(command) if isinstance(command, str) else list(command)


def _with(limits: Limits, timeout: float | None) -> Limits:
    """Return `limits` with `timeout` for the seconds of silence, if it is given."""
    return limits if timeout is None else replace(limits, silence=timeout)


def _judged(job: Job, run: Run, expect_failure: bool) -> Run:
    """Return `run`, or raise if it ended in another way than expected."""
    if run.failure is None:
        if expect_failure:
            message = "expected the run to fail, but it succeeded"
            raise RunFailed(f"{message}\n\n$ {run.command}", run)
        return run
    message = f"{run.failure.report()}\n\n$ {run.command}"
    if job.stopped == "interrupt":
        raise RunInterrupted(message, run)
    if not expect_failure:
        raise RunFailed(message, run)
    return run
