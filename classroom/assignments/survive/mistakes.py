"""What students get wrong in Survive."""

from classroom.engine.assignment import Mistake

OTHER_WEIGHTS = "fail: last weights: rank 0 "
WRITTEN = """\
        with open(folder / "new.pt", "wb") as file:
            torch.save(kept, file)
            file.flush()
            os.fsync(file.fileno())  # the bytes reach the disk before the name does
        os.replace(folder / "new.pt", folder / "snapshot.pt")
"""
NUMBERED = WRITTEN.replace('"snapshot.pt"', 'f"step_{run.done}.pt"')
READ = """\
    if not (folder / "snapshot.pt").exists():
        return
    kept = torch.load(folder / "snapshot.pt", weights_only=True)
"""
MISTAKES = [
    Mistake(
        "every eight steps",
        "kills",
        [("    if run.done % LOST:\n", "    if run.done % 8:\n")],
        "fail: rank 0 expected to go on from step ",
    ),
    Mistake(
        "the newest by its name",
        "kills",
        [
            (WRITTEN, NUMBERED),
            (
                READ,
                """\
    found = sorted(folder.glob("step_*.pt"))  # step_10.pt comes before step_8.pt
    if not found:
        return
    kept = torch.load(found[-1], weights_only=True)
""",
            ),
        ],
        "fail: rank 0 expected to go on from step ",
    ),
    Mistake(
        "used up by loading it",
        "kills",
        [
            (
                '    run.done = kept["done"]\n',
                """\
    run.done = kept["done"]
    dist.barrier()
    (folder / "snapshot.pt").unlink(missing_ok=True)
""",
            )
        ],
        "fail: rank 0 expected to go on from step ",
    ),
    Mistake(
        "the epoch begins anew",
        "order",
        [('    run.deck.left = kept["left"]\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "the next epoch is the first again",
        "order",
        [('    run.deck.random.setstate(kept["random"])\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "another generator's state",
        "order",
        [("run.deck.random.getstate()", "random.getstate()")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "Adam forgets",
        "optimizer",
        [('    run.optimizer.load_state_dict(kept["optimizer"])\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "the noise begins anew",
        "noise",
        [('    run.noise.set_state(kept["noises"][dist.get_rank()])\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "the noise of rank 0 for all",
        "noise",
        [('kept["noises"][dist.get_rank()]', 'kept["noises"][0]')],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "written in place",
        "writing",
        [(WRITTEN, '        torch.save(kept, folder / "snapshot.pt")\n')],
        "fail: rank ",
    ),
    Mistake(
        "the old one goes first",
        "writing",
        [
            (
                WRITTEN,
                '        (folder / "snapshot.pt").unlink(missing_ok=True)\n' + WRITTEN,
            )
        ],
        "fail: rank 0 expected to go on from step 2 or later, got 0",
    ),
    Mistake(
        "a leftover stands in the way",
        "writing",
        [('open(folder / "new.pt", "wb")', 'open(folder / "new.pt", "xb")')],
        "fail: rank 0: FileExistsError",
    ),
    Mistake(
        "after every step",
        "seldom",
        [("    if run.done % LOST:\n        return\n", "")],
        "fail: 1 to 6 snapshots expected in 12 steps, got 12",
    ),
    Mistake(
        "a diary beside it",
        "seldom",
        [
            (
                "    if run.done % LOST:\n",
                """\
    if dist.get_rank() == 0:
        (folder / "diary").write_text(f"{run.done}")
    if run.done % LOST:
""",
            )
        ],
        "fail: 1 to 6 snapshots expected in 12 steps, got 1",
    ),
]
