"""What a lesson's page has beside its notebook: programs, steppers, hints, answers."""

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import PythonLexer
from pygments.token import Generic
from sphinx import addnodes

from ddp_lab import ROOT
from ddp_lab.kit.cell.hints import ANSWERS, hints_in
from figs import STEPPERS
from figs.step_by_step import STYLE
from tools import course, notebooks

PROGRAM = re.compile(r"^%%program\b.*?\bddp_lab/(\w+/\w+)\.py")
VERBS = ("store",)
AFTER_AN_ARTICLE = r"(?:(?<=\ba )|(?<=\bthe ))"
OTHER_SENSES = {"inside_ddp": ("backend", "node")}
"""Words of the glossary that a lesson uses for something else, say autograd's graph."""
LINKS = nodes.reference, addnodes.pending_xref, addnodes.download_reference
GLOSSARY = ROOT / "book" / "glossary.md"
STEPPER = re.compile(r"figs/steps/(\w+)\.html")
SIDEBAR = "the sidebar of programs"
RUN = (
    'To run it: <a href="../README.html#start"><code>make open</code></a>, '
    'or <a href="../ELSEWHERE.html">in Colab or Kaggle</a>.'
)
LINK = re.compile(r'(href="\.\./ddp_lab/[\w/]+)\.py"')  # as the cells show it


SINGLE = re.compile(r"""<(img|br|hr|input|wbr)\b((?:[^>"']|"[^"]*"|'[^']*')*?)\s*/?>""")
CHANGED = {"- ": Generic.Deleted, "+ ": Generic.Inserted}


class ProgramDiff(Lexer):
    """Python, but for the lines that a cell takes out of a program or puts into it."""

    def get_tokens_unprocessed(self, text):
        """Yield where each token begins, what it is, and its text."""
        at, python = 0, PythonLexer()
        for line in text.splitlines(keepends=True):
            if kind := CHANGED.get(line[:2]):
                yield at, kind, line
            else:
                tokens = python.get_tokens_unprocessed(line)
                yield from ((at + n, kind, piece) for n, kind, piece in tokens)
            at += len(line)


@cache
def programs(notebook: Path) -> dict[Path, str]:
    """Return the programs of a lesson, in the order in which it writes them."""
    return dict(notebooks.programs(notebook))


def whole_programs(app):
    """Yield a page for each program: where a lesson's links to the whole file lead."""
    for lesson in course.LESSONS:
        notebook = course.PATH / course.file(lesson)
        for program, text in sorted(programs(notebook).items()):
            name = program.relative_to(ROOT)
            title = f"{course.NUMBERS[lesson.name]} · {lesson.title}"
            back = f'<a href="../../notebooks/{notebook.stem}.html">{title}</a>'
            file = f'<a href="{program.name}" download="">{name}</a>'
            code = highlight(text, PythonLexer(), HtmlFormatter())
            body = f"<h1>{program.name}</h1><p>{file}, of {back}</p>{code}"
            yield (
                str(name.with_suffix("")),
                {"title": str(name), "body": body},
                "page.html",
            )
            (app.outdir / name).parent.mkdir(parents=True, exist_ok=True)
            (app.outdir / name).write_text(text)


def share_sidebar(app, page, template, context, doctree):
    """Let the navigation beside all programs be one: it takes longer than the rest."""
    if page.startswith("ddp_lab/"):
        if SIDEBAR not in app.builder.globalcontext:
            app.builder.globalcontext[SIDEBAR] = cache(context["toctree"])
        context["toctree"] = app.builder.globalcontext[SIDEBAR]


def link_programs(doctree):
    """Let links to programs lead to their pages."""
    for raw in doctree.findall(nodes.raw):
        text = LINK.sub(r'\1.html"', raw.astext())
        raw.children = [nodes.Text(text)]
        raw.rawsource = text


def add_answers(app, doctree):
    """Put hints and an answer, folded, below each cell that asks for one."""
    for cell in list(doctree.findall(nodes.container)):
        if "cell" not in cell["classes"]:
            continue
        code = next(cell.findall(nodes.literal_block), None)
        found = code and PROGRAM.match(code.astext())
        answer = ANSWERS / f"{found[1]}.py" if found else None
        if answer and answer.is_file():
            app.env.note_dependency(answer)
            cell.parent.insert(cell.parent.index(cell) + 1, folded(answer))


def folded(answer: Path) -> nodes.container:
    """Return the hints and the answer of an exercise, each behind a click."""
    text = answer.read_text()
    box = nodes.container(classes=["ddp-answers"])
    for number, hint in enumerate(hints_in(text), 1):
        box += fold(f"Hint {number}", [nodes.paragraph("", hint)])
    body = text.partition('"""\n\n\n')[2] or text.split('"""', 2)[2].strip()
    code = nodes.literal_block(body, body, language="python")
    box += fold("An answer", [code])
    return box


def fold(title: str, inside: list[nodes.Node]) -> nodes.container:
    """Return what shows `inside` when its title is clicked."""
    start = f'<details class="ddp-fold"><summary>{title}</summary>'
    box = nodes.container(classes=["ddp-folded"])
    box += nodes.raw("", start, format="html")
    box += inside
    box += nodes.raw("", "</details>", format="html")
    return box


def fold_more(doctree):
    """Fold what stands below each heading "More: ..."."""
    for section in list(doctree.findall(nodes.section)):
        title, *inside = section.children
        if title.astext().startswith("More: "):
            section.children = [title]
            section += fold("Show", inside)


def color_programs(doctree):
    """Color what a cell writes into a program as Python, or as a diff."""
    for code in doctree.findall(nodes.literal_block):
        if PROGRAM.match(text := code.astext()) or text.startswith("%%variant "):
            changed = re.search(r"^[-+] ", text, re.M)
            code["language"] = "ddp-diff" if changed else "python"


def terms() -> re.Pattern:
    """Return what finds the glossary's words, in the singular or the plural."""
    found = re.findall(r"^(\w.*)\n  \S", GLOSSARY.read_text(), re.M)
    words = []
    for term in sorted(found, key=len, reverse=True):  # local rank before rank
        first = f"[{term[0]}{term[0].upper()}]" if term.islower() else term[0]
        noun = AFTER_AN_ARTICLE if term in VERBS else ""
        words.append(noun + first + re.escape(term[1:]))
    return re.compile(rf"(?<![\w.])({'|'.join(words)})(?:e?s)?(?![\w(])")


def link_terms(doctree, lesson: str):
    """Let the first use of each of the glossary's words lead there."""
    pattern, done = terms(), {*OTHER_SENSES.get(lesson, ())}
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            if inside(text, *LINKS, nodes.title, nodes.table, nodes.raw):
                continue
            pieces, at = [], 0
            for found in pattern.finditer(text):
                term = found[1]
                if term[1:].islower():  # not DDP
                    term = term.lower()
                if term not in done:
                    pieces += [nodes.Text(text[at : found.start()]), link(found, term)]
                    at = found.end()
                    done.add(term)
            if pieces:
                pieces.append(nodes.Text(text[at:]))
                text.parent.replace(text, [each for each in pieces if each.astext()])


def inside(node: nodes.Node | None, *kinds: type) -> bool:
    """Return whether a node stands in one of `kinds`."""
    return node is not None and (isinstance(node, kinds) or inside(node.parent, *kinds))


def link(found: re.Match, term: str) -> nodes.Node:
    """Return a link to the glossary with the words that were `found`."""
    words = nodes.inline("", found[0])
    return addnodes.pending_xref(
        "", words, refdomain="std", reftype="term", reftarget=term
    )


def show_steps(app, doctree):
    """Put steppers where a paragraph links to their pages, in place of the links."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        links = [*paragraph.findall(addnodes.download_reference)]
        found = [STEPPER.search(link["reftarget"]) for link in links]
        if not found or None in found:
            continue
        for name in found:
            app.env.note_dependency(ROOT / name[0])
        fresh = [nodes.raw("", drawn(app, name[1]), format="html") for name in found]
        if not app.env.docname.startswith("book/steps"):
            titles = [link.astext() for link in links]
            fresh = [fold(f"Step by step: {', '.join(titles)}", fresh)]
        paragraph.replace_self(fresh)


def drawn(app, name: str) -> str:
    """Return a stepper, or a strip of its pictures where nothing can be pressed."""
    steps = STEPPERS[name]()
    return steps.strip() if app.builder.name == "epub" else steps.html()


def write_style(app):
    """Put the steppers' style among the pages' others."""
    if app.builder.format == "html":
        folder = app.outdir / "_static"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "steps.css").write_text(STYLE)


def offer_files(app, doctree):
    """Say below a lesson's first table how to run it, and link its files."""
    notebook = ROOT / f"{app.env.docname}.ipynb"
    table = next(doctree.findall(nodes.table), None)
    if table is None or app.builder.name == "epub":
        return
    links = [
        f'<a href="../_sources/notebooks/{notebook.name}" download>the notebook</a>'
    ]
    for path in programs(notebook):
        name = path.relative_to(ROOT).with_suffix("")
        links.append(f'<a href="../{name}.html">{name.name}.py</a>')
    files = f'<p class="ddp-files">{RUN}<br>Files: {", ".join(links)}</p>'
    table.parent.insert(
        table.parent.index(table) + 1, nodes.raw("", files, format="html")
    )


def as_xhtml(app, doctree, page):
    """Close the elements that HTML leaves open; readers of books ask for it."""
    if app.builder.name == "epub":
        for raw in doctree.findall(nodes.raw):
            text = SINGLE.sub(r"<\1\2/>", raw.astext()).replace("&nbsp;", "&#160;")
            raw.children = [nodes.Text(text)]
            raw.rawsource = text


def complete(app, doctree):
    """Add to a page what belongs there; Sphinx calls this for each."""
    show_steps(app, doctree)
    if app.env.docname.startswith("notebooks/"):
        offer_files(app, doctree)
        link_programs(doctree)
        color_programs(doctree)
        add_answers(app, doctree)
        fold_more(doctree)
        app.env.note_dependency(GLOSSARY)
        link_terms(doctree, app.env.docname.rpartition("/")[2][3:])


def setup(app):
    """Connect this module; called by Sphinx."""
    app.connect("builder-inited", write_style)
    app.add_lexer("ddp-diff", ProgramDiff)
    app.connect("doctree-read", complete, priority=400)  # before files are collected
    app.connect("doctree-resolved", as_xhtml)
    app.connect("html-collect-pages", whole_programs)
    app.connect("html-page-context", share_sidebar, priority=100)  # before the theme
    return {"parallel_read_safe": True}
