"""Run programs one after the other in the same ranks; tell which of them raise.

Each program has a store of its own, at which its ranks meet as if nothing had been
before. Rank 0 hosts it, and keeps it until the other ranks are through as well.
"""

import faulthandler
import json
import os
import runpy
import sys
import traceback
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import DistStoreError, TCPStore
from torch.distributed.distributed_c10d import _world

PATIENCE = timedelta(seconds=15)
"""How long rank 0 waits for the others; without a store they go on, with an error."""


def succeeds(path: str) -> bool:
    """Run a program; return whether it ends without an error."""
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        if dist.is_initialized():  # over a device's backend who raises does not leave
            dist.destroy_process_group()
        return False
    finally:
        faulthandler.cancel_dump_traceback_later()
        # A rank that could not join has counted a group, and would look for the others
        # under another name: whoever leaves at once may be gone before all have joined.
        _world.group_count = 0
    return True


if __name__ == "__main__":
    if os.environ.get("PLAYED_ACCELERATORS"):
        sys.path.append(os.path.join(os.path.dirname(__file__), "accelerator"))
        import play

        play.autoload()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    told, store = TCPStore("localhost", int(os.environ["MASTER_PORT"])), None
    for path in sys.argv[1:]:
        if rank == 0:
            store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            told.set(path, str(store.port))
        os.environ["MASTER_PORT"] = told.get(path).decode()
        # As it is known only now, nothing that a program prints passes for it.
        print(json.dumps({path: succeeds(path)}), flush=True)
        told.set(f"{path} {rank}", "")
        if rank == 0:
            with suppress(DistStoreError):
                told.wait([f"{path} {other}" for other in range(ranks)], PATIENCE)
