"""Keep what each script of scripts.py leaves its witnesses, for test_examine.py to ask.

    python tests/record_facts.py [SCRIPT ...]

Each script runs once more under `examine`. tests/facts.json then holds, a line for
each script, what its two ranks have left. What differs from run to run is taken out:
seconds, folders, and the digests, of which only counts which are equal.
"""

import argparse
import json
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zlib import crc32

from launched import torchrun
from scripts import HEAD, NOTED, RIGHT, WRONG

from whichrank import Limits, RunFailed
from whichrank.examination.examined import examine
from whichrank.examination.facts import Witnessed, as_json, from_json
from whichrank.examination.page import Page

KEPT = Path(__file__).with_name("facts.json")
SCRIPTS = RIGHT | {name: script for name, (_, script) in (NOTED | WRONG).items()}
RANKS, STEPS, LIMITS = 2, 12, Limits(silence=60)
SCRATCH = re.compile(rf"{tempfile.gettempdir()}/tmp\w+")
DIGEST = re.compile(r"(?<![\d.])\d{6,}(?![\d.])")


@dataclass(frozen=True)
class Kept:
    """What is kept of a script."""

    digest: int
    """Of its text."""
    ranks: list[Witnessed]


def load() -> dict[str, Kept]:
    """Return what is kept, by script."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return {name: from_json(Kept, each) for name, each in kept.items()}


def text_of(name: str, folder: Path) -> str:
    """Return a script as it runs in `folder`."""
    return f"FOLDER = {str(folder)!r}\n{HEAD}{SCRIPTS[name]}"


def start(words: list[str]) -> None:
    """Run torchrun as `examine` asks for it."""
    with suppress(RunFailed):  # as a script with a mistake may
        torchrun(words, limits=LIMITS)


def digest(name: str) -> int:
    """Return a digest of a script's text, wherever it runs."""
    return crc32(text_of(name, Path()).encode())


def live(name: str, folder: Path) -> Kept:
    """Examine a script in `folder`; return what is kept of it."""
    script, left = folder / "train.py", list[str]()
    script.write_text(text_of(name, folder))

    def watch(words):
        start(words)
        at = Path(words[-3])
        left.extend((at / f"{rank}.json").read_text() for rank in range(RANKS))

    examine([str(script)], RANKS, STEPS, watch)
    texts = (SCRATCH.sub("{tmp}", text.replace(str(folder), "{here}")) for text in left)
    ranks = [from_json(Witnessed, json.loads(text)) for text in texts]
    return with_small_digests(Kept(digest(name), [*map(without_seconds, ranks)]))


def without_seconds(facts: Witnessed) -> Witnessed:
    """Return facts that say only whether there were any seconds."""
    waited, training = float(facts.waited > 0), float(facts.training > 0)
    return replace(facts, waited=waited, training=training)


def with_small_digests(kept: Kept) -> Kept:
    """Number the digests as they come; a script's own stays."""
    small: dict[str, str] = {}

    def number(found: re.Match) -> str:
        return small.setdefault(found[0], str(1000 + len(small)))

    text = DIGEST.sub(number, as_json(replace(kept, digest=0)))
    return replace(from_json(Kept, json.loads(text)), digest=kept.digest)


def leave(kept: Kept, words: list[str]) -> None:
    """Leave these facts where `examine` has asked torchrun for them."""
    for rank, each in enumerate(kept.ranks):
        Path(words[-3], f"{rank}.json").write_text(as_json(each))


def told(kept: Kept) -> Page:
    """Return what `examine` tells of a script that has left these facts."""
    page = examine(["train.py"], RANKS, STEPS, partial(leave, kept))
    assert page, "a rank has left nothing"
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="SCRIPT", help="default: all")
    names, kept = parser.parse_args().names or [*SCRIPTS], load()
    for name in names:
        with tempfile.TemporaryDirectory(prefix="examined-") as folder:
            kept[name] = live(name, Path(folder))
        print(name, flush=True)
    lines = (
        f"{json.dumps(name)}:{as_json(kept[name])}" for name in SCRIPTS if name in kept
    )
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
