
import os
import torch.distributed as dist

os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) ^ 1)
dist.init_process_group("gloo")
