@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        if server.clocks[trainer] - min(server.clocks) <= BOUND:
            future.set_result(server.answer(trainer))
    return future
