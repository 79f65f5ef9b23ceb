# %% wrong: the port of old pages
# Every launch on the same port: the second one on a machine fails.
CHANGES = {
    "port = probe.getsockname()[1]": "port = 29500",
}


# %% wrong: largest code
# Returns the largest of all codes, not that of the first to fail.
CHANGES = {
    "max(failed, 1)": "max(rank.poll() or 0 for rank in ranks) or 1",
}


# %% wrong: kills at once
# No SIGTERM to the others, so they cannot put anything in order.
CHANGES = {
    "if rank.poll() is None:": "if rank.poll() is None and caught:",
    "while time.monotonic() < end and": "while caught and time.monotonic() < end and",
}


# %% wrong: a signal's code as Popen gives it
CHANGES = {
    "max(failed, 1)": "failed",
}


# %% wrong: always well
# Ends the ranks as it should, and says that all went well.
CHANGES = {
    "return 128 + caught[0] if caught else max(failed, 1)": "return 0",
}


# %% wrong: asks only
# SIGTERM and a wait: a rank that ignores it is waited for forever.
CHANGES = {
    "while time.monotonic() < end and None in": "while None in",
}


# %% wrong: leaves the others
# Returns when one has failed, and leaves the others where they are.
CHANGES = {
    "                rank.send_signal(caught[0] if caught else signal.SIGTERM)\n": (
        "                pass\n"
    ),
    "            rank.kill()\n            rank.wait()\n": "            pass\n",
}


# %% wrong: local rank forgotten
# RANK alone; a rank with a GPU would not know which.
CHANGES = {
    ' "LOCAL_RANK": rank,': "",
}


# %% wrong: the six variables and no others
# PATH, HOME and CUDA_VISIBLE_DEVICES are gone.
CHANGES = {
    "os.environ | told |": "told |",
}


# %% wrong: waits in turn
# Waits for rank 0, then for rank 1: a later one may fail, unheard.
CHANGES = {
    "codes = [rank.poll() for rank in ranks]": (
        "codes = [rank.wait() for rank in ranks]"
    ),
}


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
