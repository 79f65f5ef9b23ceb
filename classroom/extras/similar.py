"""Which submissions look alike: a reason to talk, and no proof.

Programs are compared by their tokens, as MOSS does (Schleimer, Wilkerson and Aiken,
*Winnowing*, SIGMOD 2003): by runs of `RUN` tokens that two of them share, wherever they
stand. Comments and docstrings are left out, and every name that a program gives is the
same token, so that renaming and re-ordering hide nothing. What the starter has, and
what more than `COMMON` others have written as well, counts for nobody. A course is
small enough to keep every run, where MOSS samples them.

The solution takes part as well, as `THE_SOLUTION`.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import combinations

from classroom.engine.assignment import COURSE, load, notebook
from classroom.engine.submission import answers
from ddp_lab import from_here
from ddp_lab.kit.cell.display import table

RUN = 12  # tokens, which is about a line and a half
COMMON = 10  # submissions; what so many have found is no copy
LEAST = 3 * RUN  # tokens of one's own, or there is nothing to compare
ALIKE = 0.4  # of the own tokens of the one with fewer of them
MOST_TOKENS = 20_000  # tokens of a submission that are looked at
SHOWN_PAIRS = 50  # pairs
THE_SOLUTION = "(the solution)"
LINE_BEGINS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
LEFT_OUT = (*LINE_BEGINS, tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; }
table { border-collapse: collapse; } td, th { padding: 0.2em 1.5em 0.2em 0; }
td { vertical-align: top; } th { text-align: left; }
pre { margin: 0; font-size: 12px; } pre span { display: block; min-height: 1.2em; }
.alike { background: #ffe08a; } .given { color: #999; }
"""
WORDS = (
    "Similarity is a reason to talk, and no proof. Two people may have had the same"
    " idea, the same book, or each other's permission. Yellow lines are alike in both;"
    " gray ones were in the starter."
)


@dataclass(frozen=True)
class Text:
    """The programs of a submission, as tokens."""

    lines: list[str]
    words: list[str]
    """The tokens."""
    at: list[int]
    """The line of each."""

    def runs(self) -> list[tuple[str, ...]]:
        """Return the run that begins at each token."""
        count = len(self.words) - RUN + 1
        return [tuple(self.words[i : i + RUN]) for i in range(count)]


@dataclass(frozen=True)
class Pair:
    """Two submissions that look alike."""

    names: tuple[str, str]
    share: float
    """Of the own tokens of the one with fewer of them."""
    tokens: int
    alike: tuple[set[int], set[int]]
    """Of each, the lines that the other has as well."""


def read(programs: Mapping[str, str]) -> Text:
    """Read programs as one text; what is no Python is read as far as it goes."""
    text = Text([], [], [])
    for name, program in sorted(programs.items()):
        text.lines.append(f"# {name}")
        start, given = len(text.lines) - 1, _given_names(program)
        text.lines.extend(program.splitlines())
        try:
            before = tokenize.NEWLINE
            for token in tokenize.generate_tokens(io.StringIO(program).readline):
                docstring = token.type == tokenize.STRING and before in LINE_BEGINS
                if token.type not in LEFT_OUT and not docstring:
                    text.words.append(_word(token, given))
                    text.at.append(start + token.start[0])
                before = token.type
        except (tokenize.TokenError, SyntaxError):
            pass
        text.words.append(f"end of {name}")
        text.at.append(len(text.lines) - 1)
    return Text(text.lines, text.words[:MOST_TOKENS], text.at[:MOST_TOKENS])


def _word(token: tokenize.TokenInfo, given: set[str]) -> str:
    if token.type == tokenize.STRING:
        return "text"
    # Somebody else's name says what is done, as in `dist.send`.
    return "name" if token.string in given else token.string


def _given_names(program: str) -> set[str]:
    """Return the names that a program has given itself, which may as well be others."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def compare(texts: Mapping[str, Text], starter: Text) -> list[Pair]:
    """Return the pairs that look alike, those that share most first."""
    runs = {name: text.runs() for name, text in texts.items()}
    owners = Counter(run for found in runs.values() for run in {*found})
    common = {run for run, count in owners.items() if count > COMMON}
    common |= {*starter.runs()}
    own = {name: {*found} - common for name, found in runs.items()}
    sizes = {name: len(_tokens(runs[name], own[name])) for name in texts}
    pairs = []
    for one, other in combinations(texts, 2):
        shared = own[one] & own[other]
        covered = [_tokens(runs[name], shared) for name in (one, other)]
        tokens = min(len(tokens) for tokens in covered)
        if shared and min(sizes[one], sizes[other]) >= LEAST:
            share = tokens / min(sizes[one], sizes[other])
            lines = (
                {texts[one].at[i] for i in covered[0]},
                {texts[other].at[i] for i in covered[1]},
            )
            pairs.append(Pair((one, other), min(share, 1.0), tokens, lines))
    pairs.sort(key=lambda pair: (-pair.share, -pair.tokens, pair.names))
    return [pair for pair in pairs if pair.share >= ALIKE]


def _tokens(runs: list[tuple[str, ...]], wanted: set) -> set[int]:
    """Return the tokens that are in one of the runs `wanted`."""
    starts = [start for start, run in enumerate(runs) if run in wanted]
    return {token for start in starts for token in range(start, start + RUN)}


def report(assignment: str, names: list[str]) -> str:
    """Compare what was handed in; write a page with both sides, and return a table."""
    wanted = load(assignment).PROGRAMS
    texts = {
        name: read(answers(notebook("submitted", assignment, name), wanted)[0])
        for name in names
    }
    texts[THE_SOLUTION] = read(answers(notebook("source", assignment), wanted)[0])
    starter = read(answers(notebook("release", assignment), wanted)[0])
    pairs = compare(texts, starter)
    path = COURSE / "similar" / f"{assignment}.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(assignment, pairs, texts, starter), encoding="utf-8")
    rows = [
        [*pair.names, f"{pair.share:.0%}", str(pair.tokens)]
        for pair in pairs[:SHOWN_PAIRS]
    ]
    said = f"{len(names)} submissions, pairs that look alike: {len(pairs)}"
    if rows:
        said = table([["one", "other", "alike", "tokens"], *rows]) + f"\n\n{said}"
    return f"{said}; a reason to talk, and no proof.\nBoth sides: {from_here(path)}"


def page(
    assignment: str, pairs: list[Pair], texts: Mapping[str, Text], starter: Text
) -> str:
    """Return a page on which each pair stands side by side."""
    known = {*starter.runs()}
    parts = [f"<h1>{escape(assignment)}: what looks alike</h1><p>{WORDS}</p>"]
    for pair in pairs[:SHOWN_PAIRS]:
        head = f"{pair.names[0]} and {pair.names[1]}: {pair.share:.0%} alike"
        cells = ""
        for name, alike in zip(pair.names, pair.alike, strict=True):
            text = texts[name]
            given = {text.at[i] for i in _tokens(text.runs(), known)}
            cells += f"<td><pre>{_marked(text.lines, alike, given)}</pre></td>"
        names = "".join(f"<th>{escape(name)}</th>" for name in pair.names)
        sides = f"<table><tr>{names}</tr><tr>{cells}</tr></table>"
        parts.append(f"<details><summary>{escape(head)}</summary>{sides}</details>")
    if not pairs:
        parts.append("<p>Nothing does.</p>")
    body = "\n".join(parts)
    title = f"<meta charset='utf-8'><title>{escape(assignment)}</title>"
    return f"<!DOCTYPE html>{title}<style>{STYLE}</style>\n{body}\n"


def _marked(lines: list[str], alike: set[int], given: set[int]) -> str:
    shown = []
    for number, line in enumerate(lines):
        kind = "alike" if number in alike else "given" if number in given else ""
        shown.append(f'<span class="{kind}">{escape(line)}</span>')
    return "".join(shown)
