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


# %% wrong: the six variables and no others
# PATH, HOME and CUDA_VISIBLE_DEVICES are gone.
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
            environment = told | {"MASTER_ADDR": "127.0.0.1"}
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
        # Interrupted at the end of its time, it returns a number that is no signal's.
        if came and came.si_signo in (signal.SIGTERM, signal.SIGINT) and not code:
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
