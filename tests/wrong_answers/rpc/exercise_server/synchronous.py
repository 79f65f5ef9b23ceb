@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = future
        if len(server.waiting) == len(server.clocks):
            for other in list(server.waiting):
                server.waiting.pop(other).set_result(server.answer(other))
    return future
