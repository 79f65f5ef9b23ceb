"""Keep a learner's guess until the run has given the answer."""

from dataclasses import dataclass
from typing import Any


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
