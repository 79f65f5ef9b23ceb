"""Stand in for `python ARGUMENTS...`: have the warm process fork it, and be its shadow.

    python -IS warm_client.py SOCKET ARGUMENTS...

The program that the warm process forks gets our arguments, environment, folder and
standard streams. We pass signals on to it and end as it ends. If we are killed, the
closed connection tells the warm process to kill it. This file imports little, because
it is started once for each rank.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2")


def main() -> None:
    """Ask for the program, wait for its end, and end the same way."""
    path, *argv = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}
    data = json.dumps(request).encode()
    # Only the first message carries the standard streams; the text may need several.
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(data)
    reply = connection.makefile("r")
    pid = int(reply.readline())

    def pass_on(number, frame):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    for name in PASSED_ON:
        signal.signal(getattr(signal, name), pass_on)
    status = reply.readline()
    if not status:
        sys.exit("the warm process is gone, and this rank with it")
    code = os.waitstatus_to_exitcode(int(status))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
