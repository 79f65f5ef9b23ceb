"""Run a script; write what PyTorch's flight recorder holds when asked, and at its end.

    torchrun ... recorded.py FOLDER SCRIPT ARGUMENTS...

Over NCCL a watchdog writes these files when a call times out. Over gloo nothing does,
so this asks the recorder itself: when FOLDER/dump appears, and when the script ends.
torchfrtrace cannot read that (torch 2.14.1: KeyError), because a group of gloo is there
without its name; this puts the names in, so that the tool can show what it can do.
"""

import atexit
import os
import pickle
import runpy
import sys
import threading
import time
from pathlib import Path

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed.distributed_c10d import _world


def main() -> None:
    """Run the script with a thread beside it that waits for the order."""
    folder, script = Path(sys.argv[1]), sys.argv[2]
    threading.Thread(target=_on_order, args=(folder,), daemon=True).start()
    atexit.register(_dump, folder)
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def _on_order(folder: Path) -> None:
    while not (folder / "dump").exists():
        time.sleep(0.2)
    _dump(folder)


def _dump(folder: Path) -> None:
    file = folder / f"trace_{os.environ['RANK']}"
    if file.exists():
        return
    dump = pickle.loads(_distributed_c10d._dump_fr_trace())
    groups = {
        name: dist.get_process_group_ranks(g) for g, name in _world.pg_names.items()
    }
    dump["pg_config"] = {
        name: {"name": name, "desc": "", "ranks": str(ranks)}
        for name, ranks in groups.items()
    }
    file.write_bytes(pickle.dumps(dump))


main()
