"""What students get wrong in Server."""

from classroom.engine.assignment import Mistake

LOCKED = "        with self.lock:\n            self.clocks[trainer] += 1\n"
WOKEN = """for trainer in list(self.waiting)[-1 if self.mode == "bounded" else 0 :]:"""
MISTAKES = [
    Mistake("the sum", "synchronous", [(".mean(0)", ".sum(0)")]),
    Mistake(
        "the last one alone",
        "synchronous",
        [
            (
                "            self.update(self.round)",
                "            self.update(self.round[-1:])",
            )
        ],
    ),
    Mistake(
        "all wait in every mode",
        "asynchronous",
        [
            (
                'if self.mode != "bounded" or ahead',
                'if self.mode == "synchronous" or ahead',
            )
        ],
    ),
    Mistake(
        "an age too much",
        "staleness",
        [
            (
                "        self.ages += [[t, self.version - v] for t, v, _ in pushed]\n",
                "",
            ),
            (
                "        self.version += 1\n",
                "        self.version += 1\n"
                "        self.ages += [[t, self.version - v] for t, v, _ in pushed]\n",
            ),
        ],
    ),
    Mistake(
        "ages by the trainer's own clock",
        "staleness",
        [("[t, self.version - v] for", "[t, self.clocks[t] - 1] for")],
    ),
    Mistake("one step too strict", "bounded", [("<= self.bound", "< self.bound")]),
    Mistake("one step too late", "bounded", [("<= self.bound", "<= self.bound + 1")]),
    Mistake(
        "ahead of the mean",
        "bounded",
        [
            (
                "slowest = min(self.clocks.values(), default=0)",
                "slowest = sum(self.clocks.values()) / max(1, len(self.clocks))",
            )
        ],
    ),
    Mistake(
        "nobody is woken",
        "bounded",
        [
            (
                "for trainer in list(self.waiting):",
                WOKEN,
            )
        ],
    ),
    Mistake(
        "the leaver is still slow",
        "leaving",
        [("            del self.clocks[trainer]\n", "            pass\n")],
    ),
    Mistake(
        "the others are not told",
        "leaving",
        [
            (
                "            del self.clocks[trainer]\n            self.go_on()\n",
                "            del self.clocks[trainer]\n",
            )
        ],
    ),
    Mistake(
        "in place",
        "snapshots",
        [
            (
                "self.weights = self.weights - self.lr * mean",
                "self.weights -= self.lr * mean",
            )
        ],
    ),
    Mistake(
        "no lock",
        "threads",
        [(LOCKED, LOCKED.replace("with self.lock", "if self.lock"))],
        also=("asynchronous", "bounded"),
    ),
    Mistake(
        "a lock too late",
        "threads",
        [
            (LOCKED, LOCKED.replace("with self.lock", "if self.lock")),
            (
                "                self.update([(trainer, version, gradient)])\n"
                "            self.go_on()\n",
                "                self.update([(trainer, version, gradient)])\n"
                "            with self.lock:\n"
                "                self.go_on()\n",
            ),
        ],
        also=("asynchronous", "bounded"),
    ),
]
