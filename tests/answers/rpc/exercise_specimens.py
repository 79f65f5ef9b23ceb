# %% wrong: adds one after the other
# Right, but no two additions run at the same time.


def add_up(rref):
    for _ in range(STEPS):
        rpc.rpc_sync(rref.owner(), slowly_add, args=(rref,))
    return rref.to_here().sum().item()


# %% wrong: another lock held during the call
# A second lock lets in one guest at a time.


def enrol(name):
    lock = globals().setdefault("BELL", threading.Lock())
    with lock:
        greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
        with DOOR:
            GUESTS.append((len(GUESTS), greeting))


# %% wrong: here and not there
def add_up(rref):
    return rref.to_here().sum().item() + 2 * STEPS


# %% wrong: lets all go
def repeat(owner):
    for step in range(STEPS):
        rref = rpc.remote(owner, torch.full, args=((2,), float(step)))
    return rpc.RRef(rref.to_here())


# %% wrong: no lock at all
def enrol(name):
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    number = len(GUESTS)
    time.sleep(0.05)
    GUESTS.append((number, greeting))


# %% wrong: not greeted
# Both get a number, and neither has been greeted.


def enrol(name):
    with DOOR:
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, f"welcome, {name[:1]}"))


# %% wrong: numbered before the greeting
# The lock is taken twice and not held in between: both guests get the same number.


def enrol(name):
    with DOOR:
        number = len(GUESTS)
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    with DOOR:
        GUESTS.append((number, greeting))


# %% wrong: numbered under the lock, added after it
def enrol(name):
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    with DOOR:
        number = len(GUESTS)
    GUESTS.append((number, greeting))


# %% wrong: asked to grow, and not waited for
def grow(rref):
    rref.remote().add_(1)


# %% wrong: sleeps instead of waiting
# It assumes that the additions take less than a second.


def add_up(rref):
    for _ in range(STEPS):
        rpc.rpc_async(rref.owner(), slowly_add, args=(rref,))
    time.sleep(1)
    return rref.to_here().sum().item()


# %% wrong: waits for the last call only
# The calls run side by side, and the last one to start is not the last to end.


def add_up(rref):
    for _ in range(STEPS):
        future = rpc.rpc_async(rref.owner(), slowly_add, args=(rref,))
    future.wait()
    return rref.to_here().sum().item()


# %% right: threads and names
from concurrent.futures import ThreadPoolExecutor


def grow(rref):
    rref.rpc_sync().copy_(rref.to_here() + 1)


def repeat(owner):
    def one(step):
        return rpc.remote(owner, torch.mul, args=(torch.ones(2), float(step)))

    for step in range(STEPS - 1):
        one(step)
    return one(STEPS - 1)


def add_up(rref):
    name = rref.owner_name()
    with ThreadPoolExecutor(STEPS) as pool:
        for _ in range(STEPS):
            pool.submit(rpc.rpc_sync, name, slowly_add, args=(rref,))
    return rref.rpc_async().sum().wait().item()


def enrol(name):
    me = rpc.get_worker_info().name
    guest = rpc.rpc_sync("worker0", greet, args=(name,), kwargs={"host": me})
    try:
        DOOR.acquire()
        last = GUESTS[-1][0] if GUESTS else -1
        GUESTS.append((last + 1, guest))
    finally:
        DOOR.release()
