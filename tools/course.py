"""The course, stated once: python -m tools.course

From the rows of `LESSONS` this writes the table in README.md and, in each notebook, the
title, the small table under it and the "Next" line of the summary. A lesson's number is
its place among the rows. A notebook with another number is renamed; links, paths and
every "lesson 8" in the repository follow.

To insert a lesson, add its row, and its notebook as notebooks/99_NAME.ipynb.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ddp_lab import ROOT
from tools import notebooks

RANKS = "Ranks"
DATA_PARALLEL = "Data parallel"
FASTER = "Faster"
MODELS = "Models that do not fit"
CLUSTERS = "Clusters"
AFTER = "After pretraining"
APPENDIX = "Appendix"


@dataclass(frozen=True)
class Lesson:
    """A lesson, and what it asks of its reader and of the machine."""

    name: str
    """Of the notebook, without its number."""
    title: str
    about: str
    """What it is about, to follow a colon."""
    part: str
    minutes: int
    """That the lesson takes, at 200 words and 10 lines of code a minute."""
    ranks: int
    programs: str
    """The folder in ddp_lab."""
    after: str = ""
    """Names of the lessons that come before this one; theirs come before that."""
    needs: str = "a CPU; GPUs are used where there are some"
    more: int = 0
    """Minutes for what stands under More, besides."""


LESSONS = (
    Lesson(
        "start_here",
        "Start here",
        "processes, ranks, a sum that they share, and the first failures",
        RANKS,
        minutes=50,
        ranks=2,
        programs="start",
    ),
    Lesson(
        "point_to_point",
        "Point to point",
        "messages between two ranks, and the first deadlock",
        RANKS,
        minutes=50,
        more=30,
        ranks=4,
        programs="p2p",
        after="start_here",
    ),
    Lesson(
        "collectives",
        "Collectives",
        "eight calls that all ranks make together, and the ring behind one of them",
        RANKS,
        minutes=60,
        more=85,
        ranks=4,
        programs="collectives",
        after="start_here",
    ),
    Lesson(
        "ddp_basics",
        "DDP basics",
        "DDP by hand, and the proof that its steps are right",
        DATA_PARALLEL,
        minutes=55,
        more=15,
        ranks=2,
        programs="ddp",
        after="collectives",
    ),
    Lesson(
        "your_script",
        "Your script on eight GPUs",
        "a training script for one device becomes one for many, change by change",
        DATA_PARALLEL,
        minutes=75,
        more=15,
        ranks=2,
        programs="script",
        after="ddp_basics",
    ),
    Lesson(
        "ddp_in_practice",
        "DDP in practice",
        "gradient accumulation, stragglers, skipped steps, 16 bits and torch.compile",
        DATA_PARALLEL,
        minutes=50,
        more=50,
        ranks=2,
        programs="practice",
        after="ddp_basics",
    ),
    Lesson(
        "checkpointing",
        "Checkpointing",
        "stop a run, resume it, and end with the same bits",
        DATA_PARALLEL,
        minutes=55,
        more=30,
        ranks=2,
        programs="checkpoint",
        after="ddp_basics",
    ),
    Lesson(
        "cifar10_resnet",
        "ResNet on CIFAR-10",
        "the same training on more ranks: global batch, learning rate, warm-up",
        DATA_PARALLEL,
        minutes=45,
        more=25,
        ranks=2,
        programs="cifar10",
        after="ddp_in_practice checkpointing",
    ),
    Lesson(
        "when_it_hangs",
        "When it hangs",
        "find the rank and the line when nothing more is printed",
        DATA_PARALLEL,
        minutes=70,
        more=15,
        ranks=4,
        programs="clinic",
        after="ddp_basics",
        needs="a CPU; GPUs are left alone",
    ),
    Lesson(
        "the_ward",
        "The ward",
        "seven more sick programs, for practice",
        DATA_PARALLEL,
        minutes=110,
        more=5,
        ranks=4,
        programs="clinic",
        after="when_it_hangs",
        needs="a CPU; GPUs are left alone",
    ),
    Lesson(
        "profile_a_step",
        "Profile a step",
        "loader, Python, kernels, messages or waiting: where the milliseconds go",
        FASTER,
        minutes=50,
        more=15,
        ranks=2,
        programs="profiling",
        after="ddp_in_practice",
    ),
    Lesson(
        "inside_ddp",
        "Inside DDP",
        "DDP rebuilt, feature by feature, each equal to one process and counted",
        FASTER,
        minutes=55,
        more=40,
        ranks=2,
        programs="inside",
        after="ddp_in_practice",
    ),
    Lesson(
        "what_communication_costs",
        "What communication costs",
        "messages, sums and steps, predicted before they run and measured",
        FASTER,
        minutes=50,
        more=35,
        ranks=4,
        programs="cost",
        after="point_to_point inside_ddp",
        needs="a CPU; the slow wire needs Linux",
    ),
    Lesson(
        "sending_less",
        "Sending less",
        "fewer bits, numbers and messages, and less of them over the slow wire",
        FASTER,
        minutes=60,
        more=25,
        ranks=4,
        programs="less",
        after="inside_ddp",
        needs="a CPU; bytes are counted on Linux",
    ),
    Lesson(
        "model_parallel",
        "Model parallel",
        "what a training step needs, a network on two devices, and what to do next",
        MODELS,
        minutes=45,
        ranks=4,
        programs="model",
        after="point_to_point ddp_basics",
    ),
    Lesson(
        "sharding",
        "Sharding",
        "ZeRO by hand: which rank stores what, and when",
        MODELS,
        minutes=45,
        more=20,
        ranks=4,
        programs="sharding",
        after="ddp_in_practice model_parallel",
    ),
    Lesson(
        "fully_shard",
        "fully_shard",
        "the library's sharding (FSDP2), in one file that trains, saves and resumes",
        MODELS,
        minutes=60,
        more=60,
        ranks=4,
        programs="sharding",
        after="sharding checkpointing",
    ),
    Lesson(
        "tensor_parallel",
        "Tensor parallel",
        "one transformer cut through all of its weights, by hand",
        MODELS,
        minutes=55,
        more=35,
        ranks=4,
        programs="tensor",
        after="model_parallel",
    ),
    Lesson(
        "meshes",
        "DTensor and meshes",
        "placements, what each change of them costs, and two cuts at once",
        MODELS,
        minutes=60,
        more=25,
        ranks=4,
        programs="tensor",
        after="tensor_parallel fully_shard",
    ),
    Lesson(
        "pipelines",
        "Pipelines",
        "who waits and who stores how much, foreseen, and a GPT in stages",
        MODELS,
        minutes=65,
        more=35,
        ranks=4,
        programs="pipeline",
        after="model_parallel checkpointing",
    ),
    Lesson(
        "long_sequences_and_experts",
        "Long sequences and experts",
        "one sequence and one layer of experts, each spread over all ranks",
        MODELS,
        minutes=60,
        more=50,
        ranks=4,
        programs="long",
        after="tensor_parallel",
    ),
    Lesson(
        "choose_a_layout",
        "Choose a layout",
        "which cuts for 7, 70 or 400 billion parameters, and three of them at once",
        MODELS,
        minutes=55,
        more=55,
        ranks=8,
        programs="scale",
        after="meshes pipelines",
    ),
    Lesson(
        "many_machines",
        "Many machines",
        "two nodes, a SLURM job, and the first hour on a new cluster",
        CLUSTERS,
        minutes=40,
        more=35,
        ranks=4,
        programs="nodes",
        after="ddp_in_practice",
    ),
    Lesson(
        "machines_that_fail",
        "Machines that fail",
        "a training that outlives the machines it runs on",
        CLUSTERS,
        minutes=50,
        more=25,
        ranks=2,
        programs="elastic",
        after="checkpointing many_machines",
        needs="a CPU; Linux for a cable that is pulled",
    ),
    Lesson(
        "fine_tune_a_model",
        "Fine-tune a model",
        "others' weights read, tuned and exported by ranks that never hold them all",
        AFTER,
        minutes=60,
        more=10,
        ranks=2,
        programs="tune",
        after="your_script fully_shard",
    ),
    Lesson(
        "generators_and_a_trainer",
        "Generators and a trainer",
        "some ranks answer, others learn from rewards, and weights travel between them",
        AFTER,
        minutes=55,
        more=5,
        ranks=4,
        programs="rewards",
        after="ddp_in_practice fully_shard",
    ),
    Lesson(
        "remote_calls",
        "Remote calls",
        "one worker calls another, as agents and servers do",
        APPENDIX,
        minutes=95,
        more=10,
        ranks=4,
        programs="rpc",
        after="collectives",
        needs="a CPU; GPUs are left alone",
    ),
    Lesson(
        "training_over_rpc",
        "Training over remote calls",
        "parameter servers, and what has taken their place",
        APPENDIX,
        minutes=105,
        more=15,
        ranks=4,
        programs="rpc",
        after="model_parallel remote_calls",
        needs="a CPU",
    ),
    Lesson(
        "sharded_checkpoints",
        "Sharded checkpoints",
        "every rank writes its part, and any number of ranks reads them",
        APPENDIX,
        minutes=75,
        ranks=4,
        programs="checkpoint",
        after="checkpointing",
    ),
    Lesson(
        "what_old_pages_say",
        "What old pages say",
        "which lines of an old script still hold",
        APPENDIX,
        minutes=90,
        ranks=4,
        programs="old_pages",
        after="ddp_basics",
    ),
)
NAMED = {lesson.name: lesson for lesson in LESSONS}


@dataclass(frozen=True)
class Track:
    """Lessons in an order that makes sense without the others."""

    reader: str
    """Who takes it."""
    lessons: str
    """Their names."""
    knows: str = ""
    """Lessons, and all before them, that the reader has done."""


TRACKS = (
    Track(
        "need eight GPUs this week",
        "start_here collectives ddp_basics your_script ddp_in_practice checkpointing "
        "when_it_hangs",
    ),
    Track(
        "have a model that does not fit",
        "point_to_point model_parallel sharding fully_shard",
        knows="ddp_in_practice checkpointing",
    ),
    Track(
        "fine-tune a model",
        "start_here point_to_point collectives ddp_basics your_script ddp_in_practice "
        "checkpointing model_parallel sharding fully_shard fine_tune_a_model",
    ),
    Track("have a job that hangs", "when_it_hangs the_ward", knows="ddp_basics"),
)


def numbered() -> Iterator[tuple[str, str]]:
    """Yield each lesson's name and number: 0, 1, ..., and in the appendix A1, ..."""
    main = [lesson for lesson in LESSONS if lesson.part != APPENDIX]
    yield from ((lesson.name, str(number)) for number, lesson in enumerate(main))
    rest = [lesson for lesson in LESSONS if lesson.part == APPENDIX]
    yield from ((lesson.name, f"A{number}") for number, lesson in enumerate(rest, 1))


NUMBERS = dict(numbered())
PATH = ROOT / "notebooks"
ALL = "[All lessons](../README.md#the-lessons)."

# --- what is written from the rows ---

TABLE = re.compile(
    r"(?<=<!-- make course writes this -->\n).*(?=<!-- up to here)", re.S
)
PATHS = re.compile(
    r"(?<=<!-- make course writes the paths -->\n).*(?=<!-- the paths end -->)", re.S
)
HEAD = re.compile(r"^\| Minutes \|.*\n\|[-|]+\n\|.*\|$", re.M)
NEXT = re.compile(
    r"^- (?:Next: |That was the last lesson).*\n(?:  If you .*\n)*  \[All lessons\].*",
    re.M,
)


def file(lesson: Lesson) -> str:
    """Return the file name of a lesson's notebook."""
    return f"{stem(lesson.name)}.ipynb"


def stem(name: str) -> str:
    """Return the file name of a lesson's notebook, without its ending."""
    return f"{NUMBERS[name]:0>2}_{name}"


def link(lesson: Lesson) -> str:
    """Return a link from one notebook to another."""
    return f"[{NUMBERS[lesson.name]} · {lesson.title}]({file(lesson)})"


def before(lesson: Lesson) -> list[Lesson]:
    """Return the lessons that a reader should have done before `lesson`."""
    return [NAMED[name] for name in lesson.after.split()]


def parts() -> dict[str, list[Lesson]]:
    """Return the lessons by part, in the order in which they are read."""
    found: dict[str, list[Lesson]] = {}
    for lesson in LESSONS:
        found.setdefault(lesson.part, []).append(lesson)
    return found


def hours(lessons: list[Lesson]) -> str:
    """Return how long some lessons take."""
    return f"{sum(lesson.minutes for lesson in lessons) / 60:.1f} hours"


def table() -> str:
    """Return the table of README.md."""
    lines = ["| | Lesson | Minutes | Ranks | After | Programs |"]
    lines.append("|---|---|---|---|---|---|")
    for part, lessons in parts().items():
        lines.append(f"| | **{part}**, {hours(lessons)} | | | | |")
        lines += map(row, lessons)
    return "\n".join(["", *lines, "", ""])


def paths() -> str:
    """Return the table of README.md that says where to begin."""
    lines = ["| If you | take lessons | Time |", "|---|---|---|"]
    for track in TRACKS:
        taken = [NAMED[name] for name in track.lessons.split()]
        links = (f"[{each.title}](notebooks/{file(each)})" for each in taken)
        lines.append(f"| {track.reader} | {' · '.join(links)} | {hours(taken)} |")
    return "\n".join(["", *lines, "", ""])


def row(lesson: Lesson) -> str:
    """Return a lesson's row of that table."""
    title = f"[{lesson.title}](notebooks/{file(lesson)}): {lesson.about}"
    after = ", ".join(NUMBERS[each.name] for each in before(lesson))
    minutes = f"{lesson.minutes} + {lesson.more}" if lesson.more else lesson.minutes
    cells = [NUMBERS[lesson.name], title, minutes, lesson.ranks, after]
    return f"| {' | '.join(map(str, cells))} | `{lesson.programs}/` |"


def head(lesson: Lesson) -> str:
    """Return the small table at the top of a notebook."""
    more = f", and {lesson.more} for *More*" if lesson.more else ""
    cells = [f"{lesson.minutes}{more}", str(lesson.ranks), lesson.needs]
    cells.append(", ".join(map(link, before(lesson))) or "nothing")
    top = "| Minutes | Ranks | Needs | Before this |\n|---|---|---|---|"
    return f"{top}\n| {' | '.join(cells)} |"


def goes_on(lesson: Lesson) -> str:
    """Return the last lines of a notebook's summary: what to read next."""
    order = sum(parts().values(), [])
    follows = [*order, None][order.index(lesson) + 1]
    if not follows:
        return f"- That was the last lesson.\n  {ALL}"
    lines = [f"- Next: {link(follows)}: {follows.about}."]
    for track in TRACKS:
        taken = [NAMED[name] for name in track.lessons.split()]
        for here, then in pairwise(taken):
            if here is lesson and then is not follows:
                lines.append(f"  If you {track.reader}: {link(then)}.")
    return "\n".join([*lines, f"  {ALL}"])


def written() -> Iterator[tuple[Path, str]]:
    """Yield the files that say something of the course, each as it should be."""
    readme = ROOT / "README.md"
    text = replaced(PATHS, paths(), readme.read_text(), readme.name)
    yield readme, replaced(TABLE, table(), text, readme.name)
    for lesson in LESSONS:
        path = PATH / file(lesson)
        notebook = notebooks.read(path)
        top = notebook.cells[0]
        title = f"# {NUMBERS[lesson.name]} · {lesson.title}"
        top.source = re.sub(r"\A#.*", title, top.source)
        top.source = replaced(HEAD, head(lesson), top.source, path.name)
        for cell in notebook.cells:
            if cell.cell_type == "markdown" and "## Summary" in cell.source:
                cell.source = replaced(NEXT, goes_on(lesson), cell.source, path.name)
        yield path, notebooks.dumps(notebook)


def replaced(pattern: re.Pattern, new: str, text: str, where: str) -> str:
    """Return `text` with the one match of `pattern` replaced.

    Raises:
        SystemExit: if there is none, or more than one.
    """
    text, count = pattern.subn(lambda _: new, text)
    if count != 1:
        raise SystemExit(f"{where}: {count} places, and not one, for:\n{new}")
    return text


# --- numbers ---

NAMES = "|".join(NUMBERS)
FILE = re.compile(rf"\b[\dA]\d_({NAMES})\b")
LABEL = re.compile(
    rf"(\[(?:[Ll]esson )?)A?\d+"
    rf"((?: · [^]\n]*)?\]\((?:[\w./]*/)?[\dA]\d_({NAMES})\.ipynb)"
)
ONE = r"\bA?\d+\b"
PROSE = re.compile(rf"\b[Ll]essons? {ONE}(?:(?:, and |, | and | to |–){ONE})*")
HISTORY = re.compile(r"CHANGELOG\.md|tests/evidence/")
"""What keeps the numbers that it was written with."""


def renumber() -> None:
    """Give every notebook the number of its row, wherever the repository names it."""
    paths = notebooks.lessons()
    moved = {_label(path.name): NUMBERS[path.stem[3:]] for path in paths}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if HISTORY.match(name) or path.suffix in (".png", ".svg") or not path.is_file():
            continue
        text = path.read_text()
        if (new := follows(text, moved)) != text:
            path.write_text(new)
    for path in notebooks.lessons():
        path.rename(PATH / FILE.sub(named, path.name))


def _label(name: str) -> str:
    """Return the number in the name of a notebook: 0 of 00_start_here.ipynb."""
    return name[:2].removeprefix("0")


def named(match: re.Match) -> str:
    """Return a notebook's name with its number of today."""
    return stem(match[1])


def follows(text: str, moved: dict[str, str]) -> str:
    """Return `text` with the numbers of today.

    Links have the number of where they lead; in prose, and in tables with a column of
    lessons, numbers go by what has `moved`, old number to new.
    """

    def today(match: re.Match) -> str:
        return re.sub(ONE, lambda n: moved.get(n[0], n[0]), match[0])

    if any(old != new for old, new in moved.items()):
        text = columns(PROSE.sub(today, text), today)
    text = LABEL.sub(lambda m: f"{m[1]}{NUMBERS[m[3]]}{m[2]}", text)
    return FILE.sub(named, text)


def columns(text: str, today: Callable[[re.Match], str]) -> str:
    """Return `text` with `today` in the columns of its tables headed "lessons"."""
    lines, column = text.split("\n"), 0
    for at, line in enumerate(lines):
        cells = line.split("|")
        if not line.startswith("|"):
            column = 0
        elif not column:
            heads = [cell.strip().lower() for cell in cells]
            column = next((n for n, h in enumerate(heads) if h.endswith("lessons")), 0)
        else:
            cells[column] = re.sub(ONE, today, cells[column])
            lines[at] = "|".join(cells)
    return "\n".join(lines)


def main() -> None:
    """Renumber what has moved, then write what follows from the rows."""
    renumber()
    for path, text in written():
        if path.read_text() != text:
            path.write_text(text)
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
