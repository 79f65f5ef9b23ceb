"""Assignment 7, Shard: an optimizer whose state is dealt out to the ranks.

The ranks begin with different parameters and have different gradients, so that each
number has a past of its own on every rank. The truth is one unsharded optimizer for
each of these pasts; whose past a number has had, that rank has kept its state.
"""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from classroom.assignments.beside.wired import wired
from classroom.assignments.shard.harness import INNER, Training, made_up, pieces
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig
from classroom.engine.verdict import PASS, Decided, Verdict, compare, fail

PROGRAMS = {"program": "shard.py"}
WORDS = {
    "shapes": "parameters {}",
    "inner": "{}",
    "steps": "{} steps",
    "added": "{} added",
    "changes": "[step, group, option, value] {}",
    "gamma": "a scheduler with {}",
    "frozen": "{} frozen",
    "without": "no gradient at [step, parameter] {}",
    "zeros": "a gradient of zeros at [step, parameter] {}",
    "saved": "the state after {} steps",
    "loaded": "loaded after {} steps",
    "million": "{} million numbers",
}
OPTIONS: dict[str, dict] = {
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9},
}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}  # absolute and relative
WIRE_SLACK = 0.05  # of the bytes that are needed
GROWTH = 1_000_000  # bytes by which a process grows anyway
PIECE = 25_000  # numbers of a parameter, where there are many of them
SILENCE = 40  # seconds of silence; on a busy machine many messages take their time


class Case:
    """The inputs of one run, drawn by `seed`, and the truth. What is not named here is
    another input of the harness; see its `main`.
    """

    def __init__(
        self,
        rig: Rig,
        *,
        ranks: int,
        shapes: Sequence[Sequence[int]],
        steps: int,
        inner: str = "AdamW",
        seed: int = 0,
        **more: object,
    ):
        draw = rig.draw(seed)
        self.ranks, self.steps, self.inner = ranks, steps, inner
        self.sizes = [int(np.prod(shape)) for shape in shapes]
        self.given: dict = {"shapes": shapes, "dtype": "float64", "inner": inner}
        self.given |= {"steps": steps, "options": OPTIONS[inner], "frozen": []}
        every = {"at": 0, "params": [*range(len(shapes))], "options": {}}
        self.given |= {"groups": [every], "gamma": None, "save": False}
        self.given |= {"weigh": False, "resume": False, "plain": False, "zeros": []}
        self.given |= {"without": [[]] * steps, "changes": [[]] * steps} | more
        self.given |= {"common": int(draw.integers(2**62))}
        self.seeds = [int(seed) for seed in draw.integers(2**62, size=ranks)]
        self.numbers = np.repeat(np.arange(len(shapes)), self.sizes)
        # By number of a parameter: before which step it comes to the optimizer.
        groups = self.given["groups"]
        self.since = {i: group["at"] for group in groups for i in group["params"]}

    def run(self, rig: Rig, checkpoint: dict | None = None) -> Outcome:
        """Let the student's program do it; decide the case if it does not."""
        given = [
            self.given | {"seed": seed} | (checkpoint or {}) for seed in self.seeds
        ]
        outcome, self.diary = wired(rig, given, SILENCE)
        outcome.must_give("params")
        return outcome

    def alone(self, rank: int, load: dict | None = None) -> tuple[np.ndarray, dict]:
        """Unsharded, with what this rank has: parameters by step, and the state."""
        training = Training(self.given | {"seed": self.seeds[rank]})
        inner = INNER[self.inner]
        optimizer = inner(training.groups(0), **self.given["options"])
        if self.given["resume"]:
            load = made_up(inner(training.groups(0), **self.given["options"]))
        if load:
            optimizer.load_state_dict(deepcopy(load))  # it goes on with these tensors
        rows = list(training.take(optimizer))
        rows = rows[-1:] if self.given["weigh"] else rows  # after the last step
        return np.array(rows), optimizer.state_dict()

    def begun(self) -> np.ndarray:
        """By step and number: whether it has come to the optimizer, and is trained."""
        steps = range(self.steps)[-1:] if self.given["weigh"] else range(self.steps)
        trained = [i not in self.given["frozen"] for i in range(len(self.sizes))]
        rows = [
            [trained[i] and since <= step for i, since in sorted(self.since.items())]
            for step in steps
        ]
        return np.repeat(np.array(rows), self.sizes, axis=1)


class Truth:
    """What the ranks should hold, and which of them has made it, where each optimizer
    begins with the state `load`.
    """

    def __init__(self, case: Case, load: dict | None = None):
        self.case = case
        found = [case.alone(rank, load) for rank in range(case.ranks)]
        self.rows = np.array([rows for rows, _ in found])  # (ranks, steps, numbers)
        self.states = [state for _, state in found]
        self.tolerance = TOLERANCE[case.given["dtype"]]

    def near(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.abs(a - b) <= self.tolerance * (1 + np.abs(b))

    def owners(self, outcome: Outcome) -> np.ndarray:
        """Return the rank that has kept each number's state; -1: nobody needs to.

        A rank is the owner if all ranks, after every step, hold what an unsharded
        optimizer makes of this rank's gradients. Without one the case is decided.
        """
        begun, expected = self.case.begun(), self.rows[0]
        for rank, given in enumerate(outcome.outputs):
            if words := compare(rank, expected, given["params"], atol=np.inf):
                raise Decided(fail(words))
        got = np.array([given["params"] for given in outcome.outputs])
        # What is frozen, or has not come yet, is as it was on each rank.
        touched = ~begun & (got != self.rows)
        if touched.any():
            rank, step, place = np.argwhere(touched)[0]
            words = "frozen, or not yet in a group, and has changed"
            words = f"{self.place(step, place)} is {words} on rank {rank}"
            raise Decided(fail(words))
        for rank in range(1, self.case.ranks):
            if (apart := begun & ~self.near(got[rank], got[0])).any():
                step, place = np.argwhere(apart)[0]
                told = f"rank 0 holds {got[0, step, place]:.9g}"
                told += f", rank {rank} {got[rank, step, place]:.9g}"
                raise Decided(fail(f"{self.place(step, place)}: {told}"))
        fits = self.near(got[0], self.rows) | ~begun  # by rank whose past it would be
        for step in range(len(expected)):
            if (strange := ~fits[:, : step + 1].all(1).any(0)).any():
                place = int(np.flatnonzero(strange)[0])
                raise Decided(self.strange(step, place, got))
        return np.where(begun.any(0), fits.all(1).argmax(0), -1)

    def strange(self, step: int, place: int, got: np.ndarray) -> Verdict:
        """Say that a number is nobody's."""
        values = enumerate(self.rows[:, step, place])
        told = ", ".join(f"{value:.9g} (rank {rank})" for rank, value in values)
        told = f"expected one of {told}, by whose gradients it is"
        return fail(f"{self.place(step, place)}: {told}; got {got[0, step, place]:.9g}")

    def place(self, step: int, place: int) -> str:
        number = self.case.numbers[place]
        first = int(np.flatnonzero(self.case.numbers == number)[0])
        step += self.case.steps - len(self.rows[0])
        return f"after step {step}, number {place - first} of parameter {number}"


# --- criteria ---


def equal(rig: Rig, **given: Any) -> Verdict:
    """After every step all ranks hold what the unsharded optimizer would make."""
    case = Case(rig, plain="groups" not in given, **given)
    Truth(case).owners(case.run(rig))
    return PASS


def shares(
    rig: Rig,
    *,
    ranks: int,
    shapes: list[list[int]],
    added: Sequence[list[int]] = (),
    **more: Any,
) -> Verdict:
    """No rank moves more numbers than the mean of all ranks and the largest parameter.

    Told by whose gradients the numbers have followed, in two steps.
    """
    first = len(shapes)
    groups = [{"at": 0, "params": [*range(first)], "options": {}}]
    for place in range(first, first + len(added)):  # each in a group of its own
        groups.append({"at": 1, "params": [place], "options": {}})
    more |= {"groups": groups, "steps": 2}
    case = Case(rig, ranks=ranks, shapes=[*shapes, *added], **more)
    owners = Truth(case).owners(case.run(rig))
    counts = np.bincount(owners[owners >= 0], minlength=ranks).tolist()
    trained = np.bincount(case.numbers[owners >= 0])
    most = sum(trained) / ranks + max(trained)
    if max(counts) > most:
        told = f"at most {most:,.0f} numbers to a rank, by rank {counts}"
        return fail(f"expected {told}")
    return PASS


def memory(rig: Rig, *, ranks: int, **size: Any) -> Verdict:
    """Between two steps no rank keeps more than its share of the state, and one copy of
    all parameters.
    """
    return _kept(rig, ranks, 1, **size)


def lean(rig: Rig, *, ranks: int, **size: Any) -> Verdict:
    """Between two steps no rank keeps more than its share of the state, and a copy of
    its share of the parameters.
    """
    return _kept(rig, ranks, 1 / ranks, **size)


def resumed(rig: Rig, *, ranks: int, **size: Any) -> Verdict:
    """No rank keeps the whole state that it has loaded, nor that which it has saved."""
    return _kept(rig, ranks, 1, resume=True, **size)


def _kept(
    rig: Rig,
    ranks: int,
    copies: float,
    *,
    million: float,
    seed: int = 0,
    resume: bool = False,
) -> Verdict:
    """Let each rank grow by its share of what AdamW remembers, and by so many `copies`
    of all parameters.

    Counted is what the system gave to the process.
    """
    shapes = [[PIECE]] * round(million * rig.draw(seed).uniform(0.8, 1.2) * 1e6 / PIECE)
    more: dict = {"ranks": ranks, "shapes": shapes, "seed": seed, "steps": 3}
    case = Case(rig, dtype="float32", weigh=True, resume=resume, **more)
    outcome = case.run(rig)
    Truth(case).owners(outcome)
    # Of each number AdamW remembers two; shares differ by one parameter.
    most = 4 * ((2 / ranks + copies) * sum(case.sizes) + 3 * PIECE) + GROWTH
    for rank, events in enumerate(outcome.events):
        begun, after = (event for event in events if event["what"] == "weigh")
        what = "tensors" if begun["memory"] is None else "memory"  # no Linux
        if (kept := after[what] - begun[what]) > most:
            told = f"keeps {kept / 1e6:,.1f} MB from step to step"
            return fail(f"rank {rank} {told}, expected at most {most / 1e6:,.1f}")
    return PASS


def wire(rig: Rig, *, ranks: int, million: float, seed: int = 0) -> Verdict:
    """A step sends each parameter once to each other rank, and nothing else of size."""
    shapes = [[PIECE]] * round(million * 1e6 / PIECE)
    more: dict = {"ranks": ranks, "shapes": shapes, "seed": seed, "steps": 3}
    case = Case(rig, inner="SGD", dtype="float32", **more)
    outcome = case.run(rig)
    Truth(case).owners(outcome)
    needed = case.steps * (ranks - 1) * 4 * sum(case.sizes)
    sent = sum(on_behalf(event, ranks) for event in case.diary)
    if sent > (1 + WIRE_SLACK) * needed:
        told = f"{sent / 1e6:,.1f} MB go over the wire in {case.steps} steps"
        return fail(f"{told}, expected {needed / 1e6:,.1f} = steps · (n - 1) · S")
    return PASS


def on_behalf(event: dict, ranks: int) -> float:
    """Return the bytes for which an entry of the machine's diary stands: one rank's
    part in a call, or all messages from one rank to another.
    """
    if event["what"] == "messages":
        return event["bytes"]
    if event["what"] != "call":
        return 0
    name, size = event["about"], event["bytes"]
    if name == "all_gather":
        return size * (ranks - 1)  # its own piece goes to everybody
    return size * (ranks - 1) / ranks * (2 if name == "all_reduce" else 1)


def groups(
    rig: Rig,
    *,
    shapes: list[list[int]],
    added: Sequence[list[int]] = (),
    changes: Sequence[list] = (),
    inner: str = "AdamW",
    **more: Any,
) -> Verdict:
    """Groups have options of their own, which may change, and new groups may come."""
    bounds = [0, len(shapes) // 2, len(shapes), len(shapes) + len(added)]
    by_group = [[*range(a, b)] for a, b in pairwise(bounds)]
    groups = [
        {"at": at, "params": params, "options": {"lr": OPTIONS[inner]["lr"] * faster}}
        for at, params, faster in zip((0, 0, 2), by_group, (1, 3, 2), strict=True)
        if params
    ]
    by_step = [[c[1:] for c in changes if c[0] == step] for step in range(5)]
    more |= {"groups": groups, "changes": by_step, "inner": inner, "steps": 5}
    return equal(rig, shapes=[*shapes, *added], **more)


def odd(rig: Rig, *, without: Sequence[list[int]] = (), **given: Any) -> Verdict:
    """What is frozen, or has no gradient, stays; zeros are a gradient like any other. A
    rank may own no parameter.
    """
    by_step = [[i for at, i in without if at == step] for step in range(4)]
    return equal(rig, without=by_step, steps=4, **given)


def checkpoint(
    rig: Rig,
    *,
    ranks: int,
    shapes: list[list[int]],
    inner: str,
    saved: int = 0,
    loaded: int = 0,
    frozen: Sequence[int] = (),
    seed: int = 0,
) -> Verdict:
    """Rank 0 gets the whole state, as of one process; any number of ranks loads it."""
    halves = [*range(0, len(shapes), 2)], [*range(1, len(shapes), 2)]
    groups = [{"at": 0, "params": half, "options": {}} for half in halves]
    # The last parameter has no gradient, and so no state.
    without = [[len(shapes) - 1]] * (saved or loaded)
    more: dict = {"groups": groups, "without": without, "frozen": frozen}
    more |= {"shapes": shapes, "inner": inner, "steps": saved or loaded}
    case = Case(rig, ranks=ranks, seed=seed, save=bool(saved), **more)
    if saved:
        return _same_state(case, Truth(case), case.run(rig))
    # One process has taken some steps, and with other options than it now begins with.
    one = Case(rig, ranks=1, seed=seed + 1000, **more)
    one.given["options"] = OPTIONS[inner] | {"lr": OPTIONS[inner]["lr"] / 2}
    state = one.alone(0)[1]
    Truth(case, state).owners(case.run(rig, pieces(state)))
    return PASS


def _same_state(case: Case, truth: Truth, outcome: Outcome) -> Verdict:
    """Compare rank 0's whole state with the owners' in the unsharded optimizers."""
    owners = truth.owners(outcome)
    expected, given = pieces(truth.states[0]), outcome.outputs[0]
    if "names" not in given:
        return fail("rank 0 ended before it had given its state_dict()")
    names = [f"{n} of parameter {i}" for i, n in expected["names"]]
    got = [f"{n} of parameter {i}" for i, n in given["names"]]
    if sorted(names) != sorted(got):
        return fail(f"state: expected {', '.join(names)}; got {', '.join(got)}")
    for number, name in expected["names"]:
        by_rank = [state["state"][number][name] for state in truth.states]
        values = np.array([torch.as_tensor(value).numpy() for value in by_rank])
        if values[0].ndim:
            order = [i for group in case.given["groups"] for i in group["params"]]
            mine = owners[case.numbers == order[number]].reshape(values[0].shape)
            values = np.take_along_axis(values, mine[None], 0)
        words = compare(0, values[0], given[f"{number}:{name}"], rtol=1e-7, atol=1e-7)
        if words:
            return fail(f"{name} of parameter {number}: {words}")
    return _same_groups(truth.states[0]["param_groups"], given["saved_groups"])


def _same_groups(expected: list[dict], got: list[dict]) -> Verdict:
    """Compare the options, as JSON knows them."""
    for place, group in enumerate(expected):
        for name, value in group.items():
            value = list(value) if isinstance(value, tuple) else value
            found = got[place].get(name) if place < len(got) else None
            if found != value:
                told = f"{name} {value}, got {found}"
                return fail(f"param_groups[{place}]: expected {told}")
    return PASS


CRITERIA = named(equal, shares, memory, lean, wire, groups, odd, checkpoint, resumed)
