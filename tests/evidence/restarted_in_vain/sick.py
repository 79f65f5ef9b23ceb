
import os, signal, sys, time
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
# A store for each attempt: torch's own keeps the addresses of ranks that have gone.
folder = os.path.dirname(os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]))
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
)
if rank == 1: raise ValueError(f'no sample at {time.time()}')
dist.barrier()
