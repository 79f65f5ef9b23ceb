from queue import Empty, SimpleQueue
from subprocess import Popen
from threading import Thread


def watch(rank, ended):
    ended.put(("code", rank.wait()))


def launch(command, count):
    events = SimpleQueue()  # a handler may put into it, whatever the main thread does
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    common = dict(os.environ, MASTER_ADDR="localhost", MASTER_PORT=f"{port}")
    common.update(WORLD_SIZE=f"{count}", LOCAL_WORLD_SIZE=f"{count}")
    old = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        old[number] = signal.signal(number, lambda n, _: events.put(("signal", n)))
    ranks = [Popen(command, env={**common, "RANK": f"{r}", "LOCAL_RANK": f"{r}"})
             for r in range(count)]  # fmt: skip
    threads = [Thread(target=watch, args=(rank, events)) for rank in ranks]
    for thread in threads:
        thread.start()
    result, number, left = 0, signal.SIGTERM, count
    while left and not result:
        try:
            what, value = events.get(timeout=0.05)  # short, so that handlers run
        except Empty:
            continue
        if what == "signal":
            result, number = 128 + value, value
        else:
            left -= 1
            result = value if value >= 0 else 1
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(number)
    end = time.monotonic() + GRACE
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    for rank in ranks:
        rank.kill()
    for thread in threads:
        thread.join()
    for number, handler in old.items():
        signal.signal(number, handler)
    return result
