"""Every waiting trainer keeps a thread of the server busy."""


@rpc.functions.async_execution
def push(trainer, gradient):
    with server.lock:
        server.apply(trainer, gradient)
    while server.clocks[trainer] - min(server.clocks) > BOUND:
        time.sleep(0.01)
    future = torch.futures.Future()
    future.set_result(server.answer(trainer))
    return future
