"""An answer to a question: yes, no, or not seen; nothing is guessed."""

from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.examination.facts import Witnessed

Ranks = list[Witnessed]
"""What each rank has left, in the order of ranks."""
YES, NO, NOT_SEEN = "✓", "✗", "?"


@dataclass(frozen=True)
class Answer:
    """What was found on one question."""

    mark: str
    evidence: str = ""
    """What was compared, or the mistake; "" if the run did not show anything of it."""
    cure: str = ""
    line: str = ""
    """Of the script, as `train.py:12`."""
    question: str = ""

    def __str__(self) -> str:
        question = f"{self.question} " if self.mark != NO else ""
        line = f" ({self.line})" if self.line else ""
        cure = f"\n    {self.cure}" if self.cure else ""
        return f"{self.mark} {question}{self.evidence}{line}{cure}"


def no(mistake: str, cure: str, line: str = "") -> Answer:
    """Return the answer that tells a mistake, which speaks for itself."""
    return Answer(NO, mistake, cure, line)


def yes(evidence: str) -> Answer:
    """Return the answer that all is well, with what was compared."""
    return Answer(YES, evidence)


def unsure(evidence: str, line: str = "", cure: str = "") -> Answer:
    """Return what was found, and why nothing tells whether it may be so."""
    return Answer(NOT_SEEN, evidence, cure, line)


def unseen() -> Answer:
    """Return the answer that nothing of it came in this run."""
    return Answer(NOT_SEEN)


def counted(number: int, what: str) -> str:
    """Return `1 weight`, or `2 weights`."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def of_ranks(members: Sequence[int]) -> str:
    """Return `ranks 0 and 1`."""
    *all_but_last, last = map(str, members)
    return f"ranks {', '.join(all_but_last)} and {last}" if all_but_last else last
