class Gate:
    def __init__(self, bound):
        self.bound, self.queue = bound, []

    def enter(self, trainer):
        future = torch.futures.Future()
        self.queue = [*self.queue, (trainer, future)]
        return future

    def open(self, clocks):
        stay = []
        for trainer, future in self.queue:
            if clocks[trainer] - min(clocks) > self.bound:
                stay.append((trainer, future))
            else:
                future.set_result(server.answer(trainer))
        self.queue = stay


gate = Gate(BOUND)


@rpc.functions.async_execution
def push(trainer, gradient):
    server.lock.acquire()
    try:
        server.apply(trainer=trainer, gradient=gradient)
        future = gate.enter(trainer)
        gate.open(server.clocks)
    finally:
        server.lock.release()
    return future
