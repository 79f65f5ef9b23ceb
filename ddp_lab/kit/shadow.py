"""Stand in for `python ARGUMENTS...`: start that program elsewhere, and be its shadow.

    python -IS shadow.py SOCKET ARGUMENTS...

The warm process at SOCKET forks the program (see warm.py); with `-` for a SOCKET it is
started the plain way. It gets our arguments, environment, folder and standard streams;
we pass signals on to it and end as it ends. If we are killed, the closed connection
tells the warm process to kill it.

SIGTERM is passed on late. A rank that fails leaves the group first and writes its
traceback afterwards; its neighbours notice at once, and torchrun, which sees them fail,
would end it before it has said why.

This file imports little, because it is started once for each rank.
"""

import json
import os
import re
import signal
import socket
import sys

PASSED_ON = ("SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2")
SETS = r"environ(\[[^\]]+\] *=[^=]| *\|=|\.(update|setdefault)\()|putenv\("
LAST_WORDS = 1.0  # seconds between torchrun's SIGTERM and ours


def main() -> None:
    """Have the program started, wait for its end, and end the same way."""
    path, *argv = sys.argv[1:]
    plain = path == "-" or sets_environment(argv)
    wait = spawn(argv) if plain else ask(path, argv)
    pid = next(wait)

    def pass_on(number, frame):
        try:
            os.kill(pid, signal.SIGTERM if number == signal.SIGALRM else number)
        except ProcessLookupError:
            pass

    def pass_on_late(number, frame):
        signal.setitimer(signal.ITIMER_REAL, LAST_WORDS)

    for name in (*PASSED_ON, "SIGALRM"):
        signal.signal(getattr(signal, name), pass_on)
    signal.signal(signal.SIGTERM, pass_on_late)
    code = os.waitstatus_to_exitcode(next(wait))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def sets_environment(argv):
    """Tell whether a script sets variables before it imports torch.

    torch may read them when it is loaded, and in a fork it is loaded already.
    """
    script = argv[1] if argv[0] == "-u" else argv[0]
    try:
        with open(script, errors="replace") as file:
            head = re.split(r"^\s*(?:import|from) torch", file.read(), flags=re.M)[0]
    except OSError:
        return False  # a module, or no such file
    return bool(re.search(SETS, head))


def ask(path, argv):
    """Have the warm process at `path` fork the program; yield its pid, then its end."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}
    data = json.dumps(request).encode()
    # The streams travel with the first message only.
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(data)
    reply = connection.makefile("r")
    yield int(reply.readline())
    status = reply.readline()
    if not status:
        sys.exit("the warm process is gone, and this program with it")
    yield int(status)


def spawn(argv):
    """Start the program with a Python of its own; yield its pid, then its end."""
    rank = os.path.join(os.path.dirname(__file__), "rank.py")
    command = [sys.executable, "-u", rank, *argv]
    # A process group of its own, because torchrun signals a rank's whole group.
    pid = os.posix_spawn(command[0], command, os.environ, setpgroup=0)
    yield pid
    yield os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    main()
