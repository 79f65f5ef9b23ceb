"""The lock is held twice, and not in between: both guests get the same number."""


def enrol(name):
    with DOOR:
        number = len(GUESTS)
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    with DOOR:
        GUESTS.append((number, greeting))
