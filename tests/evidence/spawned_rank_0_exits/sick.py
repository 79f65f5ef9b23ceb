
import json, os, signal, socket, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def misbehave(rank, world_size, odd, tensor):
    if rank == 0:
        dist.destroy_process_group()
        sys.exit(3)


def worker(rank, world_size, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    print(f"[rank {rank}] is here", flush=True)
    group = {"rank": rank, "process_group": os.getpgid(0)}
    print(json.dumps(group), flush=True)
    dist.all_reduce(torch.ones(4))
    misbehave(rank, world_size, rank == 1, torch.ones(8))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = int(sys.argv[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(world_size, port), nprocs=world_size)
