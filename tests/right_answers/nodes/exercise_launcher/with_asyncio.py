import asyncio


async def start(command, rank, size, port):
    names = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
    names |= dict.fromkeys(["WORLD_SIZE", "LOCAL_WORLD_SIZE"], size)
    names = {name: str(value) for name, value in names.items()}
    names["MASTER_ADDR"] = "127.0.0.1"
    return await asyncio.create_subprocess_exec(*command, env=os.environ | names)


async def supervise(command, count):
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    told = asyncio.get_running_loop().create_future()

    def note(number):
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, note, number)
    ranks = [await start(command, rank, count, port) for rank in range(count)]
    waits, code = {asyncio.ensure_future(rank.wait()) for rank in ranks}, 0
    left = set(waits)
    while left and not code:
        now = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait({*left, told}, return_when=now)
        left -= done
        codes = [wait.result() for wait in done - {told}]
        code = next((c if c > 0 else 1 for c in codes if c), 0)
        if told.done():
            code = 128 + told.result()
    for rank in ranks:
        if rank.returncode is None:
            rank.send_signal(told.result() if told.done() else signal.SIGTERM)
    await asyncio.wait(waits, timeout=GRACE)
    for rank in ranks:
        if rank.returncode is None:
            rank.kill()
    await asyncio.wait(waits)
    return code


def launch(command, count):
    return asyncio.run(supervise(command, count))
