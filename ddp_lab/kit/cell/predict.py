"""Keep a learner's guess, or diagnosis, tell whether it is right, and count."""

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from html import escape
from pathlib import Path
from reprlib import Repr
from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

from ddp_lab.kit.cell.answers import fits, show
from ddp_lab.kit.cell.display import BAR, FAILED
from ddp_lab.kit.draw.colors import GREY, RIGHT_COLOR, WHITE
from ddp_lab.kit.words import listed
from whichrank import Failure, Run, Stand, Symptom

# Guesses in words: of how many, and of which rank differs from the others.
NONE_OF_THEM = re.compile(r"none( of them)?|nobody|no one|no ranks?")
NO_SINGLE = re.compile(r"(all|every|each)( of them|( the)? ranks?)?|no single rank")
BRIEF = Repr()  # of a guess that may be anything
BRIEF.maxlist = BRIEF.maxtuple = BRIEF.maxset = 32
BRIEF.maxstring = BRIEF.maxother = 120


class Guessed(Enum):
    """What a guess turns out to be, in words and in the color of its sign."""

    RIGHT = "✓ right", RIGHT_COLOR
    WRONG = "✗ wrong", FAILED
    NOT_MADE = "no guess yet", GREY

    def __init__(self, words: str, color: str) -> None:
        self.words, self.color = words, color


COMPARED: dict[str, Guessed] = {}
"""By question, or by the command that failed: the last verdict in this kernel."""


@dataclass(frozen=True)
class Prediction:
    """A question and the learner's guess; None stands for no guess."""

    question: str
    guess: Any

    def compare(self, answer: Any, theory: Any = None, within: float = 0) -> None:
        """Show the guess beside the answer. A wrong guess is no error.

        Args:
            answer: what the run says; a set if the order does not matter.
            theory: what one may compute beforehand; a guess of that is right, too.
            within: the share of a number by which a guess of it may be off.
        """
        words = f"the answer is {show(answer)}"
        if theory is not None:
            words = f"the run says {show(answer)}, theory {show(theory)}"
        if within:
            words += f", give or take {100 * within:g} %"
        verdict = self.verdict(answer, theory, within)
        if verdict is not Guessed.NOT_MADE:
            words = f"you guessed {BRIEF.repr(self.guess)}; {words}"
        _tell(self.question, self.question, [(verdict, words)])

    def verdict(self, answer: Any, theory: Any = None, within: float = 0) -> Guessed:
        """Return what `compare` says of the guess."""
        if self.guess is None:
            return Guessed.NOT_MADE
        truths = [answer] if theory is None else [answer, theory]
        guesses = [self.guess]
        if _is(NONE_OF_THEM, self.guess) and "which" not in self.question.casefold():
            guesses.append(0)
        guesses += _chosen(self.question, self.guess)
        right = any(fits(g, truth, within) for g in guesses for truth in truths)
        return Guessed.RIGHT if right else Guessed.WRONG


def predict(question: str, guess: Any, *more: Any) -> Prediction:
    """Keep `guess` (None, or a number, a list or a name) for `.compare(answer)`."""
    if more:
        raise UsageError(f"put brackets around your answer: {[guess, *more]}")
    return Prediction(question, guess)


def _chosen(question: str, guess: Any) -> list[str]:
    """Return the one that a guess in words means of those that a question quotes."""
    words = _words(guess) if isinstance(guess, str) else set()
    options = re.findall(r"'([^']+)'", question)
    meant = [o for o in options if words >= _words(o) or words <= _words(o)]
    return meant if len(meant) == 1 and words and "not" not in words else []


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text.casefold())}


def _is(words: re.Pattern, guess: Any) -> bool:
    """Return whether a guess is text and says this."""
    plain = guess.casefold().strip().rstrip(".!") if isinstance(guess, str) else ""
    return bool(words.fullmatch(plain))


def _tell(key: str, question: str, rows: list[tuple[Guessed, str]]) -> None:
    """Show a question with its verdicts, and remember what they come to."""
    verdicts = [verdict for verdict, _ in rows]
    worst = (Guessed.WRONG, Guessed.NOT_MADE, Guessed.RIGHT)
    COMPARED[key] = next(verdict for verdict in worst if verdict in verdicts)
    lines = [f"  {verdict.words}: {words}" for verdict, words in rows]
    text = "\n".join([question, *lines])
    if {*verdicts} == {Guessed.NOT_MADE}:
        print(text)  # there is nothing to judge
        return
    html = "".join(f"<br>{_sign(v)} {escape(words)}" for v, words in rows)
    _show_card(text, escape(question) + html, COMPARED[key].color)


def _sign(verdict: Guessed) -> str:
    style = f"background-color: {verdict.color}; color: {WHITE}; padding: 0 0.4em;"
    return f'<span style="{style}">{verdict.words}</span>'


def _show_card(text: str, html: str, color: str) -> None:
    """Display text beside a bar; the styles are such as an untrusted page keeps."""
    style = f"margin: 0.5em 0; {BAR} {color};"
    html = f'<div style="{style}">{html}</div>'
    display({"text/plain": text, "text/html": html}, raw=True)


def score() -> None:
    """Show how many of the questions that have an answer by now were guessed right."""
    counts = Counter(COMPARED.values())
    of = f"of {len(COMPARED)} predictions"
    right, wrong, missing = (counts[verdict] for verdict in Guessed)
    if right + wrong == 0:
        text = f"0 {of} made: put a guess in place of a None, and run the lesson again"
    else:
        text = f"{right} {of} right"
        text += f", {wrong} wrong" if wrong else ""
        text += f", {missing} not made" if missing else ""
    all_right = right == len(COMPARED) > 0
    color = (Guessed.RIGHT if all_right else Guessed.NOT_MADE).color
    _show_card(text, f"<b>{text}</b>", color)


@dataclass(frozen=True)
class Suspicion:
    """What a learner takes for the cause of a failure, before the run has failed."""

    rank: int | None
    line: int | str | None
    symptom: str | None

    def compare(self, run: Run) -> None:
        """Show the suspicion beside what was found in a run that failed.

        A wrong suspicion is no error. None stands for no answer; where another answer
        is given, it also means that there is nothing to name.
        """
        verdicts = []
        for what, suspected, truth, words in self._rows(run):
            verdict = self._verdict(suspected, truth)
            yours = "" if suspected is None else f"you say {BRIEF.repr(suspected)}; "
            verdicts.append((verdict, f"{what}: {yours}the run says {words}"))
        _tell(run.command, "Which rank, which line, which symptom?", verdicts)

    def _verdict(self, suspected: Any, truth: Any) -> Guessed:
        nothing = self == Suspicion(None, None, None)
        if nothing or (suspected is None and truth is not None):
            return Guessed.NOT_MADE
        named = isinstance(truth, Symptom) and _names(suspected, truth)
        right = named or fits(suspected, truth)
        return Guessed.RIGHT if right else Guessed.WRONG

    def _rows(self, run: Run) -> list[tuple[str, Any, Any, str]]:
        """Return what was asked, what was suspected, the truth, and how to tell it."""
        failure = run.failure
        assert failure, "the run has not failed"
        rank = None if failure.by_chance else failure.rank
        who = "no single rank" if rank is None else f"rank {rank}"
        no_single = rank is None and _is(NO_SINGLE, self.rank)
        where, symptom = failure.where or "", failure.symptom
        at = f"line {failure.line}: {where.partition(': ')[2]}".rstrip(": ")
        lines = _lines_with(self.line, where)
        if len(lines) > 1:  # such a text names none of them
            at += f"; your text is in lines {listed(map(str, lines))}"
        line = lines[0] if len(lines) == 1 else self.line
        is_there = line in _lines_of(failure)
        named = repr(symptom) if symptom else "no symptom that has a name"
        both = [s for s in _symptoms_of(failure) if _names(self.symptom, s)]
        return [
            ("rank", self.rank, self.rank if no_single else rank, who),
            ("line", self.line, self.line if is_there else failure.line, at),
            ("symptom", self.symptom, both[0] if both else symptom, named),
        ]


def _stands_of(failure: Failure) -> list[Stand]:
    """Return where the rank that failed stands, or each one, if none is named.

    One that has raised may wait on its way out: that counts as well.
    """
    stands = [each for each in failure.stands if failure.rank in (None, each.rank)]
    return stands + [s.end.since for s in stands if s.end and s.end.since]


def _lines_of(failure: Failure) -> set[int | None]:
    """Return the line of a failure, where its rank stands, and what called that."""
    lines = {failure.line}
    for stand in _stands_of(failure):
        if at := stand.frame:
            lines |= {f.line for f in (at, *stand.outer) if f.file == at.file}
    return lines


def _symptoms_of(failure: Failure) -> list[Symptom]:
    """Return both symptoms of one rank that waits in a call that no other one makes."""
    both = [Symptom.ABSENT, Symptom.DIFFERENT_CALLS]
    waits = any(stand.waits for stand in _stands_of(failure))
    return (
        both if failure.rank is not None and waits and failure.symptom in both else []
    )


def _names(text: Any, symptom: Symptom) -> bool:
    """Return whether a text names a symptom, perhaps in the singular."""
    return fits(text, symptom) or isinstance(text, str) and fits(f"{text}s", symptom)


def _lines_with(text: Any, where: str) -> list[int]:
    """Return the numbers of the lines with `text` in the program that `where` names."""
    program = Path(where.partition(":")[0])
    if not (isinstance(text, str) and text.strip() and program.is_file()):
        return []
    lines = program.read_text().splitlines()
    return [n for n, line in enumerate(lines, 1) if text.strip() in line]


def suspect(
    rank: int | None = None,
    line: int | str | None = None,
    symptom: str | None = None,
) -> Suspicion:
    """Keep a suspicion for `.compare(run)` of a run that failed.

    Args:
        rank: the one that does something else than the others; None if there is none.
        line: the line of the program at which it stands or fails: a piece of it that
            no other line has, or its number in the file.
        symptom: its name, such as "absent"; any other text prints the names.
    """
    if symptom is not None and not any(_names(symptom, each) for each in Symptom):
        unknown = "" if symptom == "?" else f"no symptom is called {symptom!r:.60}; "
        print(f"{unknown}symptoms are: {', '.join(Symptom)}")
    return Suspicion(rank, line, symptom)
