"""Compare a guess, however it is written, with an answer."""

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress
from fractions import Fraction
from numbers import Real
from typing import Any

FLOAT32 = 1e-6  # the share by which rounding may move a number
YES_AND_NO = {"true": True, "yes": True, "false": False, "no": False}
# "only rank 1", "ranks 0 and 1"
FILLER = re.compile(r"\b(?:ranks? +(?=\d)|(?:only|and|und)\b)")
UNIT = re.compile(r"(?<=\d)\s*(%|[a-z]+)$")  # "30 minutes"


def fits(guess: Any, answer: Any, within: float = 0) -> bool:
    """Return whether `guess`, however it is written, means `answer`.

    Lists, tuples and arrays are alike, text may hold any of them, and one value may
    stand for a list of equal ones. A guess may be off by the share `within`.
    """
    with suppress(Exception):  # a guess may be anything, and is no error
        some = isinstance(guess, list | tuple | Set)
        if isinstance(answer, str) and some and len(guess) == 1:
            (guess,) = guess  # a list of one, of which the answer is a text of words
        guess, answer = _plain(guess), _plain(answer)
        if isinstance(answer, Set):
            guesses = guess if isinstance(guess, list | Set) else [guess]
            return _all_in(guesses, answer, within) and _all_in(answer, guesses, within)
        if isinstance(guess, Set):
            guess = list(guess)
        if isinstance(answer, list):
            guesses = guess if isinstance(guess, list) else [guess] * (len(answer) or 1)
            pairs = zip(guesses, answer, strict=True)
            return all(fits(each, truth, within) for each, truth in pairs)
        if isinstance(guess, list):
            return bool(guess) and all(fits(each, answer, within) for each in guess)
        if isinstance(guess, Real) and isinstance(answer, Real):
            off = abs(float(guess) - float(answer))
            return off <= (within + FLOAT32) * abs(float(answer))
        return bool(guess == answer)
    return False


def _all_in(some: Iterable, others: Iterable, within: float) -> bool:
    """Return whether each of `some` fits one of `others`."""
    return all(any(fits(one, each, within) for each in others) for one in some)


def _plain(value: Any) -> Any:
    """Return what a value of any type says as a number, text, list or set of these."""
    if hasattr(value, "tolist"):  # of an array, or of a number out of one
        value = value.tolist()
    if isinstance(value, str):
        value = _read(value)
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Collection) and not isinstance(value, str | Set):
        value = list(value)
    return value


def _read(text: str) -> Any:
    """Return the number, or the list, that a text holds, or else the text."""
    text = FILLER.sub("", text.casefold()).strip()
    if text in YES_AND_NO:
        return YES_AND_NO[text]
    for read in (ast.literal_eval, Fraction):
        with suppress(ValueError, SyntaxError, ZeroDivisionError):
            return read(UNIT.sub("", text))
    words = re.split(r"[\s,;]+", text.strip("[](){},; "))
    return words if len(words) > 1 else text


def show(value: Any) -> str:
    """Return an answer as text: short, and the same each time."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Set):
        return show(sorted(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)
