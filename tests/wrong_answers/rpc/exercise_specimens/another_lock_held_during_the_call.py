"""A second lock lets in one guest at a time."""


def enrol(name):
    lock = globals().setdefault("BELL", threading.Lock())
    with lock:
        greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
        with DOOR:
            GUESTS.append((len(GUESTS), greeting))
