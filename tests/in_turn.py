"""Run programs one after the other in the same ranks; tell which of them raise.

Each program has a store of its own, at which its ranks meet as if nothing had been
before; rank 0 hosts it.
"""

import faulthandler
import json
import os
import runpy
import sys
import traceback

from torch.distributed import TCPStore


def succeeds(path: str) -> bool:
    """Run a program; return whether it ends without an error."""
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return False
    finally:
        faulthandler.cancel_dump_traceback_later()
    return True


if __name__ == "__main__":
    ports, store = TCPStore("localhost", int(os.environ["MASTER_PORT"])), None
    for path in sys.argv[1:]:
        if os.environ["RANK"] == "0":
            store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            ports.set(path, str(store.port))
        os.environ["MASTER_PORT"] = ports.get(path).decode()
        # As it is known only now, nothing that a program prints passes for it.
        print(json.dumps({path: succeeds(path)}), flush=True)
