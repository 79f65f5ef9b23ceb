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
