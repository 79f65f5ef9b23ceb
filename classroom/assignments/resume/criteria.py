"""Assignment 3, Resume: a training that goes on after any death, equal in every bit.

Each case is two lives or more, every one a run; between them the judge holds the folder
and can damage it. What the weights should be is computed here, in one process.

At drawn steps of each life, the first among them, the weights get a push that no seed
and no number of steps can give again: what is not in a checkpoint is lost.
"""

import copy
import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from classroom.assignments.beside.serial import as_in_a_rank
from classroom.assignments.resume.harness import digest
from classroom.engine.assignment import named
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import PASS, Decided, Verdict, fail

PROGRAMS = {"program": "resume.py"}
WORDS = {
    "steps": "{} steps",
    "stop": "stopped after {}",
    "save_every": "saved every {}",
    "epoch": "epochs of {}",
    "deaths": "{}",
    "dies": "rank {} dies in a save",
    "changes": "before its changes 1 to {} of the folder",
    "step": "dies in the save of step {}",
    "byte": "at byte {} of a file",
    "file": "{} file of the newest checkpoint",
    "harm": "{}",
    "then": "started again with {}",
}
BATCH, FEATURES = 4, 16
PARAMETERS = 64 * FEATURES + 64 + 64 * 64 + 64 + 64 + 1
KILLED, CUT_OFF = -9, -25  # SIGKILL, SIGXFSZ
PUSH = 0.01  # the standard deviation of what is added to each weight
PUSHED, AMONG = 3, 6  # of the first six steps of a life, three
HOLE = 512  # bytes: a sector of a disk
ONE_BY_ONE = 4  # files of a checkpoint that are damaged one by one
PLAIN = {"shuffle": False, "momentum": 0.0, "warm_up": 1, "dropout": 0.0, "jitter": 0.0}
"""Most criteria ask for one thing: what is switched off here may be forgotten there."""
ALL = {"shuffle": True, "momentum": 0.9, "warm_up": 50, "dropout": 0.3, "jitter": 0.2}
Harm = Callable[[bytes, np.random.Generator], bytes | None]
"""Given what a file holds, what is there instead; None: no file."""


def hole(at: float, filled: Callable[[bytes, np.random.Generator], bytes]) -> Harm:
    """Return a harm that keeps the length: a block at this part of the file."""

    def harm(whole: bytes, draw: np.random.Generator) -> bytes:
        size = min(HOLE, len(whole) // 3)
        start = int(at * (len(whole) - size))
        old = whole[start : start + size]
        return whole[:start] + filled(old, draw) + whole[start + size :]

    return harm


def wrong_bits(whole: bytes) -> bytes:
    return bytes(byte ^ (n % 500 == 99) for n, byte in enumerate(whole))


HARM: dict[str, Harm] = {
    "half of it is left": lambda whole, _: whole[: len(whole) // 2],
    "all but the last byte is left": lambda whole, _: whole[:-1],
    "it is empty": lambda whole, _: b"",
    "it is gone": lambda whole, _: None,
    "zeros in it": hole(0.3, lambda old, _: bytes(len(old))),
    "other bytes in it": hole(0.3, lambda old, draw: draw.bytes(len(old))),
    "other bytes near its start": hole(0.1, lambda old, draw: draw.bytes(len(old))),
    "other bytes in its last third": hole(0.75, lambda old, draw: draw.bytes(len(old))),
    "wrong bits all over it": lambda whole, _: wrong_bits(whole),
}
Pushes = dict[int, np.ndarray]
"""By step, counted from 1, what is added to the weights after it, (PARAMETERS,)."""


@as_in_a_rank()
def truth(ranks: int, job: dict, pushes: Pushes) -> tuple[list[str], np.ndarray]:
    """Train without a stop, as the given program does, rank by rank.

    Returns:
        The digest of the weights before each step, and the last weights.
    """
    seed, count = job["seed"], job["epoch"] * ranks * BATCH
    torch.manual_seed(seed)
    hidden = nn.Linear(FEATURES, 64), nn.ReLU(), nn.Dropout(job["dropout"])
    model = nn.Sequential(*hidden, nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    weights, digests = [*model.parameters()], []
    data = torch.randn(count, FEATURES)
    shuffler = torch.Generator().manual_seed(seed)
    drops = [torch.Generator().manual_seed(1000 * seed + r) for r in range(ranks)]
    noises = [torch.Generator().manual_seed(2000 * seed + r) for r in range(ranks)]
    gradients: dict[int, tuple] = {}  # by rank
    optimizer = torch.optim.SGD(weights, 0.05, job["momentum"])
    for step in range(job["steps"]):
        if step % job["epoch"] == 0:
            order = torch.arange(count)
            if job["shuffle"]:
                order = torch.randperm(count, generator=shuffler)
            batches = order.view(job["epoch"], ranks, BATCH)
        digests.append(digest(weights))
        for rank in range(ranks):
            x = data[batches[step % job["epoch"], rank]]
            target = x.mean(1, keepdim=True)
            x = x + job["jitter"] * torch.randn(x.shape, generator=noises[rank])
            torch.set_rng_state(drops[rank].get_state())
            loss = nn.functional.mse_loss(model(x), target)
            drops[rank].set_state(torch.get_rng_state())
            gradients[rank] = torch.autograd.grad(loss, weights)
        for number, weight in enumerate(weights):
            own = [gradients[rank][number] for rank in range(ranks)]
            weight.grad = torch.stack(own).mean(0)
        optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, (step + 1) / job["warm_up"])
        optimizer.step()
        if step + 1 in pushes:
            vector = nn.utils.parameters_to_vector(weights).detach()
            vector += torch.from_numpy(pushes[step + 1])
            nn.utils.vector_to_parameters(vector, weights)
    digests.append(digest(weights))
    return digests, nn.utils.parameters_to_vector(weights).detach().numpy()


class Lives:
    """The lives of one training, each of which goes on from what the last one left.
    `job` has the arguments of the program's `Job`, but for its seed.
    """

    def __init__(self, rig: Rig, *, ranks: int, seed: int = 1, **job: Any):
        self.rig, self.ranks, self.draw = rig, ranks, rig.draw(seed)
        self.job = PLAIN | job | {"seed": int(self.draw.integers(1, 1_000_000))}
        self.pushes: Pushes = {}
        self.files: dict[str, bytes] = {}
        self.began = self.ended = 0  # the last life, after so many steps; if well

    def live(
        self, starts: Collection[int], steps: int | None = None, **more: Any
    ) -> Outcome:
        """Let the training live once; a life that goes wrong decides the case.

        Args:
            starts: after which step it may go on.
            steps: after how many it ends, if earlier than the job says.
            more: inputs of the harness.
        """
        others = self.draw.choice(np.arange(2, AMONG + 1), PUSHED - 1, replace=False)
        pushed = [1, *map(int, sorted(others))]
        pushes = self.draw.normal(scale=PUSH, size=(PUSHED, PARAMETERS))
        pushes = pushes.astype(np.float32)
        job = self.job | {"steps": steps or self.job["steps"]}
        life = self.run(self.ranks, job=job, pushed=pushed, pushes=pushes, **more)
        if not (more.get("plan") and {KILLED, CUT_OFF} & {*life.exit_codes}):
            life.must_give("weights")
        begun = {given["begun"] for given in life.outputs if "begun" in given}
        known = truth(self.ranks, self.job, self.pushes)[0]
        if not begun and self.ended < job["steps"]:
            raise Decided(fail("rank 0 takes steps that nobody sees"))
        if len(begun) > 1 or not begun <= {*known}:
            told = "goes on with weights that the training without a stop never has"
            raise Decided(fail(f"last weights: rank 0 {told}"))
        start = known.index(*begun) if begun else self.ended
        if start not in starts:
            wanted = " or ".join(map(str, sorted(starts)))
            words = f"rank 0 expected to go on from step {wanted}, got {start}"
            raise Decided(fail(words))
        self.began = start
        self.pushes = {s: push for s, push in self.pushes.items() if s <= start}
        if begun:
            now = [start + step for step in pushed]
            self.pushes |= zip(now, pushes, strict=True)
        self.ended = 0 if life.failure else job["steps"]
        return life

    def last(self, starts: Collection[int]) -> Verdict:
        """Judge the last life: where it may begin, and with what it has to end."""
        life = self.live(starts)
        expected = truth(self.ranks, self.job, self.pushes)[1]
        verdict = compare_all(expected, life, "weights")
        if verdict.state == "fail":
            return fail(f"last weights: {verdict.words}")
        return verdict

    def run(self, ranks: int, **given: Any) -> Outcome:
        """Run the harness on the files of the last life, and keep those of this one."""
        usual = {"plan": None, "may_refuse": False}
        outcome = self.rig.run(ranks, usual | given, files=self.files)
        self.files = outcome.files
        return outcome


# --- criteria ---


def _stop_and_go_on(rig: Rig, stop: int, **job: Any) -> Verdict:
    """End well after `stop` steps, where a checkpoint is due, then go on."""
    lives = Lives(rig, save_every=stop, **{"epoch": stop, **job})
    lives.live({0}, stop)
    return lives.last({stop})


def momentum(rig: Rig, **more: Any) -> Verdict:
    """The weights, and what the optimizer remembers of each, outlive a stop."""
    return _stop_and_go_on(rig, momentum=0.9, **more)


def schedule(rig: Rig, *, steps: int, **more: Any) -> Verdict:
    """The learning rate grows on where it was."""
    return _stop_and_go_on(rig, warm_up=2 * steps, steps=steps, **more)


def epoch(rig: Rig, **more: Any) -> Verdict:
    """A stop in the middle of an epoch: its rest comes, in its order, and once."""
    return _stop_and_go_on(rig, shuffle=True, **more)


def order(rig: Rig, **more: Any) -> Verdict:
    """A stop at the end of an epoch: the next ones have an order of their own."""
    return _stop_and_go_on(rig, shuffle=True, **more)


def jitter(rig: Rig, **more: Any) -> Verdict:
    """Each rank's noise on the samples goes on where it was."""
    return _stop_and_go_on(rig, jitter=0.2, **more)


def dropout(rig: Rig, **more: Any) -> Verdict:
    """Each rank's dropout goes on where it was."""
    return _stop_and_go_on(rig, dropout=0.3, **more)


def kills(rig: Rig, *, deaths: str, save_every: int, **more: Any) -> Verdict:
    """Any rank dies between two checkpoints; each life goes on from the last one.

    Args:
        deaths: as in "rank 1 in step 5, rank 0 …".
    """
    start, lives = 0, Lives(rig, epoch=save_every, save_every=save_every, **more)
    for rank, step in re.findall(r"rank (\d+) in step (\d+)", deaths):
        lives.live({start}, plan={"rank": int(rank), "step": int(step) - start})
        start = (int(step) - 1) // save_every * save_every
    return lives.last({start})


def writing(rig: Rig, *, step: int, byte: int, save_every: int, **more: Any) -> Verdict:
    """The rank that writes dies in the midst of a file, in two lives: an older
    checkpoint serves, and the next one is as good as any.
    """
    starts, lives = {0}, Lives(rig, epoch=save_every, save_every=save_every, **more)
    for took in (step, save_every):
        plan = {"rank": None, "step": took, "byte": byte}
        life = lives.live(starts, plan=plan)
        if not life.failure:  # its files are small
            break
        due = lives.began + took
        starts = {due - save_every, due}
    else:
        verdict = lives.last(starts)
        if verdict.state != "pass":
            return verdict
    end = lives.job["steps"]
    return lives.last({end // save_every * save_every, end})


def whole(
    rig: Rig, *, dies: int, changes: int, save_every: int, **more: Any
) -> Verdict:
    """A checkpoint is all old or all new, whenever a rank dies; everything counts.

    A life for each of its changes of the folder: it saves once, and dies before that
    change in its second save, or in the next step if it makes fewer.
    """
    steps = 2 * save_every * (changes + 2)
    more |= ALL | {"epoch": save_every + 1, "save_every": save_every, "steps": steps}
    starts, lives = {0}, Lives(rig, **more)
    for change in range(1, changes + 1):
        plan = {"rank": dies, "step": 2 * save_every, "change": change}
        lives.live(starts, plan=plan)
        starts = {lives.began + save_every, lives.began + 2 * save_every}
    return lives.last(starts)


def cut(rig: Rig, **more: Any) -> Verdict:
    """The newest checkpoint of four is cut or gone: the one before it serves."""
    return _damaged(rig, **more)


def rotten(rig: Rig, **more: Any) -> Verdict:
    """It has its length, and a block in it that nobody wrote: the one before serves."""
    return _damaged(rig, **more)


def _damaged(
    rig: Rig, *, file: str, harm: str, save_every: int, **more: Any
) -> Verdict:
    """Damage what a life wrote for its one checkpoint, and go on from the one before.

    Args:
        file: "every" file of it at once, or "one" after the other, each in a new try.
        harm: what happens to it; of HARM.
    """
    before, last = 3 * save_every, 4 * save_every
    job = {"steps": last + save_every, "epoch": save_every, "save_every": save_every}
    lives = Lives(rig, **job, **more)
    lives.live({0}, before)
    old = [*lives.files.values()]
    lives.live({before}, last)
    harmed: dict[str, bytes | None] = {}
    for name, data in sorted(lives.files.items()):
        # Whatever its name was.
        kept = max(map(len, filter(data.startswith, old)), default=0)
        if kept < len(data):  # a file that only grows is damaged where it grew
            end = HARM[harm](data[kept:], lives.draw)
            harmed[name] = data[:kept] + (end or b"") if kept else end
    if not harmed:
        return fail(f"the checkpoint of step {last} has left no file")
    tries = [{name: harmed[name]} for name in [*harmed][:ONE_BY_ONE]]
    tries = [harmed] if file == "every" else tries
    starts = {before}
    if len(tries) > 1:  # the damaged one may be of no account
        starts.add(last)
    for files in tries:
        now = copy.copy(lives)
        now.files = {n: d for n, d in (lives.files | files).items() if d is not None}
        if (verdict := now.last(starts)).state != "pass":
            break
    return verdict


def refuses(rig: Rig, *, ranks: int, then: int, seed: int = 1) -> Verdict:
    """With another number of ranks each says one sentence, and nothing else happens."""
    lives = Lives(rig, ranks=ranks, seed=seed, epoch=2, save_every=2, steps=4)
    lives.live({0}, 2)
    before, nothing = dict(lives.files), np.zeros((0, 0))
    life = lives.run(then, job=lives.job, pushed=[], pushes=nothing, may_refuse=True)
    life.must_give("refused")
    for rank, given in enumerate(life.outputs):
        words, wanted = given["refused"], f"a sentence with {ranks} and {then}"
        if words is None:
            return fail(f"rank {rank} expected to refuse in {wanted}, but went on")
        numbers = set(re.findall(r"\d+", str(words)))
        if "\n" in str(words).strip() or not {str(ranks), str(then)} <= numbers:
            return fail(f"rank {rank} expected {wanted}, got {str(words)[:200]!r}")
    if life.files != before:
        return fail("a training that refuses leaves the folder as it was")
    return PASS


STATE = momentum, schedule, epoch, order, jitter, dropout
CRITERIA = named(*STATE, kills, writing, whole, cut, rotten, refuses)
