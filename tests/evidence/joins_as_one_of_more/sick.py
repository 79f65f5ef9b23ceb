
import os
import torch.distributed as dist

rank = int(os.environ["RANK"])
odd = rank == 1
dist.init_process_group("gloo", rank=rank, world_size=3 + odd)
