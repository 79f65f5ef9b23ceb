# %% wrong: a signal's code as Popen gives it
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
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(caught[0] if caught else signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return 128 + caught[0] if caught else failed
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: always well
# Ends the ranks as it should, and says that all went well.
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
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(caught[0] if caught else signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: asks for one port and takes another
# A free port is found, and its neighbor is used.
def launch(command, count):
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1] ^ 1
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
        for rank in ranks:
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


# %% wrong: asks only
# SIGTERM and a wait: a rank that ignores it is waited for forever.
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
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(caught[0] if caught else signal.SIGTERM)
        while None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return 128 + caught[0] if caught else max(failed, 1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: kills at once
# No SIGTERM to the others, so they cannot put anything in order.
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
        for rank in ranks:
            if rank.poll() is None and caught:
                rank.send_signal(caught[0])
        end = time.monotonic() + GRACE
        while (
            caught
            and time.monotonic() < end
            and None in [rank.poll() for rank in ranks]
        ):
            time.sleep(0.02)
        return 128 + caught[0] if caught else max(failed, 1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: largest code
# Returns the largest of all codes, not that of the first to fail.
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
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(caught[0] if caught else signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return (
            128 + caught[0] if caught else max(rank.poll() or 0 for rank in ranks) or 1
        )
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: leaves the others
# Returns when one has failed, and leaves the others where they are.
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
        end = time.monotonic() + GRACE
        while time.monotonic() < end and None in [rank.poll() for rank in ranks]:
            time.sleep(0.02)
        return 128 + caught[0] if caught else max(failed, 1)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# %% wrong: local rank forgotten
# RANK alone; a rank with a GPU would not know which.
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
            told = {"RANK": rank, "MASTER_PORT": port}
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
        for rank in ranks:
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


# %% wrong: the port of old pages
# Every launch on the same port: the second one on a machine fails.
def launch(command, count):
    import subprocess

    port = 29500
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
        for rank in ranks:
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


# %% wrong: the signal for rank 0 alone
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


# %% wrong: waits in turn
# Waits for rank 0, then for rank 1: a later one may fail, unheard.
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
            codes = [rank.wait() for rank in ranks]
            if codes == [0] * count:
                return 0
            failed = next((code for code in codes if code), None)
            time.sleep(0.02)
        for rank in ranks:
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


# %% right: a thread for each rank
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


# %% right: blocked signals
def launch(command, count):
    """Signals are blocked, and one call waits for all of them: a rank's end is one."""
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address, port = probe.getsockname()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    names = dict(MASTER_ADDR=address, MASTER_PORT=port, WORLD_SIZE=count)
    names.update(LOCAL_WORLD_SIZE=count)
    living, code, number, end = {}, 0, signal.SIGTERM, None
    for rank in range(count):
        names.update(RANK=rank, LOCAL_RANK=rank)
        told = os.environ | {name: str(value) for name, value in names.items()}
        living[os.posix_spawn(command[0], command, told, setsigmask=before)] = rank
    while living:
        came = signal.sigtimedwait(awaited, 0.1)
        if came and came.si_signo != signal.SIGCHLD and not code:
            code, number = 128 + came.si_signo, came.si_signo
        for pid in [*living]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del living[pid]
                status = os.waitstatus_to_exitcode(status)
                code = code or (1 if status < 0 else status)
        if code and not end:
            end = time.monotonic() + GRACE
            [os.kill(pid, number) for pid in living]
        elif code and time.monotonic() > end:
            [os.kill(pid, signal.SIGKILL) for pid in living]
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


# %% right: spawned
import socket


class Ranks:
    def __init__(self):
        self.living, self.told, self.failed = set(), 0, 0

    def start(self, command, environment):
        self.living.add(os.posix_spawn(command[0], command, environment))

    def look(self):
        """Wait for none of them; keep the code of the first that failed."""
        for pid in list(self.living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.living.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                self.failed = self.failed or (1 if code < 0 else code)
        return self.living

    def send(self, number):
        for pid in self.living:
            os.kill(pid, number)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def launch(command, count):
    ranks, numbers = Ranks(), (signal.SIGINT, signal.SIGTERM)

    def note(number, frame):
        ranks.told = number

    old = {number: signal.signal(number, note) for number in numbers}
    everyone = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    everyone |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
    for rank in range(count):
        own = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
        ranks.start(command, {**os.environ, **everyone, **own})
    while ranks.look() and not ranks.told and not ranks.failed:
        time.sleep(0.01)
    code = 128 + ranks.told if ranks.told else ranks.failed
    ranks.send(ranks.told or signal.SIGTERM)
    patience = time.monotonic() + GRACE
    while ranks.look() and time.monotonic() < patience:
        time.sleep(0.01)
    ranks.send(signal.SIGKILL)
    while ranks.look():
        time.sleep(0.01)
    for number, handler in old.items():
        signal.signal(number, handler)
    return code


# %% right: with asyncio
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
