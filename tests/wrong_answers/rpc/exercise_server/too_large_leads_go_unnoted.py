"""All are answered at once; a lead that is too large is not noted."""


@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        lead = server.clocks[trainer] - min(server.clocks)
        future.set_result(server.answer(trainer) if lead <= BOUND else server.weights)
    return future
