"""Every channel between the processes of a run: who writes, who reads.

The files that a run leaves have names of their own (record/names.py), and who talks to
whom over a socket tells launch.py, as it does who ends whom. This file imports nothing
of ours. proxy.py and guard.py, which are started often and alone, repeat what they
need; a test compares.
A caller's place (place.py), which plays nodes, say, writes and reads as ours do.

In the environment:

    RUN          guard.py, for what it starts     guard.py, to find what is of a run;
                                                  fork_server.py, to end it
    NODE         on_node.py, a caller's place     proxy.py, for where.json; program.py,
                                                  to keep it from the program
    HOME         here.py, if there is no torchrun program.py: where to leave word
    PYTHON_EXEC  here.py, on_node.py              torchrun: how to start a rank
    ERROR_FILE   torchrun, in a rank's folder     proxy.py, program.py and jobs.py, for
                                                  the folder
    LENT         `Warm.lend`: its folder          the `Warm` of a process below
    COLD_ONLY    the user                         warm.py: no warm start
    NNODES       the user, in a SLURM job         step.py: shares ranks between nodes

In RLIMIT_RTTIME, which limits no program and stays whatever a process does:

    soft limit   guard.py: the run                guard.py; fork_server.py gives it to
                                                  the fork that stands for a process
    hard limit   a caller's place: the node       the same

By a signal:

    TELL         told.py, if py-spy sees nothing  answers.py: where its threads stand

In a command:

    NO_JOB       who starts what is no job        jobs.py: neither is what that starts

In the folder of a fork server:

    SOCKET       fork_server.py                   proxy.py, to ask for a fork
    READY        fork_server.py                   the `Warm` that waits for its imports
    SERVES       the `Warm` that has started it   one that it is lent to
"""

import signal

RUN = "WHICHRANK_RUN"
NODE = "WHICHRANK_NODE"
HOME = "WHICHRANK_HOME"
PYTHON_EXEC = "PYTHON_EXEC"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
LENT = "WHICHRANK_WARM"
COLD_ONLY = "WHICHRANK_COLD"
NNODES = "WHICHRANK_NNODES"

TELL = getattr(signal, "SIGRTMAX", 1) - 1
"""A real-time signal that nobody uses; 0 where there is none. SIGTERM is not enough: a
framework takes it for its own, as Lightning does."""

NO_JOB = "--no-job"

SOCKET, READY, SERVES = "socket", "ready", "serves"
