@rpc.functions.async_execution
def push(trainer, gradient):
    with server.lock:
        server.apply(trainer, gradient)
        future = server.waiting[trainer] = torch.futures.Future()
        limit = min(server.clocks) + BOUND
        for other, clock in enumerate(server.clocks):
            if clock <= limit and other in server.waiting:
                server.waiting[other].set_result(server.answer(other))
                del server.waiting[other]
    return future
