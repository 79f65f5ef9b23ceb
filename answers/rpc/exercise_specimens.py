"""Hints for ddp_lab/rpc/exercise_specimens.py, and an answer.

1. One question for each of the four, in order: where does this line run, who still
   holds a reference, who waits for these calls, and who holds the lock meanwhile?
2. grow adds to a copy; HISTORY keeps every tensor alive; add_up returns before its
   calls have ended; enrol holds DOOR during a call that needs DOOR.
3. grow: rref.rpc_sync().add_(1). repeat: do without HISTORY. add_up: collect the
   futures and call torch.futures.wait_all. enrol: get the greeting first, then take
   DOOR.
"""


def grow(rref):
    rref.rpc_sync().add_(1)


def repeat(owner):
    for step in range(STEPS):
        rref = rpc.remote(owner, torch.full, args=((2,), float(step)))
    return rref


def add_up(rref):
    added = [
        rpc.rpc_async(rref.owner(), slowly_add, args=(rref,)) for _ in range(STEPS)
    ]
    torch.futures.wait_all(added)
    return rref.to_here().sum().item()


def enrol(name):
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    with DOOR:
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, greeting))
