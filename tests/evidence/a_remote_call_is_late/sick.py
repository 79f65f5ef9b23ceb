
import os, time
import torch.distributed.rpc as rpc

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def slow():
    time.sleep(9)


rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
if rank == 1:
    rpc.rpc_sync("worker0", slow, timeout=2)
rpc.shutdown()
