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
