"""Is the state as it was saved, and alike where it must be?"""

from whichrank.examination.questions.answer import (
    Answer,
    Ranks,
    counted,
    no,
    unseen,
    unsure,
    yes,
)


def loads(ranks: Ranks) -> Answer:
    """Did each load restore what it should?"""
    for load in ranks[0].loads:
        if left := load.left:
            head = "A load left the optimizer's state in the checkpoint:"
            asked = f"{len(left)} entries were not asked for, such as {left[0]}."
            cure = "`get_state_dict` before `dcp.load`, `set_state_dict` after it."
            return no(f"{head} {asked}", cure, load.line)
        names = f"the file has {load.theirs}, the model {load.own}"
        has = f"{names}, and `strict=False` skipped all."
        cure = "Strip the prefix, and leave `strict` alone."
        return no(f"A load restored no weight: {has}", cure, load.line)
    if moments := ranks[0].moments:
        taken = sum(len(each.steps) for each in ranks[0].optimizers)
        if taken > moments.steps and moments.written:
            return no(
                "A load left the optimizer's state in the file: this run has saved it, "
                "and no optimizer has loaded it.",
                "`optimizer.load_state_dict(...)`, or its moments start at zero.",
                moments.line,
            )
        if taken > moments.steps:
            its = "the file also has an optimizer's state, which nothing loads"
            return unsure(f"{its}: right to fine-tune, wrong to resume.", moments.line)
    loads = ranks[0].restored
    return yes(f"{counted(loads, 'load')} on rank 0, whole.") if loads else unseen()


def buffers(ranks: Ranks) -> Answer:
    """Does DDP pair the same buffers and weights on all ranks?"""
    for models in zip(*(each.models for each in ranks), strict=False):
        if len({tuple(model.ranks) for model in models}) > 1:
            continue
        for kind, names in (
            ("weights", [model.weights for model in models]),
            ("buffers", [model.buffers for model in models]),
        ):
            if len({*map(frozenset, names)}) > 1:
                continue  # not the same model
            places = enumerate(zip(*names, strict=True), 1)
            for at in (at for at, here in places if len({*here}) > 1):
                first = f"number {at} is {names[0][at - 1]} on rank 0"
                return no(
                    f"DDP pairs different {kind}, by their places: {first}, and "
                    "another one elsewhere.",
                    "Register them in a fixed order: `sorted(...)`, not a set.",
                    models[0].line,
                )
    if not ranks[0].models:
        return unseen()
    return _copies(ranks) or _held(ranks) or yes(f"{len(ranks[0].models)} DDP.")


def _copies(ranks: Ranks) -> Answer | None:
    """Tell that a copy of the model, which changes, is another one on each rank."""
    for models in zip(*(each.models for each in ranks), strict=False):
        for copies in zip(*(model.copies for model in models), strict=False):
            changes = all(each.before != each.after for each in copies)
            if changes and len({each.after for each in copies}) > 1:
                return no(
                    "A copy of the model differs among ranks: it was made before DDP "
                    f"gave all of them rank 0's weights ({copies[0].weight}).",
                    "Make the copy, an EMA say, from `model.module` after DDP.",
                    models[0].line,
                )
    return None


def _held(ranks: Ranks) -> Answer | None:
    """Say that buffers differ which DDP was told to leave alone."""
    for models in zip(*(each.models for each in ranks), strict=False):
        members = [models[r] for r in models[0].ranks]
        if any(model.broadcasts for model in members):
            continue
        held_by_each = (model.held for model in members)
        for name, *held in zip(members[0].buffers, *held_by_each, strict=False):
            if len({*held}) > 1:
                why = f"{name} differs, and DDP is told not to send it"
                ends = "ranks validate with other models, and a file has one rank's"
                return unsure(
                    f"{why} (`broadcast_buffers=False`): {ends}.",
                    models[0].line,
                    "`nn.SyncBatchNorm.convert_sync_batchnorm(model)` before DDP.",
                )
    return None
