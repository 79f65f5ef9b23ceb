
import json, os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
odd = rank == 1


def misbehave(tensor):
    import threading
    lock = threading.Lock()
    lock.acquire()
    if odd: threading.Thread(target=lock.acquire, name='keeper').start()


def main():
    dist.init_process_group("gloo")
    print(f"[rank {rank}] is here", flush=True)
    print(json.dumps({"process_group": os.getpgid(0)}), flush=True)
    dist.all_reduce(torch.ones(4))
    misbehave(torch.ones(8))
    dist.barrier()
    dist.destroy_process_group()


main()
