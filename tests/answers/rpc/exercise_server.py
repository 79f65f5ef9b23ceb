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


# %% wrong: rounds of three steps
# All wait for all, after as many steps as the fastest may be ahead at most.
CHANGES = {
    "if server.clocks[other] - min(server.clocks) <= BOUND:": (
        "done = server.clocks[other]\n"
        "            if done % (BOUND + 1) or done == min(server.clocks):"
    ),
}


# %% wrong: waits until the slowest has drawn level
CHANGES = {
    "server.waiting[trainer] = future": (
        "if server.clocks[trainer] - min(server.clocks) <= BOUND:\n"
        "            future.set_result(server.answer(trainer))\n"
        "        else:\n"
        "            server.waiting[trainer] = future"
    ),
    "[other] - min(server.clocks) <= BOUND:": "[other] == min(server.clocks):",
}


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


# %% right: one thread needs no lock
@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    server.apply(trainer, gradient)
    server.waiting[trainer] = future
    for other in list(server.waiting):
        if server.clocks[other] - min(server.clocks) <= BOUND:
            server.waiting.pop(other).set_result(server.answer(other))
    return future
