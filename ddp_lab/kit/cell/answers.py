"""Compare a guess, however it is written, with an answer."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from numbers import Real
from typing import Any

FLOAT32 = 1e-6  # the share by which rounding may move a number
NESTED = 6  # lists within lists
YES_AND_NO = {"true": True, "yes": True, "false": False, "no": False}
TIMES = {"once": "1", "twice": "2", "double": "2"}
COUNTS = "zero one two three four five six seven eight nine ten".split()
COUNT = re.compile(rf"\b(?:{'|'.join(COUNTS)})\b")
PREFIXES = {"k": 1, "m": 2, "g": 3, "t": 4}  # of bytes
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")  # "62,500"
# "3", "only rank 3", "3.6 x", "5 all_gathers", "32-bit", "float32", "1/2", "3 of them",
# "0 of 3", "2 times as long"; but not "not rank 3".
NUMBER = re.compile(
    r"(?:(?:only|about|ranks?|float|fp|~)\s*)*(?:(?!not|but|no)[a-z_]+\s+)?"
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?:\s*/\s*(?P<below>\d+))?"
    r"[\s-]*(?P<unit>%|×|(?!as\b)[a-z_]+)?(?:\s*\bof\s+(?:them|the\b.*|\d+))?"
    r"(?:\s*\bas\s+[a-z]+)?"
)
FROM_TO = re.compile(r"(?:ranks?\s*)?(\d+)\s*(?:-|–|to)\s*(\d+)")  # "0-3", "0 to 3"
GAPS = r"\s*[,;]\s*(?:and\s)?|\sand\s", r"[\s,;]+(?:and\s)?"
ARTICLE = re.compile(r"^(?:the|an?) ")


def fits(guess: Any, answer: Any, within: float = 0, deep: int = 0) -> bool:
    """Return whether `guess`, however it is written, means `answer`.

    Lists, tuples and arrays are alike, text may hold any of them, and one value may
    stand for a list of equal ones. A guess may be off by the share `within`.
    """
    with suppress(Exception):  # a guess may be anything, and is no error
        return deep < NESTED and any(
            _means(one, truth, within, deep + 1)
            for one in _readings(guess)
            for truth in _readings(answer)
        )
    return False


def _means(guess: Any, answer: Any, within: float, deep: int) -> bool:
    """Return whether one reading of a guess is one reading of an answer."""
    if isinstance(answer, Set):
        guesses = guess if isinstance(guess, list | Set) else [guess]
        each_is_there = _all_in(guesses, answer, within, deep)
        return each_is_there and _all_in(answer, guesses, within, deep)
    if isinstance(guess, Set):
        guess = list(guess)
    if isinstance(answer, list):
        guesses = guess if isinstance(guess, list) else [guess] * (len(answer) or 1)
        pairs = zip(guesses, answer, strict=False)
        return len(guesses) == len(answer) and all(
            fits(each, truth, within, deep) for each, truth in pairs
        )
    if isinstance(guess, list):
        return bool(guess) and all(fits(each, answer, within, deep) for each in guess)
    if isinstance(guess, Real) and isinstance(answer, Real):
        off = abs(float(guess) - float(answer))
        return off <= (within + FLOAT32) * abs(float(answer))
    return bool(guess == answer)


def _all_in(some: Iterable, others: Iterable, within: float, deep: int) -> bool:
    """Return whether each of `some` fits one of `others`."""
    return all(any(fits(one, each, within, deep) for each in others) for one in some)


def _readings(value: Any) -> list:
    """Return what a value may mean: numbers, words, or lists and sets of values."""
    if hasattr(value, "tolist"):  # of an array, or of a number out of one
        value = value.tolist()
    if isinstance(value, str):
        return list(_read(value))
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, Collection) and not isinstance(value, Set):
        value = list(value)
    return [value, "none"] if value is None else [value]


def _read(text: str) -> Iterator[Any]:
    """Yield the numbers, lists and words that a text may mean.

    "4 %" may be 4 or 0.04, "62.5 KB" 62.5, 62,500 or 64,000, and "1,683" one number or
    a list of two.
    """
    text = text.casefold().strip().rstrip(".!")
    if text in YES_AND_NO:
        yield YES_AND_NO[text]
    if match := FROM_TO.fullmatch(text):
        yield list(range(int(match[1]), int(match[2]) + 1))
    plain = THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    for each in dict.fromkeys((plain, text)):
        yield from _numbers(each)
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(each)
            if not isinstance(value, str):
                yield _readings(value)[0]
        inside = each.strip("[](){} ")
        for gap in GAPS:
            parts = [part for part in re.split(gap, inside) if part]
            if len(parts) > 1:
                yield parts
    if re.search("[a-z]", text):
        yield re.sub(r"[\W_]", "", ARTICLE.sub("", text))


def _numbers(text: str) -> Iterator[float]:
    """Yield the numbers that a text may mean, if it is one."""
    text = re.sub(r"\b(once|twice|double)\b", lambda match: TIMES[match[0]], text)
    text = COUNT.sub(lambda match: str(COUNTS.index(match[0])), text)  # "all four"
    if not (match := NUMBER.fullmatch(text.strip("[](){} "))):
        return
    number = float(match["number"]) / float(match["below"] or 1)
    yield number
    unit = match["unit"] or ""
    if unit == "%":
        yield number / 100
    if size := re.fullmatch(r"([kmgt])i?b(?:ytes?)?", unit):
        power = PREFIXES[size[1]]
        yield number * 1000**power
        yield number * 1024**power


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
