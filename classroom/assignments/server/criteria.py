"""Assignment 6, Server: a parameter server, judged by scripts of pushes and leaves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Verdict, compare, fail

PROGRAMS = {"program": "server.py"}
WORDS = {"pushes": "{} pushes", "threads": "{} threads", "mode": "{}"}
WORDS |= {"bound": "a bound of {}", "length": "{} numbers"}
LENGTH, LR = 6, 0.125
REDRAWN = 50  # times, until a script asks for what matters
Event = tuple[str, int]
Answer = tuple[int, int, np.ndarray]  # trainer, version, weights


class Truth:
    """A server and its trainers in one process, one thing after the other."""

    def __init__(self, rig: Rig, ranks: int, mode: str, bound: int, seed: int):
        draw = rig.draw(seed)
        self.mode, self.bound = mode, bound
        self.targets = draw.normal(size=(ranks, LENGTH))
        self.start = self.weights = draw.normal(size=LENGTH)
        self.version = 0
        self.clocks = dict.fromkeys(range(1, ranks), 0)
        self.held = {t: (0, self.start) for t in self.clocks}
        self.waiting: list[int] = []
        self.ages: list[list[int]] = []

    def play(self, what: str, trainer: int) -> list[Answer]:
        """Let one thing happen; return who is answered."""
        if what == "leave":
            self.clocks.pop(trainer)
        else:
            self.clocks[trainer] += 1
            self.waiting.append(trainer)
            if self.mode != "synchronous":
                self.update([trainer])
        if self.mode == "synchronous":
            if not self.waiting or len(self.waiting) < len(self.clocks):
                return []
            self.update(sorted(self.waiting))
        last = min(self.clocks.values(), default=0)
        free = [
            t
            for t in sorted(self.waiting)
            if self.mode != "bounded" or self.clocks[t] - last <= self.bound
        ]
        self.waiting = [t for t in self.waiting if t not in free]
        self.held |= {t: (self.version, self.weights) for t in free}
        return [(t, self.version, self.weights) for t in free]

    def update(self, trainers: Sequence[int]) -> None:
        """Step along the mean of these trainers' gradients."""
        gradients = [self.held[t][1] - self.targets[t] for t in trainers]
        self.ages += [[t, self.version - self.held[t][0]] for t in trainers]
        self.weights = self.weights - LR * np.mean(gradients, 0)
        self.version += 1


def written(
    rig: Rig,
    ranks: int,
    mode: str,
    bound: int,
    pushes: int,
    seed: int,
    leaver: int | None = None,
) -> list[Event]:
    """Return a script that this mode allows; a leaver goes when all others wait for it.

    If that can be, a push answers everybody at once, and, of three trainers, one that
    comes later goes on before one that waits; or there is a leave.
    """
    draw = rig.draw(seed)
    for _ in range(REDRAWN):
        truth, answered = Truth(rig, ranks, mode, bound, seed), [0]
        overtaken = mode != "bounded" or ranks < 4
        script: list[Event] = []
        while len(script) < pushes:
            free = [t for t in truth.clocks if t not in truth.waiting]
            if free == [leaver] and len(script) >= pushes // 2:
                event = "leave", free[0]
            else:
                # The first ones are the fast ones.
                event = "push", free[int(len(free) * draw.random() ** 2)]
            script.append(event)
            answered.append(len(truth.play(*event)))
            overtaken |= bool(answered[-1] and truth.waiting)
        all_at_once = leaver is None and max(answered) == ranks - 1
        if ("leave", leaver) in script or all_at_once and overtaken:
            break
    return script


def followed(
    outcome: Outcome, truth: Truth, script: list[Event], weighed: bool = True
) -> Verdict:
    """Compare with the truth, event by event: who is answered, and with what."""
    first = outcome.outputs[0]
    outcome.must_give("done")
    if missing := {"course", "told"} - first.keys():
        return fail(f"rank 0 ended before it had given {', '.join(sorted(missing))}")
    course = iter(first["course"])
    for number, (what, trainer) in enumerate(script, 1):
        got = list(iter(lambda: next(course, None), None))
        expected = truth.play(what, trainer)
        where = f"after event {number} ({what}, trainer {trainer})"
        names, told = [t for t, *_ in expected], [t for _, t, _ in got]
        if told != names:
            return fail(f"{where} trainers {names} expect an answer, {told} got one")
        for (t, version, weights), (place, _, version_told) in zip(
            expected, got, strict=True
        ):
            if weighed and version_told != version:
                return fail(f"{where} version {version} expected, got {version_told}")
            words = compare(t, weights, first["told"][place], rtol=1e-9, atol=1e-12)
            if weighed and words:
                return fail(f"{where} {words}")
    return PASS


def _scripted(
    rig: Rig,
    mode: str,
    *,
    ranks: int,
    pushes: int,
    bound: int = 0,
    seed: int = 0,
    leaver: int | None = None,
    weighed: bool = True,
) -> tuple[Verdict, dict, Truth]:
    """Write a script and play it; return the verdict, rank 0's facts and the truth."""
    script = written(rig, ranks, mode, bound, pushes, seed, leaver)
    truth = Truth(rig, ranks, mode, bound, seed)
    same = {"mode": mode, "bound": bound, "script": script, "lr": LR, "threads": 0}
    given = [{"target": t, "weights": truth.start, **same} for t in truth.targets]
    outcome = rig.run(ranks, given)
    return followed(outcome, truth, script, weighed), outcome.outputs[0], truth


def synchronous(rig: Rig, **case: Any) -> Verdict:
    """Synchronous: when all have pushed, one step along the mean; all are answered."""
    return _scripted(rig, "synchronous", **case)[0]


def asynchronous(rig: Rig, *, threads: int = 0, **case: Any) -> Verdict:
    """Asynchronous: a step for each gradient, and an answer at once; so many threads
    lose nothing.
    """
    if threads:
        return _storm(rig, "asynchronous", threads=threads, **case)
    return _scripted(rig, "asynchronous", **case)[0]


def staleness(rig: Rig, *, pushes: int, **more: Any) -> Verdict:
    """`ages` tells whose each gradient was, and how many updates it has missed."""
    more |= {"pushes": pushes, "bound": pushes}
    verdict, first, truth = _scripted(rig, "bounded", weighed=False, **more)
    if verdict.state != "pass":
        return verdict
    ages = first.get("ages")
    if ages != truth.ages:
        return fail(f"ages: expected {truth.ages}, got {ages}")
    return PASS


def bounded(rig: Rig, *, threads: int = 0, **case: Any) -> Verdict:
    """Who is more than `bound` steps ahead of the slowest waits, and nobody else; many
    threads lose nothing.
    """
    if threads:
        return _storm(rig, "bounded", threads=threads, **case)
    return _scripted(rig, "bounded", **case)[0]


def leaving(rig: Rig, *, ranks: int, **more: Any) -> Verdict:
    """Nobody waits for a trainer that has left."""
    more |= {"ranks": ranks, "leaver": ranks - 1}
    return _scripted(rig, "synchronous", weighed=False, **more)[0]


def snapshots(rig: Rig, *, pushes: int, **more: Any) -> Verdict:
    """Weights that were given out, or brought, never change again."""
    more |= {"pushes": pushes, "bound": pushes}
    verdict, first, truth = _scripted(rig, "bounded", weighed=False, **more)
    if verdict.state != "pass":
        return verdict
    if compare(0, truth.start, first.get("brought")):
        return fail("the tensor that Server was made with has been changed")
    if compare(0, first["told"], first.get("after")):
        return fail("weights of an earlier answer have been changed by a later update")
    return PASS


def threads(rig: Rig, *, threads: int, pushes: int, **more: Any) -> Verdict:
    """Pushes that come at the same time lose nothing."""
    more |= {"threads": threads, "pushes": pushes}
    # Nobody is ever that far ahead.
    return _storm(rig, "bounded", bound=threads * pushes, **more)


def _storm(
    rig: Rig,
    mode: str,
    *,
    ranks: int,
    threads: int,
    pushes: int,
    bound: int = 0,
    length: int = 100_000,
    seed: int = 0,
) -> Verdict:
    """Let many threads push with all speed, in a mode in which each push is a step."""
    brought = rig.draw(seed).integers(1, 10, (threads, length)).astype(np.int8)
    given: dict = {"target": np.zeros(1), "weights": np.zeros(1), "threads": threads}
    given |= {"pushes": pushes, "brought": brought, "mode": mode, "bound": bound}
    outcome = rig.run(ranks, given, timeout=40)
    first = outcome.outputs[0]
    outcome.must_give("done")
    count = threads * pushes
    at_once = mode == "asynchronous" or bound >= count
    if at_once and first.get("versions") != list(range(1, count + 1)):
        return fail(f"{count} pushes should make the versions 1 to {count}, each once")
    expected = -pushes * brought.astype(np.float64).sum(0)
    if words := compare(0, expected, first.get("weights")):
        return fail(f"after {count} pushes the weights lack some of them: {words}")
    return PASS


CRITERIA = named(
    synchronous, asynchronous, staleness, bounded, leaving, snapshots, threads
)
