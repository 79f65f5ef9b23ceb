# %% wrong: asynchronous
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        future.set_result(server.answer(trainer))
    return future


# %% wrong: nobody wakes the waiting
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        if server.clocks[trainer] - min(server.clocks) <= BOUND:
            future.set_result(server.answer(trainer))
    return future


# %% wrong: off by one
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = future
        for other in list(server.waiting):
            if server.clocks[other] - min(server.clocks) < BOUND:
                server.waiting.pop(other).set_result(server.answer(other))
    return future


# %% wrong: stale gradients thrown away
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        if server.clocks[trainer] - min(server.clocks) <= BOUND:
            server.apply(trainer, gradient)
        future.set_result(server.answer(trainer))
    return future


# %% wrong: waits with the lock
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        while server.clocks[trainer] - min(server.clocks) > BOUND:
            time.sleep(0.01)
        future.set_result(server.answer(trainer))
    return future


# %% right: a gate
class Gate:
    def __init__(self, bound):
        self.bound, self.queue = bound, []

    def enter(self, trainer):
        future = torch.futures.Future()
        self.queue = [*self.queue, (trainer, future)]
        return future

    def open(self, clocks):
        stay = []
        for trainer, future in self.queue:
            if clocks[trainer] - min(clocks) > self.bound:
                stay.append((trainer, future))
            else:
                future.set_result(server.answer(trainer))
        self.queue = stay


gate = Gate(BOUND)


@rpc.functions.async_execution
def push(trainer, gradient):
    server.lock.acquire()
    try:
        server.apply(trainer=trainer, gradient=gradient)
        future = gate.enter(trainer)
        gate.open(server.clocks)
    finally:
        server.lock.release()
    return future


# %% right: a loop of its own
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = future
        while server.waiting:
            first = min(server.waiting, key=server.clocks.__getitem__)
            if server.clocks[first] > BOUND + min(server.clocks):
                break
            server.waiting.pop(first).set_result(server.answer(first))
    return future


# %% right: all looked at each time
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting.setdefault("all", []).append((trainer, future))
        slowest, stay = min(server.clocks), []
        for who, its in server.waiting["all"]:
            if server.clocks[who] - slowest > BOUND:
                stay.append((who, its))
            else:
                its.set_result(server.answer(who))
        server.waiting["all"] = stay
    return future


# %% right: answered outside the lock
def may_go_on():
    slowest = min(server.clocks)
    return [t for t in server.waiting if server.clocks[t] <= slowest + BOUND]


@rpc.functions.async_execution
def push(trainer, gradient):
    mine = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = mine
        ready = [(server.waiting.pop(t), server.answer(t)) for t in may_go_on()]
    for future, weights in ready:
        future.set_result(weights)
    return mine


# %% right: the slowest wakes them
@rpc.functions.async_execution
def push(trainer, gradient):
    with server.lock:
        server.apply(trainer, gradient)
        future = server.waiting[trainer] = torch.futures.Future()
        limit = min(server.clocks) + BOUND
        for other, clock in enumerate(server.clocks):
            if clock <= limit and other in server.waiting:
                server.waiting[other].set_result(server.answer(other))
                del server.waiting[other]
    return future
