"""Exceptions of a program in words and frames, as raised.json and others keep them."""

import builtins
import time
import traceback
from typing import Any

FRAMES, CHAIN = 100, 9  # that are kept of an exception, and exceptions before it
WORDS, WHOLE = 2_000, 16_000  # characters of its words, and of its traceback
RESERVED = 65_536  # bytes for raised.json, should the disk be full by then

Calls = list[tuple[str, int, str]]
"""File, line and function of each call, the innermost one first."""


def raised(error: BaseException) -> dict[str, Any]:
    """Return what is to be known of the exception that ended the program.

    The exception may do anything when it is asked.
    """
    now = time.time()
    try:
        return _in_full(error) | {"time": now}
    except Exception as another:
        words = f"{type(error).__name__}, which cannot be shown: {another!r}"
        left = {"error": words, "traceback": words, "time": now}
        return left | {"frames": frames(error)[:FRAMES]}


def _in_full(error: BaseException) -> dict[str, Any]:
    causes = [each for each, explicit in _before(error) if explicit]
    first, group = error, getattr(builtins, "BaseExceptionGroup", ())  # of Python 3.11
    while isinstance(first, group):
        first = first.exceptions[0]
        causes.insert(0, first)
    words = ", from ".join(in_words(each) for each in [error, *causes])
    whole = "".join(traceback.format_exception(error))
    if len(whole) > WHOLE:
        half = WHOLE // 2
        whole = f"{whole[:half]}\n... left out ...\n{whole[-half:]}"
    return {
        "error": words[:WORDS],
        "before": words_before(error),
        "frames": (frames(first) or frames(error))[:FRAMES],
        "traceback": whole,
    }


def how_it_left(end: SystemExit) -> dict[str, Any]:
    """Return where a program left by sys.exit, and the exceptions that it handled."""
    return {"frames": frames(end)[:FRAMES], "before": words_before(end)}


def in_words(error: BaseException) -> str:
    """Return, say, `ValueError: b (at step 7)`."""
    report = traceback.TracebackException.from_exception(error, limit=0)
    report.__notes__ = None  # type: ignore[attr-defined]
    lines = "".join(report.format_exception_only()).splitlines()
    while len(lines) > 1 and lines[0].startswith("  "):  # of a SyntaxError
        del lines[0]
    words = "\n".join(lines)
    notes = [str(note) for note in getattr(error, "__notes__", None) or ()]
    return f"{words} ({'; '.join(notes)})" if notes else words


def _before(error: BaseException) -> list[tuple[BaseException, bool]]:
    """Return the exceptions that led to this one, and whether `from` says so.

    They are evidence, so also those that `from None` hides.
    """
    chain, explicit = [(error, True)], True
    while len(chain) <= CHAIN:
        last, _ = chain[-1]
        before = last.__cause__ or last.__context__
        if before is None or any(before is known for known, _ in chain):
            break
        explicit = explicit and last.__cause__ is not None
        chain.append((before, explicit))
    return chain[1:]


def words_before(error: BaseException) -> list[str]:
    """Return the exceptions that led to this one, each in words that are not long."""
    return [in_words(each)[:500] for each, _ in _before(error)]


def frames(error: BaseException) -> Calls:
    """Return the calls from where an exception was handled to where it was raised."""
    found = calls(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        return [(error.filename, error.lineno or 0, ""), *found]
    return found


def calls(stack: traceback.StackSummary) -> Calls:
    """Return the calls of a stack."""
    return [(call.filename, call.lineno or 0, call.name) for call in stack[::-1]]
