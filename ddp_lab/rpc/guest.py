"""A worker joins while others work, and leaves again: init_rpc without world_size.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/guest.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import socket

import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record


def known():
    """The names that this worker can call now."""
    infos = rpc.api._get_current_rpc_agent().get_worker_infos()
    return sorted(info.name for info in infos)


def host(store, guest):
    """Worker 0: look around before the guest comes, while it is here, and after."""
    seen = [known()]
    store.set("come", "")
    store.wait(["here"])
    seen.append(rpc.rpc_sync(guest, known))  # the guest itself can call as many
    store.set("go", "")
    store.wait([f"left {guest[6:]}"])
    seen.append(known())
    try:
        rpc.rpc_sync(guest, known)
    except RuntimeError as error:
        text = str(error)
    print(f"[rank 0] known: {seen}; then {text}", flush=True)
    store.set("end", "")
    return seen, text


@record
def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    store, *_ = next(dist.rendezvous("env://"))  # to say who does what when
    residents = [f"worker{r}" for r in range(world_size - 1)]
    if rank < world_size - 1:
        store.wait(residents[:rank])  # they join one after the other
    else:
        store.wait(["come"])
    options = {"init_method": "env://", "_transports": ["uv"]}  # not by shared memory
    options = rpc.TensorPipeRpcBackendOptions(**options)
    rpc.init_rpc(f"worker{rank}", rank=rank, rpc_backend_options=options)
    print(f"[rank {rank}] has joined", flush=True)
    store.set(f"worker{rank}", "")
    if rank == 0:
        store.wait(residents)
        seen, text = host(store, f"worker{world_size - 1}")
        expected = residents, [*residents, f"worker{world_size - 1}"], residents
        assert seen == [*expected], f"{seen}, expected {expected}"
        print(json.dumps({"known": seen, "error": text}), flush=True)
    elif rank < world_size - 1:
        store.wait(["end"])
    else:
        store.set("here", "")
        store.wait(["go"])
    if rank == 0:  # it may host the store
        store.wait([f"left {other}" for other in range(1, world_size)])
    rpc.shutdown()  # in such a group, for this worker alone
    store.set(f"left {rank}", "")


# --- the same in every program: join the group, run main, leave whatever happens ---


if __name__ == "__main__":
    main()
