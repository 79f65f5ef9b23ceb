"""Hints for ddp_lab/rpc/exercise_server.py, and an answer.

1. A trainer that is too far ahead gets its answer later. Which call can notice that it
   may go on: its own, or that of a slower trainer?
2. Under server.lock: apply the gradient and keep the future in server.waiting. Then
   look through all trainers that wait, not only the one that called.
3. If server.clocks of a waiting trainer is at most BOUND above min(server.clocks), pop
   its future and set_result(server.answer(other)). Return your own future in any case,
   and never sleep with the lock held.
"""


@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting[trainer] = future
        for other in list(server.waiting):
            if server.clocks[other] - min(server.clocks) <= BOUND:
                server.waiting.pop(other).set_result(server.answer(other))
    return future
