"""Keep a learner's guess, or diagnosis, until the run has given the answer."""

from dataclasses import dataclass
from typing import Any

from ddp_lab.kit.explain.symptoms import Symptom
from ddp_lab.kit.run.result import Run


@dataclass(frozen=True)
class Prediction:
    """A question and the learner's guess; None stands for no guess."""

    question: str
    guess: Any

    def compare(self, answer: Any) -> None:
        """Print the guess beside the answer. A wrong guess is no error."""
        print(self.question)
        if self.guess is None:
            print(f"  no guess; the run says {answer}")
        elif self.guess == answer:
            print(f"  your guess {self.guess} is what the run says")
        else:
            print(f"  your guess {self.guess}; the run says {answer}")


def predict(question: str, guess: Any) -> Prediction:
    """Keep `guess` (None, or a number or list by rank) for `.compare(answer)`."""
    return Prediction(question, guess)


@dataclass(frozen=True)
class Suspicion:
    """What a learner takes for the cause of a failure, before the run has failed."""

    rank: int | None
    line: int | None
    symptom: str | None

    def compare(self, run: Run) -> None:
        """Print the suspicion beside what was found in a run that failed.

        A wrong suspicion is no error, and None stands for no answer.
        """
        for what, suspected, truth, told in self._rows(run):
            if suspected is None and truth is not None:
                print(f"{what}: not yet; the run says {told}")
            elif suspected == truth:
                print(f"{what}: {told} is right")
            else:
                print(f"{what}: you say {suspected!r}, the run says {told}")

    def fits(self, run: Run) -> bool:
        """Return whether all of the suspicion is what was found in the run."""
        return all(suspected == truth for _, suspected, truth, _ in self._rows(run))

    def _rows(self, run: Run) -> list[tuple[str, Any, Any, str]]:
        """Return what was asked, what was suspected, the truth, and how to tell it."""
        found = run.failure
        assert found, "the run has not failed"
        rank = found.rank
        if found.kind == "exception" and len(found.others) == len(run.lines) - 1:
            rank = None  # all raised, and which one was the first is chance
        who = "no single rank" if rank is None else f"rank {rank}"
        return [
            ("rank", self.rank, rank, who),
            ("line", self.line, found.line, f"line {found.line}"),
            ("symptom", self.symptom, found.symptom, repr(found.symptom)),
        ]


def suspect(
    rank: int | None = None, line: int | None = None, symptom: str | None = None
) -> Suspicion:
    """Keep a suspicion for `.compare(run)` of a run that failed.

    Args:
        rank: the one that does something else than the others; None if nobody does.
        line: number of the line in the program at which it stands or fails.
        symptom: its name, such as "absent"; any other text prints the names.
    """
    if symptom is not None and symptom not in list(Symptom):
        print(f"symptoms are: {', '.join(Symptom)}")
    return Suspicion(rank, line, symptom)
