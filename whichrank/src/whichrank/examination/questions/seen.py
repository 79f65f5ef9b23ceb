"""Which of a rank's passes over loaders were trained on; what ranks have in common."""

from collections import Counter
from typing import TypeVar

from whichrank.examination.facts import Loader, Optimizer, Pass, Witnessed

Kind = TypeVar("Kind", bound=Loader | Optimizer)


def trained_passes(loader: Loader) -> list[Pass]:
    """Return the passes over a loader whose batches were trained on."""
    return [each for each in loader.passes if each.trained]


def all_trained_passes(facts: Witnessed) -> list[Pass]:
    """Return such passes over all loaders of a rank."""
    return [each for loader in facts.loaders for each in trained_passes(loader)]


def first_loader(facts: Witnessed) -> Loader | None:
    """Return the first loader whose batches were trained on, or None."""
    return next((each for each in facts.loaders if trained_passes(each)), None)


def side_by_side(of_each: list[list[Kind]]) -> list[tuple[Kind, ...]]:
    """Return what belongs together: of one line, and the same time there.

    What is left comes in the order in which each rank has made it.
    """
    keyed = [_keyed(own) for own in of_each]
    shared = [key for key in keyed[0] if all(key in each for each in keyed)]
    together = [tuple(each.pop(key) for each in keyed) for key in shared]
    return together + [*zip(*(each.values() for each in keyed), strict=False)]


def _keyed(own: list[Kind]) -> dict[tuple[str, int], Kind]:
    """Return each by its line, and by how many there were before at that line."""
    keyed, times = dict[tuple[str, int], Kind](), Counter[str]()
    for each in own:
        keyed[each.line, times[each.line]] = each
        times[each.line] += 1
    return keyed
