"""What students get wrong in Resume."""

from classroom.engine.assignment import Mistake

OTHER_WEIGHTS = "fail: last weights: rank 0 "
MISTAKES = [
    Mistake(
        "momentum forgotten",
        "memory",
        [
            (
                'for name in "model", "optimizer", "scheduler":',
                'for name in "model", "scheduler":',
            )
        ],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "schedule begins anew",
        "memory",
        [
            (
                'for name in "model", "optimizer", "scheduler":',
                'for name in "model", "optimizer":',
            )
        ],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "epoch begins anew",
        "order",
        [
            (
                'run.done, run.sampler.position = shared["done"], shared["position"]',
                'run.done = shared["done"]',
            )
        ],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "next epoch is the first again",
        "order",
        [('    run.sampler.generator.set_state(shared["order"])\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "the noise of rank 0 for all",
        "noise",
        [('saved["owns"][dist.get_rank()]', 'saved["owns"][0]')],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "jitter forgotten",
        "noise",
        [('    run.noise.set_state(own["noise"])\n', "")],
        OTHER_WEIGHTS,
    ),
    Mistake(
        "a checkpoint is used up by loading it",
        "dies",
        [
            (
                '        put_back(run, {"shared": saved["shared"], "own": own})\n',
                """\
        put_back(run, {"shared": saved["shared"], "own": own})
        dist.barrier()
        path.unlink(missing_ok=True)
""",
            )
        ],
        "fail: rank 0 expected to go on from step 4, got 0",
    ),
    Mistake(
        "a leftover stands in the way",
        "writing",
        [
            (
                'open(path.with_suffix(".tmp"), "wb")',
                'open(path.with_suffix(".tmp"), "xb")',
            )
        ],
        "fail: rank 0: FileExistsError",
    ),
    Mistake(
        "the newest file has to be whole",
        "damaged",
        [("            continue\n        here", "            raise\n        here")],
        "fail: rank ",
    ),
    Mistake(
        "what loads is taken for whole",
        "damaged",
        [
            (
                """\
            if ZipFile(path).testzip():  # reads it all, and names a piece that is wrong
                continue
""",
                "",
            )
        ],
        "fail: last weights: rank 0 goes on with weights that the training without a"
        " stop never has",
    ),
    Mistake(
        "only the newest is kept",
        "damaged",
        [
            (
                'sorted(folder.glob("step_*.pt"))[:-2]',
                'sorted(folder.glob("step_*.pt"))[:-1]',
            )
        ],
        "fail: rank 0 expected to go on from step 4, got 0",
    ),
    Mistake(
        "any number of ranks will do",
        "refuses",
        [("if here != there:", "if here < 0:")],
        "fail: rank ",
    ),
]
