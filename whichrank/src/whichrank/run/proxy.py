"""Stand in for `python ARGUMENTS...`: start that program elsewhere, and be its proxy.

    python -IS proxy.py SOCKET ARGUMENTS...

The fork server at SOCKET forks the program (see fork_server.py). With `-` for a SOCKET
it is started the plain way. It gets our arguments,
environment, folder and standard streams; we pass signals on to it and end as it ends.
If we are killed, the closed connection tells the fork server to kill it.

SIGTERM is passed on late. A rank that fails leaves the group first and writes its
traceback afterwards; its neighbors notice at once, and torchrun, which sees them fail,
would end it before it has said why.

A rank's proxy leaves exit.json in the rank's log folder (see program.py):

    code    the exit code, negative for a signal; null if the rank was asked to end and
            torchrun killed this proxy before it did
    time    when the end was seen, in seconds since the epoch
    asked   when torchrun's request to end reached, or would have reached, the rank;
            false if it ended before anybody asked

and where.json: its rank, its local rank, the world size, and when it was started. On
one of several nodes the log folder is moved to `lives` beside torchrun's
own, which keeps a link to it: torchrun removes what an earlier attempt of the same
number has left.

This file is started once for each rank, so it imports little: `signal` and `socket`
themselves would double the 15 ms that it costs, because they import enum.
"""

import _signal as signal
import _socket as socket
import os
import sys
import time
from _collections_abc import Iterator

PASSED_ON = (
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGABRT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
ASKS_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
WORD = 100  # bytes of exit.json
NODE = "WHICHRANK_NODE"  # which of several nodes this is: see channels.py
WHERE = {
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "world_size": "WORLD_SIZE",
}
SIGTERM_DELAY = 1.0  # seconds between torchrun's SIGTERM and ours


def main() -> None:
    """Have the program started, wait for its end, and end the same way."""
    path, *argv = sys.argv[1:]
    folder = say_where(log_folder())
    write(folder, "", "part")
    wait = spawn(argv) if path == "-" else ask(path, argv)
    pid = next(wait)
    asked, ended = 0.0, False

    def note_asked(number: int, delay: float = 0.0) -> None:
        nonlocal asked
        if number in ASKS_TO_END and not asked and not ended:
            asked = time.time() + delay
            leave_word(folder, "null", asked)

    def pass_on(number: int, frame: object) -> None:
        note_asked(number)
        try:
            os.kill(pid, signal.SIGTERM if number == signal.SIGALRM else number)
        except ProcessLookupError:
            pass

    def pass_on_late(number: int, frame: object) -> None:
        note_asked(number, SIGTERM_DELAY)
        signal.setitimer(signal.ITIMER_REAL, SIGTERM_DELAY)

    for number in (*PASSED_ON, signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, pass_on)
    if folder:
        signal.signal(signal.SIGTERM, pass_on_late)
    code = os.waitstatus_to_exitcode(next(wait))
    ended = True  # or a signal would write the same file while we do
    leave_word(folder, str(code), asked)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def leave_word(folder: str, code: str, asked: float) -> None:
    """Write exit.json into the rank's log folder, if we stand for a rank."""
    since = f"{asked:.6f}" if asked else "false"
    word = f'{{"code": {code}, "time": {time.time():.6f}, "asked": {since}}}'
    write(folder, word, "json")


def log_folder() -> str:
    """Return the rank's log folder; "" if we stand for no rank."""
    folder = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", ""))
    return folder if folder and os.path.exists(f"{folder}/stdout.log") else ""


def say_where(folder: str) -> str:
    """Write where.json into a rank's log folder; return where the folder lies then."""
    node = os.environ.get(NODE)
    if not folder:
        return ""
    start = time.time()
    words = [f'"{key}": {os.environ.get(name, 0)}' for key, name in WHERE.items()]
    words += [f'"node": {node or 0}', f'"start": {start:.6f}']
    shares = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    words += [f'"shares_store": {str(shares).lower()}']
    try:
        with open(f"{folder}/where.json", "w") as file:
            file.write(f"{{{', '.join(words)}}}")
        if not node:
            return folder
        lives = os.path.normpath(f"{folder}/../../../lives")
        os.makedirs(lives, exist_ok=True)
        life = f"{lives}/{start:.6f}_{os.path.basename(folder)}"
        os.rename(folder, life)
        os.symlink(life, folder)
    except OSError:  # a full disk, say
        return folder
    return life


def write(folder: str, word: str, ending: str) -> None:
    """Write exit.part, which reserves room on the disk, or make it exit.json."""
    if not folder:
        return
    old = f"{folder}/exit.json"
    path = old if os.path.exists(old) else f"{folder}/exit.part"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.write(file, word.ljust(WORD).encode())  # at once, or not at all
        os.close(file)
        os.replace(path, f"{folder}/exit.{ending}")
    except OSError:
        pass  # the folder has gone, say


def ask(path: str, argv: list[str]) -> Iterator[int]:
    """Have the fork server at `path` fork the program; yield its pid, then its end."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    variables = [name + b"=" + value for name, value in os.environb.items()]
    parts = [os.getcwdb(), str(len(argv)).encode(), *map(os.fsencode, argv), *variables]
    data = b"\0".join(parts)  # none of them can hold a zero
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    # The streams travel with the first message only.
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
    connection.sendmsg([len(data).to_bytes(8, "big")], rights)
    connection.sendall(data)
    reply = os.fdopen(connection.detach(), "r")
    yield int(reply.readline())
    status = reply.readline()
    if not status:
        sys.exit("the fork server is gone, and this program with it")
    yield int(status)


def spawn(argv: list[str]) -> Iterator[int]:
    """Start the program with a Python of its own; yield its pid, then its end."""
    rank = os.path.join(os.path.dirname(__file__), "rank.py")
    command = [sys.executable, "-u", rank, *argv]
    # A process group of its own, because torchrun signals a rank's whole group.
    pid = os.posix_spawn(command[0], command, os.environ, setpgroup=0)
    yield pid
    yield os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    main()
