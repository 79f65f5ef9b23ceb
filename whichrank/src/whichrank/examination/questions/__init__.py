"""Questions to what the witnesses of all ranks have left."""

from dataclasses import replace

from whichrank.examination.questions.answer import Answer, Ranks
from whichrank.examination.questions.drift import same_weights
from whichrank.examination.questions.effects import columns, files, noise
from whichrank.examination.questions.kept import buffers, loads
from whichrank.examination.questions.order import orders, splits
from whichrank.examination.questions.overlap import samples, validation
from whichrank.examination.questions.steps import counts, gradients

QUESTIONS = {
    "The ranks hold the same weights after every step:": (
        same_weights,
        "weights that several ranks hold",
    ),
    "Each sample reaches one rank:": (samples, "samples that can be told apart"),
    "Each epoch has another order:": (orders, "a second pass over shuffled data"),
    "All ranks split the data alike:": (splits, "a random_split"),
    "Validation counts each sample once:": (validation, "a whole validation"),
    "All ranks take as many steps:": (counts, "a step"),
    "Each weight gets a gradient, and is stepped:": (gradients, "a step"),
    "What was loaded was restored:": (loads, "a load"),
    "DDP pairs the same weights and buffers:": (buffers, "a DDP"),
    "Random numbers differ between ranks:": (noise, "dropout or noise"),
    "Each file has one writer:": (files, "a file that is written"),
    "Tensors that are sent are contiguous:": (columns, "a broadcast outside of DDP"),
}
"""By the words of the question: who answers it, and what has to be seen for it."""


def answers(ranks: Ranks) -> list[Answer]:
    """Return an answer to each question."""
    return [
        replace(ask(ranks), question=question)
        for question, (ask, _) in QUESTIONS.items()
    ]
