@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        if server.clocks[trainer] - min(server.clocks) <= BOUND:
            server.apply(trainer, gradient)
        future.set_result(server.answer(trainer))
    return future
