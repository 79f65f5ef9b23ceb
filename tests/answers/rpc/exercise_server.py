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
CHANGES = {
    "<=": "<",
}


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
