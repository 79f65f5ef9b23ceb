"""Pictures that build up, one step after another, without a script.

On a page with our style, `Steps` is a row of dots, which are radio buttons: the arrow
keys go from step to step, and so do the two buttons below the picture. JupyterLab drops
styles, and names of fields, from a notebook that it does not trust: there the pictures
are a strip that scrolls, and links go on and back. Without any style they all stand
below each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ddp_lab.kit.draw.svg import READABLE, Svg

MOST_STEPS = 40  # steps that the style knows
ONE = ", ".join(
    f".ddp-steps > input:nth-of-type({n}):checked ~ div > figure:nth-of-type({n})"
    for n in range(1, MOST_STEPS + 1)
)
STYLE = f"""\
.ddp-steps {{
  border: 1px solid #8886; border-radius: 8px; padding: 0.4rem 1rem 0.8rem;
  margin: 1rem 0; text-align: center;
}}
.ddp-steps > legend {{
  float: none; width: auto; margin: 0; padding: 0 0.4rem; font-size: 1rem;
  font-weight: 600;
}}
.ddp-steps > input {{
  display: inline-block !important; margin: 0.2rem 0.1rem; width: 0.9rem;
  height: 0.9rem; accent-color: #0072b2;
}}
.ddp-steps > div {{ display: block !important; overflow: visible !important; }}
.ddp-steps figure {{ display: none; overflow-x: auto; }}
{ONE} {{ display: block; }}
.ddp-steps figure > svg {{ border-radius: 6px; }}
.ddp-steps figcaption {{
  min-height: 4.4em; max-width: 34rem; margin: 0 auto; padding: 0.4rem 0;
}}
.ddp-steps figure a {{ display: none; }}
.ddp-steps label {{
  display: inline-block !important; border: 1px solid #8888; border-radius: 6px;
  margin: 0 0.2rem; padding: 0.15rem 0.9rem; cursor: pointer; user-select: none;
}}
.ddp-steps label:hover {{ border-color: currentcolor; }}
.ddp-steps label.ddp-end {{ visibility: hidden; }}
@media print {{
  .ddp-steps > input, .ddp-steps label {{ display: none !important; }}
  .ddp-steps figure {{ display: block !important; break-inside: avoid; }}
}}
"""
HIDDEN = 'style="display: none"'  # where there is no style of ours
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font-family: system-ui, sans-serif; margin: 1rem auto; max-width: 46rem; }}
{style}</style>
{steps}
</html>
"""
Shown = Callable[[Svg], str]


def readable(svg: Svg) -> str:
    """Return a picture that does not shrink until its text is too small to read."""
    least = math.ceil(svg.width * READABLE / svg.smallest)
    return str(svg).replace("max-width:100%", f"max-width:100%;min-width:{least}px", 1)


@dataclass(frozen=True)
class Steps:
    """Pictures of one thing, step by step; the title of each says what is new in it.

    A notebook shows it by itself. `name` is a word that no other of the page has.
    """

    name: str
    title: str
    pictures: Sequence[Svg]

    def __post_init__(self) -> None:
        if not 1 < len(self.pictures) <= MOST_STEPS:
            raise ValueError(
                f"{len(self.pictures)} steps; 2 to {MOST_STEPS} can be shown"
            )

    def html(self, shown: Shown = readable) -> str:
        """Return the steps as HTML, each picture as `shown` writes it."""
        return "\n".join(
            [
                '<fieldset class="ddp-steps" style="min-width: 0">',
                f"<legend>{escape(self.title)}</legend>",
                *self._dots(),
                '<div style="display: flex; overflow-x: auto">',
                *(self._step(n, shown) for n in range(1, len(self.pictures) + 1)),
                "</div>",
                "</fieldset>",
            ]
        )

    def page(self) -> str:
        """Return a page of its own, which needs no other file."""
        return PAGE.format(title=escape(self.title), style=STYLE, steps=self.html())

    def strip(self) -> str:
        """Return the pictures below each other, for paper and for readers of books."""
        return "\n".join(
            f"<div>{svg}<p>{self._words(n)}</p></div>"
            for n, svg in enumerate(self.pictures, 1)
        )

    def _dots(self) -> Iterator[str]:
        for n in range(1, len(self.pictures) + 1):
            label = escape(f"{self._count(n)}: {self.pictures[n - 1].title}")
            first = " checked" * (n == 1)
            yield (
                f'<input type="radio" name="{self.name}" id="{self.name}-{n}"{first} '
                f'aria-label="{label}" {HIDDEN}>'
            )

    def _step(self, n: int, shown: Shown) -> str:
        buttons = self._go(n - 1, "← back") + self._go(n + 1, "next →")
        return (
            f'<figure id="{self.name}-at-{n}" style="flex: 0 0 100%; margin: 0">\n'
            f"{shown(self.pictures[n - 1])}"
            f"<figcaption>{self._words(n)}</figcaption>\n<div>{buttons}</div></figure>"
        )

    def _go(self, n: int, text: str) -> str:
        if not 1 <= n <= len(self.pictures):
            return f'<label class="ddp-end" {HIDDEN}>{text}</label>'
        return (
            f'<label for="{self.name}-{n}" {HIDDEN}>{text}</label>'
            f'<a href="#{self.name}-at-{n}">{text}</a> '
        )

    def _words(self, n: int) -> str:
        return f"<b>{self._count(n)}</b> {escape(self.pictures[n - 1].title)}"

    def _count(self, n: int) -> str:
        return f"{n} of {len(self.pictures)}"

    def __repr__(self) -> str:
        """Say what the steps show, where no picture can be shown."""
        lines = [f"{n}. {svg!r}" for n, svg in enumerate(self.pictures, 1)]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        """Return the steps with each picture as an image, as a notebook keeps it."""
        return f"<style>{STYLE}</style>\n{self.html(Svg._repr_html_)}"
