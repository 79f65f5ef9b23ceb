"""Lesson *Your script on eight GPUs*: its scripts, and the judge of its exercise."""

import re
from pathlib import Path

import pytest
from conftest import SCRIPTS
from support import FULL, Later

from ddp_lab import ROOT
from ddp_lab.kit import torchrun
from ddp_lab.kit.cell import end, hints
from whichrank import Run

judges = Later("ddp_lab.script.judge")

pytestmark = pytest.mark.processes

ANSWER = ROOT / "answers" / "script" / "exercise.py"
HELPERS = {"judge.py", "exercise.py"}


def test_the_scripts_have_nothing_of_the_lab():
    for path in SCRIPTS.glob("*.py"):
        if path.name not in HELPERS:
            text = path.read_text()
            assert (
                end.RULE not in text and "ddp_lab." not in text.partition("import")[2]
            )


def epochs(run: Run) -> list[str]:
    return [line for lines in run.lines for line in lines if line.startswith("epoch")]


def test_the_port_prints_the_same_on_every_number_of_ranks(tmp_path):
    runs = [
        torchrun(f"--nproc-per-node {n} {SCRIPTS / 'train.py'} --output {tmp_path}")
        for n in (1, 2, 3)
    ]
    first, *others = [epochs(run) for run in runs]
    assert len(first) == 4 and all(other == first for other in others)


def test_a_resume_continues_the_numbers(tmp_path):
    def train(ranks, more):
        script = SCRIPTS / "train.py"
        return epochs(torchrun(f"--nproc-per-node {ranks} {script} --output {more}"))

    whole = train(2, tmp_path / "whole")
    half = train(3, f"{tmp_path / 'half'} --epochs 2")
    assert half + train(2, f"{tmp_path / 'half'} --resume") == whole


def verdict(text: str, folder: Path) -> str:
    """Return what the judge finds wrong with a port."""
    path = folder / "port.py"
    path.write_text(text)
    try:
        list(judges.verdicts(path, folder))
    except judges.Wrong as wrong:
        return str(wrong)
    return ""


def test_the_exercise_has_three_hints():
    assert len(hints.hints_in(ANSWER.read_text())) == 3


def test_of_a_script_that_is_not_ported_the_group_is_told_first(tmp_path):
    text = (SCRIPTS / "frames" / "throws.py").read_text()
    assert "each rank trains alone" in verdict(text, tmp_path)


def test_the_answer_is_right(tmp_path):
    assert verdict(ANSWER.read_text(), tmp_path) == ""


BY_HAND = (
    ("model = DDP(build().to(device))", "model = build().to(device)"),
    ("model.module", "model"),
    (
        "            optimizer.step()\n",
        "            for p in model.parameters():\n"
        "                dist.all_reduce(p.grad)\n"
        "                p.grad /= world_size\n"
        "            optimizer.step()\n",
    ),
)
OWN_SHARES = (
    ("    sampler = DistributedSampler(train, drop_last=True)\n", ""),
    (
        "    loader = DataLoader(train, BATCH // world_size, sampler=sampler, "
        "drop_last=True)\n",
        "",
    ),
    (
        "        sampler.set_epoch(epoch)\n",
        "        order = torch.randperm(965, "
        "generator=torch.Generator().manual_seed(epoch))\n"
        "        share = Subset(train, order[rank::world_size].tolist())\n"
        "        loader = DataLoader(share, BATCH // world_size, drop_last=True)\n",
    ),
)


TUPLE = (
    (
        'torch.save(saved | {"epoch": epoch + 1}, path)',
        "torch.save((saved, epoch + 1, args), path)",
    ),
    (
        "saved = torch.load(path, map_location=device)",
        "saved, start, _ = torch.load(path, map_location=device, weights_only=False)",
    ),
    ('        start = saved["epoch"]\n', ""),
)


FLAT = (
    (
        'torch.save(saved | {"epoch": epoch + 1}, path)',
        'torch.save({**saved.pop("model"), **saved, "epoch": epoch + 1}, path)',
    ),
    (
        "            part.load_state_dict(saved[name])\n",
        "            own = part.state_dict() if name == 'model' else {}\n"
        "            part.load_state_dict({k: saved[k] for k in own} or saved[name])\n",
    ),
)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(BY_HAND, id="hand", marks=FULL),
        pytest.param(OWN_SHARES, id="shares", marks=FULL),
        pytest.param(TUPLE, id="tuple", marks=FULL),
        pytest.param(FLAT, id="flat", marks=FULL),
    ],
)
def test_another_way_is_right_as_well(changes, tmp_path):
    assert verdict(changed(ANSWER.read_text(), *changes), tmp_path) == ""


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


SAVES = (
    "            saved = {name: part.state_dict() for name, part in parts.items()}\n"
)
MISTAKES = {
    "the batch of one process": (
        [("BATCH // world_size, sampler", "BATCH, sampler")],
        "step 0 takes 288 samples|take 12, 12, 12 steps",
    ),
    "no sampler": (
        [("sampler=sampler", "shuffle=True")],
        "steps|takes",
    ),
    "all samples on each rank": (
        [
            ("sampler=sampler", "shuffle=True"),
            ("BATCH // world_size, shuffle", "BATCH, shuffle"),
        ],
        "every rank takes all samples",
    ),
    "a padded last batch": (
        [
            ("(train, drop_last=True)", "(train)"),
            ("sampler=sampler, drop_last=True)", "sampler=sampler)"),
        ],
        "step 10 takes the last 6 samples of an epoch, 1 of them for the second time",
    ),
    "a last batch of its own": (
        [("sampler=sampler, drop_last=True)", "sampler=sampler)")],
        "on 3 ranks step 10 takes the last 3 samples of an epoch: leave 5 out",
    ),
    "no set_epoch": (
        [("        sampler.set_epoch(epoch)\n", "")],
        "epoch 1 has the batches of epoch 0",
    ),
    "no DDP": (BY_HAND[:2], "away from one process"),
    "a sum for a mean": (
        [*BY_HAND[:2], (BY_HAND[2][0], BY_HAND[2][1].replace("/= world_size", "/= 1"))],
        "away from one process",
    ),
    "everybody prints": (
        [
            (
                "        if rank == 0:\n            print",
                "        if True:\n            print",
            )
        ],
        "lines of epochs",
    ),
    "the loss of rank 0": (
        [
            ("        loss = loss.detach() / world_size\n", ""),
            (
                "        dist.all_reduce(loss)  # every rank now holds the loss of the "
                "global batch\n",
                "",
            ),
        ],
        "that of the global batch",
    ),
    "the error of a padded sampler": (
        [
            (
                "Subset(test, range(rank, len(test), world_size)), BATCH)",
                "test, BATCH, sampler=DistributedSampler(test))",
            ),
            (
                "total.item() / size",
                "total.item() / (len(loader.sampler) * dist.get_world_size())",
            ),
        ],
        "the mean over all 13 test samples",
    ),
    "everybody writes": (
        [(SAVES, SAVES[4:]), ("            torch.save", "        torch.save")],
        "3 of 3 ranks write",
    ),
    "the names of DDP": (
        [('"model": model.module', '"model": model')],
        "no state of the bare network",
    ),
    "a new optimizer": ([('"optimizer": optimizer, ', "")], "resumed.*what is saved"),
    "the first epoch again": (
        [("range(start, args.epochs)", "range(args.epochs - start)")],
        "resumed",
    ),
    "fixed shares, shuffled as in the first epoch": (
        [
            OWN_SHARES[0],
            (
                "(train, BATCH // world_size, sampler=sampler, ",
                "(Subset(train, range(rank, 963, world_size)), BATCH // world_size, "
                "shuffle=True, ",
            ),
            ("        sampler.set_epoch(epoch)\n", ""),
        ],
        "has the batches of one before the stop",
    ),
    "no checkpoint before the end": (
        [
            (
                "            saved = {",
                "            if epoch + 1 < args.epochs:\n                continue\n"
                "            saved = {",
            ),
        ],
        "no checkpoint of epoch 0",
    ),
    "a group that is never left": (
        [("    dist.destroy_process_group()\n", "")],
        "destroy_process_group",
    ),
    "a caught error": (
        [
            (
                "    main()\n    dist.destroy_process_group()",
                "    try:\n        main()\n    except Exception:\n        os._exit(0)\n"
                "    dist.destroy_process_group()",
            )
        ],
        "error on rank 1",
    ),
    "an error that waits for the others": (
        [
            (
                "    main()\n    dist.destroy_process_group()",
                "    try:\n        main()\n    finally:\n        dist.barrier()\n"
                "    dist.destroy_process_group()",
            )
        ],
        "does not end the others.*waits in barrier",
    ),
}


# One of its data, one of its numbers, one of its checkpoint; test-all has the rest.
FIRST = ("no set_epoch", "the loss of rank 0", "a new optimizer")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FIRST else FULL) for n in MISTAKES]
)
def test_the_judge_refuses(name, tmp_path):
    changes, says = MISTAKES[name]
    assert re.search(says, verdict(changed(ANSWER.read_text(), *changes), tmp_path))
