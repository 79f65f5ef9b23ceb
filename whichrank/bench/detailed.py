"""Run a script with DDP under TORCH_DISTRIBUTED_DEBUG=DETAIL over gloo.

    torchrun ... detailed.py SCRIPT ARGUMENTS...

Torch 2.14.1 ends by SIGSEGV there, in the telemetry with which DDP begins, although
nothing is wrong with the script. Without it DETAIL can be compared with the others.
"""

import runpy
import sys
from pathlib import Path

import torch.distributed as dist


def main() -> None:
    """Run the script without that telemetry."""
    dist.Logger.set_construction_data_and_log = lambda *_: None
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
