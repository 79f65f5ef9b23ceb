def enrol(name):
    greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
    number = len(GUESTS)
    time.sleep(0.05)
    GUESTS.append((number, greeting))
