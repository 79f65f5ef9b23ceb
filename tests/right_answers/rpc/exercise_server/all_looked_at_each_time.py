@rpc.functions.async_execution
def push(trainer, gradient):
    future = torch.futures.Future()
    with server.lock:
        server.apply(trainer, gradient)
        server.waiting.setdefault("all", []).append((trainer, future))
        slowest, stay = min(server.clocks), []
        for who, its in server.waiting["all"]:
            if server.clocks[who] - slowest > BOUND:
                stay.append((who, its))
            else:
                its.set_result(server.answer(who))
        server.waiting["all"] = stay
    return future
