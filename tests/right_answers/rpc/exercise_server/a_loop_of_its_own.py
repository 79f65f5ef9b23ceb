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
