"""Compare what the cells of a notebook gave with what is committed, as nbval does.

Its tags and comments mean what they mean there. The order of streams, displays and
errors among each other does not count; metadata and pictures of pixels do not, either.
"""

import base64
import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode
from nbval import plugin as nbval

NOT_COMPARED = {
    "metadata",
    "traceback",
    "output_type",
    "name",
    "execution_count",
    "image/png",
    "image/jpeg",
}
PICTURE = re.compile(r"data:image/svg\+xml;base64,([\w+/=]+)")
MOST, WIDTH = 24, 160  # lines that are shown of a difference, and characters of one


@dataclass(frozen=True)
class Difference:
    """A cell whose output is not what is committed."""

    number: int
    """as in `In [12]` of the committed notebook"""
    source: str
    expected: dict[str, list[str]]
    """the committed texts by their kind: stdout, stderr, text/html, ename, ..."""
    got: dict[str, list[str]]

    def __str__(self) -> str:
        """Return the cell's first line, and lines with - (expected) and + (got)."""
        kinds = self.expected | self.got
        differ = [k for k in kinds if self.expected.get(k) != self.got.get(k)]
        # What a person sees as text says it best.
        kind = min(differ, key=lambda kind: kind in ("text/html", "image/svg+xml"))
        lines = [
            *difflib.unified_diff(
                _lines(self.expected.get(kind, [])),
                _lines(self.got.get(kind, [])),
                n=1,
                lineterm="",
            )
        ][2:]
        lines = lines or ["they differ in the ends of lines alone"]
        more = [f"... and {len(lines) - MOST} more lines"] * (len(lines) > MOST)
        head = f"cell {self.number}: {self.source.strip().splitlines()[0]}"
        told = f"{kind}: - is committed, + is what came out"
        return "\n    ".join([head, told, *lines[:MOST], *more])


def differences(
    committed: NotebookNode, executed: NotebookNode
) -> Iterator[Difference]:
    """Yield each cell of `executed` whose output differs from that in `committed`.

    Both have the same cells. Those that were not reached have no output to compare.
    """
    for one, other in zip(committed.cells, executed.cells, strict=True):
        if one.cell_type == "code" and _is_checked(one) and other.execution_count:
            expected, got = _by_kind(one.outputs), _by_kind(other.outputs)
            if expected != got:
                yield Difference(one.execution_count, one.source, expected, got)


def _is_checked(cell: NotebookNode) -> bool:
    """Tell whether nbval would compare the outputs of a cell."""
    options = dict(nbval.find_metadata_tags(cell.metadata))
    options |= dict(nbval.find_comment_markers(cell.source))
    return options.get("check", True) and not options.get("skip", False)


def _by_kind(outputs: list[NotebookNode]) -> dict[str, list[str]]:
    """Return the texts of outputs by their kind, each in its order."""
    found = defaultdict(list)
    copies = [NotebookNode(output) for output in outputs]  # streams are changed
    for output in nbval.transform_streams_for_comparison(
        nbval.coalesce_streams(copies)
    ):
        for kind, text in {**output, **output.get("data", {})}.items():
            if kind not in NOT_COMPARED | {"data"}:
                found[kind].append(text if isinstance(text, str) else json.dumps(text))
    return dict(found)


def _lines(texts: list[str]) -> list[str]:
    """Return the lines of texts, and of the pictures in them, none of them too long."""

    def inside(picture: re.Match) -> str:
        svg = base64.b64decode(picture[1]).decode()
        return "\n" + svg.replace("><", ">\n<") + "\n"

    lines = PICTURE.sub(inside, "\n".join(texts)).splitlines()
    starts = ((line, at) for line in lines for at in range(0, len(line) or 1, WIDTH))
    return [line[at : at + WIDTH] for line, at in starts]
