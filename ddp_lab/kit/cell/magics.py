"""%torchrun and %python: the command of a terminal in a cell. %%ranks: a few lines."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from IPython import get_ipython
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from ddp_lab import workplace
from ddp_lab.kit import launch
from ddp_lab.kit.cell import display as screen
from ddp_lab.kit.cell import hints, written
from ddp_lab.kit.cell import ranks as on_ranks
from ddp_lab.kit.cell.program import notebook_of, program, variant
from ddp_lab.kit.cell.puzzle import puzzle
from ddp_lab.kit.cell.unloaded import ABOVE, MAGICS
from ddp_lab.kit.launch import WARM
from whichrank import (
    WATCHED_STEPS,
    Run,
    RunFailed,
    RunInterrupted,
    environment,
)
from whichrank import examine as examine_script

OPTIONS = ("--timeout", "--expect-failure", "--cold")
MORE = "More on each: TROUBLESHOOTING.md, It runs, and the numbers are wrong."
PLAYED = ("--rate", "--events")  # of several nodes


def load(shell: InteractiveShell) -> None:
    """Register the magics in `shell`, and go where its notebook works."""
    os.chdir(workplace(Path.cwd()))
    magics: Any = shell.magics_manager
    every: dict[str, tuple[Callable, ...]] = {
        "line": (torchrun, python, examine),
        "cell": (program, variant, puzzle, ranks),
    }
    for kind, functions in every.items():
        for function, name in zip(functions, MAGICS[kind].split(), strict=True):
            magics.register_function(function, kind, name)
    helpers = {"hint": hints.hint, "solution": hints.solution}
    shell.push(helpers, interactive=False)
    WARM.start(environment())  # its imports go on while the reader reads


def torchrun(line: str) -> Run:
    """%torchrun [--timeout SECONDS] [--expect-failure] [--cold] TORCHRUN-ARGUMENTS

    Run torchrun with these arguments, show every rank's lines, and return the `Run`.
    A failing run raises; with --expect-failure a successful one does. A run that stops
    at an exercise's stub, a bare NotImplementedError, is shown and does not raise.

    With `--nnodes 2` this machine plays several. Then these options may come before:
    --rate 100mbit, of each machine's link; --events NAME, of a list in the notebook
    that says what happens to them: see ddp_lab/kit/played/events.py.
    """
    options, words = _split(line, PLAYED)
    return _run(launch.torchrun, _with_events(options), _command(words))


def ranks(line: str, cell: str) -> None:
    """%%ranks [--timeout SECONDS] [--expect-failure] [--cold] [N]

    Run the cell's lines on N ranks that have joined a process group, with `rank`,
    `world_size`, `device`, `torch` and `dist`; show what each prints, and what the last
    expression is on each. Without N a cell goes on where the one before it ended: it
    runs the cells since the last N again, silently, and then its own lines.
    A run that stands still for ten seconds is ended, and says where.
    """
    options, words = _split(line)
    start = partial(_run, launch.torchrun, {"timeout": on_ranks.PATIENCE} | options)
    _, picture = on_ranks.ranks(words, cell, start)
    if picture:
        display(picture)


def python(line: str) -> Run:
    """%python [--timeout SECONDS] [--expect-failure] [--cold] PYTHON-ARGUMENTS

    Run a program without torchrun. Lines that begin with `[rank N]` are shown by rank.
    """
    options, words = _split(line)
    return _run(launch.python, options, _command(words))


def examine(line: str) -> None:
    """%examine [--steps N] [--timeout SECONDS] --nproc-per-node N SCRIPT ARGUMENTS

    Run a script as it is, 20 steps long, and tell what is wrong although nothing fails:
    weights that drift apart, samples that two ranks read, and more.
    """
    options, words = _split(line, ("--steps",))
    words[:1] = words[0].split("=", 1) if words else []
    if words[:1] != ["--nproc-per-node"] or len(words) < 3:
        raise UsageError("for example: %examine --nproc-per-node 2 train.py")
    steps = _count("--steps", options.pop("steps", str(WATCHED_STEPS)))
    ranks = _count("--nproc-per-node", words[1])
    _look_at(words[2:])
    if words[2] != "-m" and not Path(words[2]).is_file():
        raise UsageError(f"there is no file {words[2]}")
    # torchrun is given the witness, and does not look at the script itself.
    cold = options.pop("cold", False) or bool(WARM.unfit(words[2]))
    output = screen.Screen(command=False)

    def start(words: list[str]) -> None:
        try:
            launch.torchrun(words, cold=cold, watch=output.update, **options)
        except RunFailed as failed:
            if failed.run is None:
                raise
            output.show(screen.bundle(failed.run))

    page = examine_script(words[2:], ranks, steps, start)
    told = str(page or "It ended before its first step: nothing was examined.")
    output.show(screen.marked(told + f"\n\n{MORE}" * ("\n✗" in told)))


def _count(option: str, word: str) -> int:
    """Return the number that an option is given."""
    if not word.isdecimal() or int(word) < 1:
        raise UsageError(f"{option} takes a number, not {word!r}")
    return int(word)


def _look_at(words: list[str]) -> None:
    """Refuse a command whose program is not there; tell if it is not ours any more."""
    for path in words:
        written.refuse(path)
        if path.endswith(".py") and not Path(path).exists():
            if lesson := notebook_of(path):
                cell = f"the cell of {lesson} whose first line names it"
                raise UsageError(f"there is no {path} yet: first run {cell}")
            known = [str(each) for each in Path().glob("ddp_lab/*/*.py")]
            if near := get_close_matches(path, known, 1, cutoff=0.9):
                raise UsageError(f"there is no {path}: did you mean {near[0]}?")
        if written.is_changed(path):
            print(f"{path} was changed outside this notebook, and runs as it is now.")


def _run(launcher: Callable[..., Run], options: dict, command: list[str]) -> Run:
    words = " ".join(command).split()
    _look_at(words)
    output = screen.Screen()
    try:
        run = launcher(command, watch=output.update, **options)
    except (RunFailed, RunInterrupted) as failed:
        if failed.run is None:
            raise
        # What a library has not implemented, it says in words behind the name.
        failure = failed.run.failure
        stub = failure is not None and failure.cause == "NotImplementedError"
        output.finish(failed.run, raises=not stub)
        if not stub:
            if isinstance(failed, RunFailed) and hints.exercises(" ".join(words)):
                failed.help = "hint() helps."
            raise
        return failed.run
    output.finish(run)
    return run


def _split(line: str, more: Sequence[str] = ()) -> tuple[dict, list[str]]:
    """Return the kit's own options, which come first, and the rest of the line.

    Args:
        line: what stands behind the magic.
        more: options that it takes beside those of every magic, each with a value.
    """
    shell = get_ipython()
    for name in re.findall(r"\{(\w+)\}", line):  # as IPython leaves what it cannot fill
        if shell and name not in shell.user_ns:
            raise UsageError(f"{{{name}}} has no value in this kernel: {ABOVE}")
    words, options = shlex.split(line), dict[str, Any]()
    while words and words[0].partition("=")[0] in (*OPTIONS, *more):
        word, _, value = words.pop(0).partition("=")
        words[:0] = [value] if value else []
        name = word.removeprefix("--").replace("-", "_")
        try:
            if word == "--timeout":
                options[name] = float(words.pop(0))
            else:
                options[name] = words.pop(0) if word in more else True
        except ValueError:
            raise UsageError("--timeout takes a number of seconds") from None
        except IndexError:
            raise UsageError(f"{word} takes a value") from None
    return options, words


def _command(words: list[str]) -> list[str]:
    """Return the command that the rest of a line is; there has to be one."""
    if not words:
        raise UsageError("which program? For example: --nproc-per-node 2 program.py")
    for word in takewhile(lambda each: each != "-m" and each[-3:] != ".py", words):
        if word in (*OPTIONS, *PLAYED):
            raise UsageError(f"{word} is no option of torchrun's: it comes first")
    return words


def _with_events(options: dict) -> dict:
    """Return the options with the list that a variable of the notebook holds."""
    name, shell = options.get("events"), get_ipython()
    if name is None:
        return options
    if shell is None or name not in shell.user_ns:
        raise UsageError(f"--events takes the name of a list; {name!r} is none")
    return options | {"events": shell.user_ns[name]}
