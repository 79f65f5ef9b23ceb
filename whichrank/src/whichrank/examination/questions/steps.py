"""Do all ranks take the same steps, with gradients as they should be?"""

from whichrank.examination.facts import Optimizer, Witnessed
from whichrank.examination.questions.answer import (
    Answer,
    Ranks,
    counted,
    no,
    unseen,
    unsure,
    yes,
)

SUMMED = 1.5  # times as large: no rounding, and no second average


def counts(ranks: Ranks) -> Answer:
    """Do all ranks take as many steps, with as many forwards of DDP?"""
    steps = [sum(len(o.steps) for o in _tied(each)) for each in ranks]
    if not any(steps):
        return unseen()
    forwards = [sum(model.forwards.ran for model in each.models) for each in ranks]
    done = [*zip(steps, forwards, strict=True)]
    models = [model for each in ranks for model in each.models]
    if any(len({done[r] for r in model.ranks}) > 1 for model in models):
        if any(model.joins for model in models):
            return unsure("they differ, under `Join`.")
        if any(each.failed and done[r] == min(done) for r, each in enumerate(ranks)):
            return unsure("they differ where the script has failed.")
        by_rank = f"steps by rank {steps}, forwards of DDP {forwards}."
        cure = "Give each rank as many batches, or use `Join`."
        if len({*forwards}) == 1:
            cure = "Let all ranks step or none: decide by what they share."
        return no(f"The ranks take different numbers of steps: {by_rank}", cure)
    if len({*steps}) > 1:
        return unsure("they differ, and no DDP ties them.")
    each, backwards = counted(steps[0], "step"), {each.backwards for each in ranks}
    if len(backwards) == 1 and ranks[0].backwards:
        each += f" and {backwards.pop()} backward passes"
    return yes(f"{each} on each of {len(ranks)} ranks.")


def _tied(facts: Witnessed) -> list[Optimizer]:
    """Return the optimizers of a DDP, or all where there is none of it."""
    tied = [each for each in facts.optimizers if any(map(any, each.within))]
    return tied or facts.optimizers


def gradients(ranks: Ranks) -> Answer:
    """Does each trainable weight get a gradient, and does the optimizer have it?"""
    stepped = [each for each in ranks[0].optimizers if each.steps]
    for each in stepped:
        if each.idle and len({*each.idle}) == len({*each.weights}):
            never = f"none of the {len(each.weights)} weights of this {each.kind}"
            head = "An optimizer steps weights that nobody trains:"
            cure = "Make the optimizer last, from the model that is trained."
            return no(f"{head} {never} ever got a gradient.", cure, each.line)
    for model in ranks[0].models if stepped else ():
        if orphans := model.orphans:
            such = f"{len(orphans)}, such as {', '.join(orphans[:3])}."
            return no(
                f"Weights get gradients, and no optimizer steps them: {such}",
                "Give the optimizer `model.parameters()` of the model that is trained.",
                model.line,
            )
    if wrong := _again(stepped) or _clipped(ranks):
        return wrong
    if line := ranks[0].gathered:
        takes = "this call takes values with a gradient, and gives none back"
        return unsure(f"right for a metric, wrong in a loss: {takes}", line)
    if idle := [name for each in stepped for name in _idle(each)]:
        return unsure(f"{len(idle)} never got one, such as {idle[0]}.")
    if not stepped:
        return unseen()
    return yes(f"{counted(sum(len(e.weights) for e in stepped), 'weight')} on rank 0.")


def _again(stepped: list[Optimizer]) -> Answer | None:
    """Tell that the script sums gradients that DDP has averaged."""
    for each in stepped:
        for averaged in each.averaged:
            for n, grown in averaged.grown.items():
                if grown > SUMMED:
                    return no(
                        f"Gradients are summed twice: DDP has averaged that of "
                        f"{each.weights[n]}, and after this line it is {grown:g} times "
                        "as large.",
                        "Leave it to DDP, which has averaged when `backward` returns.",
                        averaged.lines[n],
                    )
    return None


def _clipped(ranks: Ranks) -> Answer | None:
    """Tell that gradients are clipped which a GradScaler has scaled."""
    if not (line := ranks[0].clipped):
        return None
    return no(
        "Gradients are clipped while they are scaled: the limit is for other numbers.",
        "Call `scaler.unscale_(optimizer)` before it.",
        line,
    )


def _idle(optimizer: Optimizer) -> list[str]:
    """Return the weights that never had a gradient, and are not frozen."""
    frozen = dict(zip(optimizer.weights, optimizer.frozen, strict=False))
    return [name for name in optimizer.idle if not frozen.get(name)]
