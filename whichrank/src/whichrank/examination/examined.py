"""A script examined: it runs as it is, some steps long, and what it does is told."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from whichrank.examination import questions
from whichrank.examination.facts import Witnessed, from_json
from whichrank.record.files import read_json

WITNESS = Path(__file__).with_name("witness.py")  # imports torch, which is not here
WATCHED_STEPS = 20  # steps of an optimizer
ALONE = """\
✗ This script {why}: {n} trainings ran side by side, and shared nothing.
    To share, it needs `init_process_group`, `DistributedDataParallel` and a
    `DistributedSampler`.\
"""
SPAWNS = """\
? This script starts ranks of its own, in which there is no witness ({line}).
    Under torchrun, call that function itself, with `int(os.environ["RANK"])`.\
"""


def examine(
    script: list[str], ranks: int, steps: int, start: Callable[[list[str]], object]
) -> tuple[str, bool]:
    """Run a script under a witness; return its page, and whether all is well.

    Args:
        script: its path, and its arguments.
        ranks: how many processes to start.
        steps: how many steps of an optimizer to see.
        start: runs torchrun with the arguments that it is given. It may raise.
    """
    folder = Path(tempfile.mkdtemp(prefix="whichrank-examine-"))
    try:
        words = ["--nproc-per-node", str(ranks), str(WITNESS), str(folder)]
        start([*words, str(steps), *script])
        left = [read_json(folder / f"{rank}.json") for rank in range(ranks)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seen = [from_json(Witnessed, each) for each in left if each]
    if len(seen) < ranks:
        return "", False
    return page(script[0], seen)


def page(script: str, ranks: questions.Ranks) -> tuple[str, bool]:
    """Return the answers to all questions as text, and whether all is well."""
    head = f"examined: {script} on {len(ranks)} ranks\n{questions.numbers(ranks)}\n\n"
    if line := ranks[0].spawns:
        return head + SPAWNS.format(line=line), False
    if why := questions.alone(ranks):
        return head + ALONE.format(why=why, n=len(ranks)), False
    answers = questions.answers(ranks)
    lines = [str(each) for mark in "✗✓?" for each in answers if each.mark == mark]
    wrong = any(each.mark == questions.NO for each in answers)
    return head + "\n".join(lines), not wrong
