def grow(rref):
    rref.rpc_async().add_(1).wait()


def repeat(owner):
    rref = rpc.remote(owner, torch.zeros, args=((2,),))
    for _ in range(STEPS - 1):
        rref = rref.remote().add(1)  # the owner may forget the one before
    return rref


def add_up(rref):
    calls = [
        rpc.rpc_async(rref.owner(), slowly_add, args=(rref,)) for _ in range(STEPS)
    ]
    done = torch.futures.collect_all(calls)
    return done.then(lambda _: rref.to_here().sum().item()).wait()


@rpc.functions.async_execution
def enrol(name):
    """No thread of the owner waits for the greeting, and none holds the lock."""

    def note(greeting):
        with DOOR:
            GUESTS.append((len(GUESTS), greeting.wait()))

    me = rpc.get_worker_info()
    return rpc.rpc_async("worker0", greet, args=(name, me)).then(note)
