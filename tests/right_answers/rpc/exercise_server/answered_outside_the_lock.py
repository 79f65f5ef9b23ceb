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
