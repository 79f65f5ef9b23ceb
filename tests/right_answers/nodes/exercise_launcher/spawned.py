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
