"""Run a script as it is, and leave word of how it trains on this rank.

    torchrun ... witness.py FOLDER STEPS [-m] SCRIPT ARGUMENTS...

The script is not changed, nor is what it computes. What is seen of it is written to
FOLDER/RANK.json (see facts.py) after each optimizer step, so that a rank that is ended
has left it, and less often as that file grows.

After STEPS steps of an optimizer the script is left as by sys.exit, if all ranks come
as far: what would have followed, a checkpoint say, does not.
"""

import builtins
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":  # then this package may not be installed
    sys.path[0] = str(Path(__file__).absolute().parents[2])  # until `main` sets it
from whichrank.examination.watcher import Witness


def code_of(words: list[str]) -> tuple[Any, ModuleType]:
    """Return the code of a script, or of a module after `-m`, and its empty module."""
    program = ModuleType("__main__")
    program.__dict__["__builtins__"] = builtins
    if words[0] != "-m":
        sys.path[0] = os.path.dirname(os.path.realpath(words[0]))
        program.__file__ = os.path.abspath(words[0])
        return compile(Path(words[0]).read_bytes(), words[0], "exec"), program
    sys.path[0] = os.getcwd()
    spec = find_spec(words[1])
    if spec and spec.submodule_search_locations:  # a package
        spec = find_spec(f"{words[1]}.__main__")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {words[1]!r}", name=words[1])
    program.__file__, program.__spec__ = spec.origin, spec
    program.__package__ = spec.parent
    return compile(Path(spec.origin).read_bytes(), spec.origin, "exec"), program


def main() -> None:
    """Watch a script run."""
    folder, steps, *words = sys.argv[1:]
    witness = Witness(Path(folder), int(steps))
    witness.watch()
    try:
        code, program = code_of(words)
        arguments = words[2:] if words[0] == "-m" else words[1:]
        sys.argv = [str(program.__file__) if words[0] == "-m" else words[0], *arguments]
        sys.modules["__main__"] = program
        exec(code, program.__dict__)
    except Exception:
        witness.facts.failed = True
        raise
    finally:
        witness.write()


if __name__ == "__main__":
    main()
