"""Which of a rank's passes over loaders were trained on."""

from whichrank.examination.facts import Loader, Pass, Witnessed


def trained_passes(loader: Loader) -> list[Pass]:
    """Return the passes over a loader whose batches were trained on."""
    return [each for each in loader.passes if each.trained]


def all_trained_passes(facts: Witnessed) -> list[Pass]:
    """Return such passes over all loaders of a rank."""
    return [each for loader in facts.loaders for each in trained_passes(loader)]


def first_loader(facts: Witnessed) -> Loader | None:
    """Return the first loader whose batches were trained on, or None."""
    return next((each for each in facts.loaders if trained_passes(each)), None)
