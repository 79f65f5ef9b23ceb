"""Does a port of throws.py train as throws.py does, on 1, 2 and 3 ranks?

The judge looks at what comes out, and not at the code: which samples went through the
network in each step (frames/watched.py), what was printed, and what is in the file.
With the same samples it makes the same steps in this process, and compares.
"""

import functools
import math
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from ddp_lab.kit import torchrun
from ddp_lab.kit.cell import written
from ddp_lab.script.frames import throws, watched
from whichrank import Run, RunFailed
from whichrank.examination.examined import WATCHED_STEPS, examine

EPOCHS, BATCH, SAMPLES = 4, throws.BATCH, len(watched.TRAINED)
PER_EPOCH = SAMPLES // BATCH
TESTED = throws.throws(13, seed=166)  # as in throws.py
LINE = re.compile(r"epoch (\d+): loss (\d+\.\d+), error (\d+\.\d+)")


class Wrong(Exception):
    """The port does something else; the message says what."""


class Stuck(Wrong):
    """It did not end by itself."""


def judge(script: str | Path) -> None:
    """Say what is right about a port, up to the first thing that is not.

    Args:
        script: the path of a file that a reader has written.

    Raises:
        UsageError: if its cell was refused, so that the file is an older one.
    """
    written.refuse(str(script))
    if "def " not in Path(script).read_text():
        print("Not yet. Write the script above, and run both cells; hint() helps.")
        return
    with TemporaryDirectory() as folder:
        try:
            for right in verdicts(script, Path(folder)):
                print("✓", right)
        except Wrong as wrong:
            print("✗", wrong)
            return
    print("Solved. This is how a script is ported; now yours.")


def verdicts(script: str | Path, folder: Path) -> Iterator[str]:
    """Yield what is right.

    Raises:
        Wrong: at the first thing that is not.
    """
    for ranks in (3, 2, 1):
        out = folder / f"on_{ranks}"
        run = launch(script, ranks, out)
        yield (
            f"on {ranks} ranks it runs to its end" if ranks > 1 else "on 1 rank as well"
        )
        if not any(run["joined"]) and ranks > 1:
            alone = "each rank trains alone: init_process_group makes them a group"
            raise Wrong(f"on {ranks} ranks {alone}")
        steps = together(run, ranks)
        weights, losses = reference(steps)
        if ranks == 3:
            yield f"every step takes {BATCH} samples, all ranks together"
            yield "no epoch takes a sample twice, and each has a new order"
        compare(out, weights, ranks)
        printed(run, weights, losses, ranks)
        if ranks == 3:
            yield "the weights are those of one process that takes the same steps"
            yield "one line an epoch, with the loss and the error of all samples"
            writers = sum(count > 0 for count in run["writes"])
            if writers != 1:
                raise Wrong(f"{writers} of {ranks} ranks write files, not one")
            yield "one rank writes"
            if not all(run["left"]):
                raise Wrong(
                    "the ranks do not leave: destroy_process_group() is missing"
                )
            whole = steps
    resumes(script, folder / "resumed", whole)
    yield "stopped on 2 ranks after 2 epochs, it goes on with 3 as if nothing had been"
    fails(script, folder / "failed")
    yield "an error on one rank ends all of them"
    examined_too(script, folder / "examined")
    yield "examined, it shows no ✗"


def launch(
    script: str | Path, ranks: int, out: Path, more: str = "", epochs: int = EPOCHS
) -> Run:
    """Run a port under the watch."""
    program = f"{watched.__file__} {script} --epochs {epochs} --output {out} {more}"
    where = f"on {ranks} ranks{f' with {more}' * bool(more)}"
    return start(f"--nproc-per-node {ranks} {program}", where, timeout=15)


def start(words: str | list[str], where: str, **options: Any) -> Run:
    """Run torchrun; say `where` it went wrong.

    Raises:
        Wrong: if the run fails.
    """
    try:
        return torchrun(words, **options)
    except RunFailed as failed:
        why = failed.run.failure if failed.run else None
        told = why.report(traceback=False) if why else failed
        how = Stuck if why and why.kind == "timeout" else Wrong
        raise how(f"{where}, {told}") from None


def together(run: Run, ranks: int, epochs: int = EPOCHS) -> list[list[int]]:
    """Return the samples of each step, those of all ranks together.

    Raises:
        Wrong: if they are not those of a training of `epochs` epochs.
    """
    where = f"on {ranks} ranks" if ranks > 1 else "on 1 rank"
    steps = merged(run)
    left = SAMPLES % BATCH
    whole_epochs = all(len(each) >= epochs * PER_EPOCH for each in run["steps"])
    if ranks > 1 and whole_epochs and steps and len(steps[0]) == ranks * BATCH:
        cure = f"a DistributedSampler, and batches of {BATCH} // {ranks}"
        raise Wrong(f"{where} every rank takes all samples: they need {cure}")
    for number, step in enumerate(steps):
        if number % (PER_EPOCH + 1) == PER_EPOCH and len(step) in range(1, BATCH):
            again = len({*step} & {*chain(*steps[number - PER_EPOCH : number])})
            twice = f", {again} of them for the second time" if again else ""
            what = f"takes the last {len(step)} samples of an epoch{twice}"
            cure = f"leave {left} out, by drop_last=True in sampler and loader"
            raise Wrong(f"{where} step {number} {what}: {cure}")
    if {len(steps) for steps in run["steps"]} != {epochs * PER_EPOCH}:
        counts = ", ".join(str(len(steps)) for steps in run["steps"])
        wanted = f"{epochs} epochs of {SAMPLES} samples are {epochs * PER_EPOCH}"
        sizes = f"; the first one takes {len(steps[0])} samples" if steps else ""
        raise Wrong(f"{where} the ranks take {counts} steps{sizes}: {wanted}")
    for number, step in enumerate(steps):
        if len(step) != BATCH or -1 in step:
            what = (
                f"{len(step)} samples"
                if -1 not in step
                else f"samples not in throws({SAMPLES}, seed=1)"
            )
            raise Wrong(
                f"{where} step {number} takes {what}, not {BATCH} of throws.py's"
            )
    sets = batches(steps)
    for epoch, taken in enumerate(sets):
        if (count := len({*chain(*taken)})) != PER_EPOCH * BATCH:
            many = f"{count} different samples"
            raise Wrong(f"{where} epoch {epoch} takes {many}, some of them twice")
    for epoch in range(1, epochs):
        if sets[epoch] == sets[epoch - 1]:
            raise Wrong(f"{where} epoch {epoch} has the batches of epoch {epoch - 1}")
    return steps


def merged(run: Run) -> list[list[int]]:
    """Return the samples of each step that all ranks have made."""
    return [sum(parts, []) for parts in zip(*run["steps"], strict=False)]


def batches(steps: list[list[int]]) -> list[list[list[int]]]:
    """Return the batches of each epoch, each in the order of its numbers."""
    batch = [sorted(step) for step in steps]
    return [batch[at : at + PER_EPOCH] for at in range(0, len(batch), PER_EPOCH)]


def reference(steps: list[list[int]]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Make the steps of throws.py in this process; return weights and losses."""
    x, y = watched.TRAINED.tensors
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = throws.build()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=throws.RATE, momentum=throws.MOMENTUM
    )
    warm_up = torch.optim.lr_scheduler.LinearLR(
        optimizer, 0.1, total_iters=throws.WARM_UP
    )
    losses = []
    for step in steps:
        loss = nn.functional.mse_loss(model(x[step]), y[step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        losses.append(loss.detach())
    return model.state_dict(), losses[PER_EPOCH - 1 :: PER_EPOCH]


GRADIENTS = "the gradients, the rate and the warm-up"
STATE = "what is saved, and what every rank loads: weights, optimizer, warm-up"


def compare(
    out: Path, weights: dict[str, Tensor], ranks: int, look_at: str = GRADIENTS
) -> None:
    """Compare the weights in the file with those of one process.

    Raises:
        Wrong: if they differ, or are not there.
    """
    path = out / "checkpoint.pt"
    if not path.exists():
        raise Wrong("there is no checkpoint.pt in the folder of --output")
    saved = torch.load(path, map_location="cpu", weights_only=False)
    found = [each for each in mappings(saved) if weights.keys() <= each.keys()]
    if not found:
        names = [
            name for each in mappings(saved) for name in each if "weight" in str(name)
        ]
        raise Wrong(
            f"the file has no state of the bare network (model.module): {names[:1]}"
        )
    for name, tensor in weights.items():
        off = (found[0][name] - tensor).abs().max().item()
        if not off < 1e-3:
            raise Wrong(
                f"on {ranks} ranks {name} ends {off:.3f} away from one process that "
                f"takes the same steps: look at {look_at}"
            )


def mappings(saved: object) -> Iterator[dict]:
    """Yield all dicts in what was saved."""
    if isinstance(saved, dict):
        yield saved
        saved = [*saved.values()]
    if isinstance(saved, list | tuple):
        for each in saved:
            yield from mappings(each)


def printed(
    run: Run, weights: dict, losses: list[Tensor], ranks: int, first: int = 0
) -> None:
    """Compare what was printed with the numbers of one process.

    Raises:
        Wrong: if a line is missing, doubled or has another number.
    """
    lines = [
        match for each in run.lines for line in each if (match := LINE.search(line))
    ]
    epochs = [int(line[1]) for line in lines]
    if epochs != [*range(first, EPOCHS)]:
        raise Wrong(
            f"on {ranks} ranks, standard output has the lines of epochs {epochs}, "
            f"not {[*range(first, EPOCHS)]}"
        )
    for line, loss in zip(lines, losses[first:], strict=True):
        if not math.isclose(float(line[2]), loss, abs_tol=1.5e-3):
            raise Wrong(
                f"on {ranks} ranks epoch {line[1]} prints the loss {line[2]}; that of "
                f"the global batch is {loss:.3f}"
            )
    error = mean_error(weights)
    if not math.isclose(float(lines[-1][3]), error, abs_tol=1.5e-3):
        raise Wrong(
            f"on {ranks} ranks the last error printed is {lines[-1][3]}; the mean over "
            f"all {len(TESTED)} test samples is {error:.3f}"
        )


def mean_error(weights: dict[str, Tensor]) -> float:
    """Return the mean error of a network with `weights` over all test samples."""
    model = throws.build()
    model.load_state_dict(weights)
    x, y = TESTED.tensors
    with torch.no_grad():
        return (model(x) - y).abs().mean().item()


def resumes(script: str | Path, out: Path, whole: list[list[int]]) -> None:
    """Stop after two epochs, and go on with another number of ranks.

    Args:
        script: the port.
        out: a folder.
        whole: the steps of a run that was not stopped, on as many ranks as go on.
    """
    half = together(launch(script, 2, out, epochs=2), 2, epochs=2)
    run = launch(script, 3, out, "--resume")
    rest = merged(run)
    if len(rest) != 2 * PER_EPOCH:
        raise Wrong(f"resumed after 2 epochs of 4, it takes {len(rest)} steps, not 20")
    weights, losses = reference(half + rest)
    before = [*batches(half), *batches(whole)[:2]]
    if batches(rest)[0] in before:
        raise Wrong("resumed, its first epoch has the batches of one before the stop")
    try:
        compare(out, weights, 3, STATE)
        printed(run, weights, losses, 3, first=2)
    except Wrong as wrong:
        raise Wrong(f"resumed, it is not as before: {wrong}") from None


def fails(script: str | Path, out: Path) -> None:
    """Let rank 1 of 3 raise in its second epoch."""
    with mock.patch.dict(os.environ, FAILS=str(PER_EPOCH + 2)):
        try:
            launch(script, 3, out)
        except Wrong as wrong:
            stuck = isinstance(wrong, Stuck)  # rank 1 waits where it should end
            if "the judge has planted" in str(wrong) and not stuck:
                if not (out / "checkpoint.pt").exists():
                    raise Wrong(
                        "after an error in epoch 1 there is no checkpoint of epoch 0"
                    ) from None
                return
            raise Wrong(
                f"an error on rank 1 does not end the others: {wrong}"
            ) from None
    raise Wrong("an error on rank 1 was caught: the run ended as if nothing had been")


def examined_too(script: str | Path, out: Path) -> None:
    """Ask what `%examine` asks."""
    run = functools.partial(start, where="examined", cold=True)
    page = examine([str(script), "--output", str(out)], 2, WATCHED_STEPS, run)
    if not page or not page.well:
        raise Wrong(str(page or "it ended before its first step"))
