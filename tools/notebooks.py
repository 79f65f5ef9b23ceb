"""Work on the notebooks as files: write their programs, execute them, keep them tidy.

python -m tools.notebooks scripts            write every program, run nothing
python -m tools.notebooks outputs [NN ...]   execute, normalise and save
python -m tools.notebooks tidy               normalise and save, run nothing
"""

import argparse
import base64
import json
import mimetypes
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

from ddp_lab import ROOT
from ddp_lab.kit.cell import compose
from ddp_lab.kit.cell.compose import Order
from whichrank import free_port

FOLDER = ROOT / "notebooks"
KERNELSPEC = {
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
    "name": "python3",
}
# Without it, JupyterLab and GitHub show code that has not run yet without colors.
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
# The kernel's warning about its transport tells the reader nothing.
KERNEL_ARGUMENTS = ["--IPKernelApp.log_level=40"]
FOLDED = "folded"  # the tag of a cell whose code a reader need not see
# A full stop with what may close after it, a space, and how a sentence may begin.
END_OF_SENTENCE = re.compile(r"([.!?][)`*\"”]*) +(?=[\"“(*`\[$]*[A-Z0-9`%\[])")
ABBREVIATION = re.compile(r"(\be\.g|\bi\.e|\bvs|\betc|^\s*\d+)\.$")
ITEM = re.compile(r"\s*([-*+] |\d+\. )?")  # how a paragraph, or an item, begins
# An image in Markdown, as ![alt](path) or <img ... src="path">, whose path is a file's.
IMAGE = re.compile(
    r"""(!\[(?:[^][]|\[[^][]*\])*\]\(|<img\b[^>]*?\ssrc=["'])"""  # up to the path
    r"""([^)"'\s:]+\.(?:svg|png))(?=[)"'\s])"""
)
SCRIPT = re.compile(r"\n?<script>.*?</script>", re.DOTALL)
STUBS = ("exercise", "puzzle")
"""How the names of programs begin that git ignores: unsolved, a cell writes them."""
FIXED = ("|", "#", "<", ">", "![", "$$", "---", "```")  # lines that are no prose


def lessons(numbers: list[str] | None = None) -> list[Path]:
    """Return the notebooks in reading order; of `numbers` ("03" or "3") if given.

    Raises:
        SystemExit: if a number has no notebook.
    """
    paths = sorted(FOLDER.glob("[0-9A][0-9]_*.ipynb"))
    if not numbers:
        return paths
    by_number = {path.name[:2]: path for path in paths}
    wanted = [number.upper().zfill(2)[:2] for number in numbers]
    if unknown := [number for number in wanted if number not in by_number]:
        known = ", ".join(by_number)
        sys.exit(f"there is no lesson {', '.join(unknown)}; there are {known}")
    return [by_number[number] for number in wanted]


def read(path: Path) -> NotebookNode:
    """Return the notebook at `path`, in nbformat 4."""
    return nbformat.read(path, as_version=4)


def programs(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that the notebook `path` writes, and its text."""
    cells = list(program_cells(path))
    own = {order.path for order, _ in cells}
    texts: dict[str, str] = {}  # what the cells above have made of them

    def known(name: str) -> str | None:
        if name in own or not (ROOT / name).exists():
            return texts.get(name)
        return (ROOT / name).read_text()

    for order, text in cells:
        made = compose.whole(order, text, known, f"notebooks/{path.name}")
        texts[order.path] = made.text
    for name, text in texts.items():
        yield ROOT / name, text


def program_cells(path: Path) -> Iterator[tuple[Order, str]]:
    """Yield the order and the text of each cell that writes a program."""
    for cell in read(path).cells:
        if cell.cell_type == "code" and (found := compose.ordered(cell.source)):
            yield found


def one_sentence_a_line(markdown: str) -> str:
    """Return `markdown` with each sentence on a line of its own, so that a diff is one.

    Tables, headings, pictures, fenced code and HTML stay as they are.
    """
    done: list[str] = []  # lines
    going_on, fenced = "", False  # the paragraph, or the item of a list, so far
    for line in [*markdown.split("\n"), ""]:
        kept = fenced or not line.strip() or line.lstrip().startswith(FIXED)
        fenced ^= line.lstrip().startswith("```")
        if kept or re.match(r"\s*([-*+]|\d+\.) ", line):
            done += _sentences(going_on)
            going_on = "" if kept else line.rstrip()
        else:
            going_on += (" " + line.strip()) if going_on else line.rstrip()
        if kept:
            done.append(line)
    return "\n".join(done[:-1])


def _sentences(text: str) -> list[str]:
    """Split a paragraph, or an item of a list, whose further lines are indented."""
    lines, start = [], 0
    for end in END_OF_SENTENCE.finditer(text):
        if not ABBREVIATION.search(text[start : end.end(1)]):
            lines.append(text[start : end.end(1)])
            start = end.end()
    lines += [text[start:]] if text else []
    begin = ITEM.match(text)
    indent = " " * (begin.end() if begin else 0)
    return [*lines[:1], *(indent + line for line in lines[1:])]


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Return `notebook` with nothing in it that differs between two executions.

    Prose has a sentence a line. Metadata is the kernelspec, the language, the tags, and
    that what stands below a heading "More" is collapsed;
    code cells count from 1, because nbval compares nothing in a cell without a count;
    neighboring streams are one, and outputs have no script.
    """
    notebook.metadata = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE}
    count = 0
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = {"tags": tags} if tags else {}
        if FOLDED in tags:
            cell.metadata["jupyter"] = {"source_hidden": True}  # in JupyterLab
            cell.metadata["transient"] = {"remove_source": True}  # by nbconvert
        cell.pop("attachments", None)
        if cell.cell_type == "markdown":
            cell.source = one_sentence_a_line(cell.source)
            if cell.source.startswith("## More: "):
                cell.metadata["jp-MarkdownHeadingCollapsed"] = True  # in JupyterLab
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = [_normal_output(out, count) for out in _joined(cell.outputs)]
    return notebook


def _normal_output(output: NotebookNode, count: int) -> NotebookNode:
    here = json.dumps(f"{ROOT}/")[1:-1]  # tracebacks name files below it
    output = nbformat.from_dict(json.loads(json.dumps(output).replace(here, "")))
    if output.output_type == "execute_result":
        output.execution_count = count
    if "text/html" in output.get("data", {}):  # a fresh clone runs no script anyway
        output.data["text/html"] = SCRIPT.sub("", output.data["text/html"])
    return output


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join streams of the same name that follow each other."""
    joined: list[NotebookNode] = []
    for output in outputs:
        name = output.get("name")
        if name and joined and joined[-1].get("name") == name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def with_images(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Return `notebook` with the images that its prose shows inside it.

    It can then be mailed, or turned into a page, without the files beside it. They are
    data URIs, because JupyterLab shows no SVG that is an attachment.

    Args:
        notebook: what is changed.
        folder: where the notebook lies, or was copied from; its paths begin there.
    """

    def inside(found: re.Match) -> str:
        path = folder / found[2]
        if not path.is_file():
            return found[0]
        kind, _ = mimetypes.guess_type(path)
        data = base64.b64encode(path.read_bytes()).decode()
        return f"{found[1]}data:{kind};base64,{data}"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = IMAGE.sub(inside, cell.source)
    return notebook


def dumps(notebook: NotebookNode) -> str:
    """Return the text of the file in which `notebook` is committed."""
    return nbformat.writes(notebook) + "\n"


def write_scripts(begin: str | tuple[str, ...] = "") -> Iterator[str]:
    """Write the programs whose names `begin` so; yield a line about each."""
    for path in lessons():
        for file, text in programs(path):
            if file.name.startswith(begin):
                file.write_bytes(text.encode())
                yield f"{path.name} → {file.relative_to(ROOT)}"


def kernel_ports() -> Config:
    """Return ports for one kernel.

    Those that Jupyter takes may be given to any process before the kernel listens.
    """
    names = ("shell", "iopub", "stdin", "hb", "control")
    ports = {f"{name}_port": free_port() for name in names}
    return Config(AsyncKernelManager={"cache_ports": False, **ports})


def client(notebook: NotebookNode, folder: Path, **options: Any) -> NotebookClient:
    """Return what executes `notebook` as JupyterLab would in `folder`."""
    return NotebookClient(
        notebook,
        timeout=600,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=KERNEL_ARGUMENTS,
        config=kernel_ports(),
        **options,
    )


def execute(path: Path) -> None:
    """Execute the notebook `path` where JupyterLab would, normalise it and save it.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises; nothing is saved.
    """
    notebook = read(path)
    client(notebook, path.parent).execute()
    tidy(path, notebook)


def tidy(path: Path, notebook: NotebookNode) -> None:
    """Save `notebook` at `path` in the form in which it is committed."""
    path.write_text(dumps(normalise(notebook)))


def main() -> None:
    """Run the command that the docstring of this module describes."""
    warnings.filterwarnings("ignore", category=UserWarning, module="jupyter_client")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["scripts", "outputs", "tidy"])
    parser.add_argument("lessons", nargs="*")
    args = parser.parse_args()
    if args.command == "scripts":
        print(*write_scripts(), sep="\n")
        return
    for path in lessons(args.lessons):
        if args.command == "tidy":
            tidy(path, read(path))
        else:
            execute(path)
        print(f"{args.command}: {path.name}", flush=True)


if __name__ == "__main__":
    main()
