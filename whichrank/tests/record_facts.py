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
from functools import partial
from pathlib import Path
from zlib import crc32

from launched import torchrun
from scripts import HEAD, NOTED, RIGHT, WRONG

from whichrank import Limits, RunFailed
from whichrank.examination.examined import examine

compact = partial(json.dumps, separators=(",", ":"))
KEPT = Path(__file__).with_name("facts.json")
SCRIPTS = RIGHT | {name: script for name, (_, script) in (NOTED | WRONG).items()}
RANKS, STEPS, LIMITS = 2, 12, Limits(silence=60)
SECONDS = ("waited", "training")
SCRATCH = re.compile(rf"{tempfile.gettempdir()}/tmp\w+")
DIGEST = re.compile(r"(?<![\d.])\d{6,}(?![\d.])")


def load() -> dict[str, list]:
    """Return by script a digest of its text, and what each rank has left."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def text_of(name: str, folder: Path) -> str:
    """Return a script as it runs in `folder`."""
    return f"FOLDER = {str(folder)!r}\n{HEAD}{SCRIPTS[name]}"


def start(words: list[str]) -> None:
    """Run torchrun as `examine` asks for it."""
    with suppress(RunFailed):  # as a script with a mistake may
        torchrun(words, limits=LIMITS)


def live(name: str, folder: Path) -> list:
    """Examine a script in `folder`; return what is kept of it."""
    script, left = folder / "train.py", list[str]()
    script.write_text(text_of(name, folder))

    def watch(words):
        start(words)
        at = Path(words[-3])
        left.extend((at / f"{rank}.json").read_text() for rank in range(RANKS))

    examine([str(script)], RANKS, STEPS, watch)
    texts = (SCRATCH.sub("{tmp}", text) for text in left)
    facts = [json.loads(text.replace(str(folder), "{here}")) for text in texts]
    for each in facts:
        each |= {name: float(bool(each[name])) for name in SECONDS}
    digests: dict[str, str] = {}
    small = DIGEST.sub(
        lambda found: digests.setdefault(found[0], str(1000 + len(digests))),
        json.dumps(facts),
    )
    return [crc32(text_of(name, Path()).encode()), *json.loads(small)]


def leave(kept: list, words: list[str]) -> None:
    """Leave these facts where `examine` has asked torchrun for them."""
    for rank, each in enumerate(kept[1:]):
        Path(words[-3], f"{rank}.json").write_text(json.dumps(each))


def told(kept: list) -> tuple[str, bool]:
    """Return what `examine` tells of a script that has left these facts."""
    return examine(["train.py"], RANKS, STEPS, partial(leave, kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="SCRIPT", help="default: all")
    names, kept = parser.parse_args().names or [*SCRIPTS], load()
    for name in names:
        with tempfile.TemporaryDirectory(prefix="examined-") as folder:
            kept[name] = live(name, Path(folder))
        print(name, flush=True)
    lines = (f"{compact(name)}:{compact(kept[name])}" for name in SCRIPTS)
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
