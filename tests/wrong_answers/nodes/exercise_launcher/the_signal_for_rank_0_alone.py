def launch(command, count):
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks, caught = [], []
    numbers = signal.SIGTERM, signal.SIGINT
    before = [
        signal.signal(number, lambda number, _: caught.append(number))
        for number in numbers
    ]
    try:
        for rank in range(count):
            told = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
            told |= {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            told = {name: str(value) for name, value in told.items()}
            environment = os.environ | told | {"MASTER_ADDR": "127.0.0.1"}
            ranks.append(subprocess.Popen(command, env=environment))
        failed = None
        while not caught and failed is None:
            codes = [rank.poll() for rank in ranks]
            if codes == [0] * count:
                return 0
            failed = next((code for code in codes if code), None)
            time.sleep(0.02)
        for rank in ranks[:1]:
            if rank.poll() is None:
                rank.send_signal(caught[0] if caught else signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return 128 + caught[0] if caught else max(failed, 1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
