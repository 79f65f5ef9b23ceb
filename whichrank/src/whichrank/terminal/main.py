"""The command `whichrank`: run a program as a cell does, or explain one that runs.

    whichrank torchrun [--timeout SECONDS] [--report FILE] TORCHRUN-ARGUMENTS
    whichrank python   [--timeout SECONDS] [--report FILE] PYTHON-ARGUMENTS
    whichrank why      [PID] [--seconds SECONDS]
    whichrank examine  --nproc-per-node N [--steps STEPS] [-m] SCRIPT [ARGUMENTS]

`torchrun` and `python` run what follows, print every line with its rank in front, and
tell a failure as a cell does: which rank, at which line, and why. They end with the
exit code of the program, with 130 after Ctrl-C, and with 124 if no rank gave a sign of
life for --timeout seconds. All else is torchrun's, or Python's, own.

`why` explains a job of this machine that is running or hanging, whoever has started its
ranks: torchrun, mpirun, SLURM, a framework, mp.spawn or you. It tells who waits for
whom, where, for how long, and who has not come, from outside, and changes nothing. PID
is any process of the job, or its launcher; it may be left out if there is one job only.

`examine` runs a training script as it is on N ranks, for 20 steps, and asks what is
wrong although nothing fails: weights that drift apart, samples that two ranks read, and
more. --json FILE keeps the page for a program to read. It ends with 0 if nothing is
wrong that was compared, with 1 if something is or nothing was compared, and with the
script's own code, or 130 after Ctrl-C, if that did not come to its end.
"""

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

NOTHING = "examined: nothing, as a rank was ended before it had taken a step"
USAGE = 2  # the exit code of a command that cannot be understood


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = sys.argv[1:] if words is None else words
    commands = {"torchrun": _run, "python": _run, "why": _why, "examine": _examine}
    if not words or words[0] not in commands:
        asked = bool(words) and words[0] in ("-h", "--help")
        print(__doc__, end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else USAGE
    try:
        return commands[words[0]](words)
    except KeyboardInterrupt:  # while it looks
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python would complain of it once more when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE


def _run(words: Sequence[str]) -> int:
    from whichrank.terminal.follow import run

    launcher, *rest = words
    parser = argparse.ArgumentParser(f"whichrank {launcher}")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS")
    parser.add_argument("--report", metavar="FILE")
    own: list[str] = []
    while rest and rest[0] in ("--timeout", "--report"):  # all others are torchrun's
        own += rest[:2]
        del rest[:2]
    args = parser.parse_args(own)
    if not rest:
        return _usage(f"which program? For example: whichrank {launcher} program.py")
    try:
        return run(launcher, rest, args.timeout, args.report)
    except OSError as error:  # of the report
        return _usage(str(error))


def _why(words: Sequence[str]) -> int:
    from whichrank.terminal import why

    parser = argparse.ArgumentParser(
        "whichrank why", description="Explain a job that runs or hangs; change nothing."
    )
    help_ = "a process of the job, or its launcher"
    parser.add_argument("pid", nargs="?", type=int, metavar="PID", help=help_)
    help_ = f"how long to look at what does not move ({why.LONGEST_LOOK:g})"
    parser.add_argument(
        "--seconds", type=seconds, default=why.LONGEST_LOOK, metavar="N", help=help_
    )
    args = parser.parse_args(words[1:])
    return why.explain_here(args.pid, args.seconds)


def _examine(words: Sequence[str]) -> int:
    from whichrank.examination.examined import WATCHED_STEPS, examine
    from whichrank.terminal.follow import run

    parser = argparse.ArgumentParser(
        "whichrank examine", description="Ask what is wrong although nothing fails."
    )
    help_ = "processes to start (2)"
    parser.add_argument(
        "--nproc-per-node", type=int, default=2, metavar="N", help=help_
    )
    help_ = "steps of an optimizer, after which the script is ended (20)"
    parser.add_argument(
        "--steps", type=int, default=WATCHED_STEPS, metavar="N", help=help_
    )
    help_ = "end it if no rank gives a sign of life for so long (120)"
    parser.add_argument(
        "--timeout", type=float, default=120, metavar="SECONDS", help=help_
    )
    help_ = "write the page to FILE, as JSON"
    parser.add_argument("--json", metavar="FILE", help=help_)
    parser.add_argument("-m", action="store_true", help="SCRIPT is a module")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="and its arguments")
    args = parser.parse_args(words[1:])
    if not args.script or args.nproc_per_node < 1 or args.steps < 1:
        return _usage("which script? For example: whichrank examine train.py")
    codes = []
    page = examine(
        ["-m"] * args.m + args.script,
        args.nproc_per_node,
        args.steps,
        lambda words: codes.append(run("torchrun", words, args.timeout, whole=False)),
    )
    print(f"\n{page or NOTHING}", flush=True)
    if args.json and page:
        Path(args.json).write_text(page.as_json() + "\n")
    return (codes or [128 + signal.SIGINT])[0] or int(not (page and page.well))


def _usage(message: str) -> int:
    print(f"whichrank: {message}", file=sys.stderr)
    return USAGE


def seconds(text: str) -> float:
    """Return a number of seconds; ValueError, which argparse tells, if it is none."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number
