"""Join a group, make one all_reduce, leave: what every start is timed with.

torchrun --standalone --nproc-per-node 2 one_all_reduce.py
"""

import gc

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
gc.collect()
