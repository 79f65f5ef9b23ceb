@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        while server.clocks[trainer] - min(server.clocks) > BOUND:
            time.sleep(0.01)
        future.set_result(server.answer(trainer))
    return future
