"""A script examined: it runs as it is, some steps long, and what it does is told."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from whichrank.examination.facts import Witnessed, from_json
from whichrank.examination.page import Page, page
from whichrank.record.files import read_json

WITNESS = Path(__file__).with_name("witness.py")  # imports torch, which is not here
WATCHED_STEPS = 20  # steps of an optimizer


def examine(
    script: list[str], ranks: int, steps: int, start: Callable[[list[str]], object]
) -> Page | None:
    """Run a script under a witness, and return its page.

    None if a rank has left no word, because it ended before its first step.

    Args:
        script: its path, or `-m` and a module, and its arguments.
        ranks: how many processes to start.
        steps: how many steps of an optimizer to see.
        start: runs torchrun with the arguments that it is given. It may raise.
            After a KeyboardInterrupt, the steps that were whole are told.
    """
    folder = Path(tempfile.mkdtemp(prefix="whichrank-examine-"))
    try:
        words = ["--nproc-per-node", str(ranks), str(WITNESS), str(folder)]
        with suppress(KeyboardInterrupt):
            start([*words, str(steps), *script])
        last = max((int(path.stem) for path in folder.glob("*.json")), default=0)
        left = [read_json(folder / f"{rank}.json") for rank in range(last + 1)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seen = [from_json(Witnessed, each) for each in left if each]
    name = " ".join(script[: 1 + (script[0] == "-m")])
    whole = len(seen) > last and (len(seen) >= ranks or seen[0].spawned)
    return page(name, seen) if whole else None
