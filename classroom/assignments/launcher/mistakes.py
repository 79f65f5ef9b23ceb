"""What students get wrong in Launcher."""

from classroom.engine.assignment import Mistake

START = "subprocess.Popen(command, env=told(rank, count, port))"
FREE = """\
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # 0: any that is free
        return probe.getsockname()[1]
"""
LAST = """\
            end(ranks, signal.SIGTERM, grace)
            return failed[0] if failed[0] > 0 else 128 - failed[0]
"""
CODES = """\
            failed = [rank.returncode for rank in ranks]
            return"""
MISTAKES = [
    Mistake(
        "local rank forgotten",
        "variables",
        [('"LOCAL_RANK": rank, ', "")],
        "fail: rank 0 expected LOCAL_RANK 0, got nothing",
    ),
    Mistake(
        "a port for each rank",
        "variables",
        [("told(rank, count, port)))", "told(rank, count, free_port())))")],
        "fail: rank 1 expected MASTER_PORT",
    ),
    Mistake(
        "nothing but the variables",
        "variables",
        [('return os.environ | words | {"M', 'return words | {"M')],
        "fail: rank 0 has lost the variables",
    ),
    Mistake(
        "one string for a shell",
        "variables",
        [
            (
                START,
                "subprocess.Popen(\n"
                '            "exec " + shlex.join(command[:6]) + " "\n'
                '            + " ".join(command[6:]),\n'
                "            env=told(rank, count, port), shell=True)",
            ),
            ("import signal\n", "import shlex\nimport signal\n"),
        ],
        "fail: rank 0 expected the words",
    ),
    Mistake(
        "back when the first is done",
        "waits",
        [
            (
                "        if codes == [0] * count:\n",
                "        if 0 in codes:\n            end(ranks, signal.SIGKILL, 0)\n",
            )
        ],
        "fail: rank 1 was not allowed to finish its work",
    ),
    Mistake(
        "starts them, and waits for all",
        "fails",
        [
            (
                "    while not caught:\n",
                "    for rank in ranks:\n        rank.wait()\n    return 0\n"
                "    while not caught:\n",
            )
        ],
        "fail: launch() expected to return 3, and does not return",
        also=("deaf", "asked"),
    ),
    Mistake(
        "looks at rank 0 alone",
        "fails",
        [("for code in codes if code]", "for code in codes[:1] if code]")],
        "fail: launch() expected to return 3, and does not return",
    ),
    Mistake(
        "the others are left",
        "fails",
        [(LAST, LAST.replace("end(ranks", "print(ranks"))],
        "fail: launch() has returned, and rank 0, rank 2 still runs",
    ),
    Mistake(
        "a signal is minus its number",
        "fails",
        [
            (
                "return failed[0] if failed[0] > 0 else 128 - failed[0]",
                "return failed[0]",
            )
        ],
        "fail: launch() expected to return 137, returned -9",
    ),
    Mistake(
        "the code of whom we have ended",
        "fails",
        [(LAST, LAST.replace("            return", CODES))],
        "fail: launch() expected to return 3, returned 5",
    ),
    Mistake(
        "asks only",
        "deaf",
        [
            (
                "            rank.kill()\n            rank.wait()\n",
                "            rank.wait()\n",
            )
        ],
        "fail: launch() expected to return 3, and does not return",
    ),
    Mistake(
        "no time to save",
        "deaf",
        [(LAST, LAST.replace("SIGTERM, grace", "SIGTERM, 0.1"))],
        "fail: rank 1 needed 0.7 s of the 1.5 s of grace",
    ),
    Mistake(
        "keeps the signal to itself",
        "asked",
        [("end(ranks, caught[0], grace)", "end(ranks, signal.SIGKILL, grace)")],
        "fail: rank 0 expected SIGTERM, and did not get it",
    ),
    Mistake(
        "Ctrl-C is forgotten",
        "asked",
        [("in signal.SIGTERM, signal.SIGINT:", "in [signal.SIGTERM]:")],
        "fail: launch() raises KeyboardInterrupt",
    ),
    Mistake(
        "all went well, since it was asked for",
        "asked",
        [("return 128 + caught[0]", "return 0")],
        "fail: launch() expected to return 143, returned 0",
    ),
    Mistake(
        "the port of old pages",
        "together",
        [(FREE, "    return 29500\n")],
        "fail: job ",
    ),
    Mistake(
        "holds the port",
        "together",
        [
            (
                FREE,
                '    probe = socket.create_server(("127.0.0.1", 0))\n'
                "    kept.append(probe)\n"
                "    return probe.getsockname()[1]\n",
            ),
            ("\ndef free_port():", "kept = []\n\n\ndef free_port():"),
        ],
        "fail: job 1: its rank 0 cannot open port",
    ),
    Mistake(
        "output into a pipe",
        "output",
        [(START, START.replace("port))", "port), stdout=subprocess.PIPE)"))],
        "fail: rank 0: of its 3 lines on stdout 3 are lost",
    ),
]
