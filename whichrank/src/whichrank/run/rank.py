"""Run a program in a rank that starts cold: see inside/program.py.

    python -u rank.py SCRIPT ARGUMENTS...     or -m MODULE ARGUMENTS...

This Python need not be the launcher's: it may have another whichrank, or none. So ours
is found by where this file lies, without a look at `sys.path`, and forgotten before the
program begins, which may import its own.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

if __name__ == "__main__":  # and so no fork, whose parent would be the fork server
    found = PathFinder.find_spec("whichrank", [str(Path(__file__).parents[2])])
    assert found and found.loader
    sys.modules["whichrank"] = package = module_from_spec(found)
    found.loader.exec_module(package)
    from whichrank.run.inside import kernel, program

    for name in [each for each in sys.modules if each.startswith("whichrank")]:
        del sys.modules[name]
    kernel.die_with_parent()
    program.run(sys.argv[1:])
