@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = future, server.answer(trainer)
        for other in list(server.waiting):
            if server.clocks[other] - min(server.clocks) <= BOUND:
                held, answer = server.waiting.pop(other)
                held.set_result(answer)
    return future
