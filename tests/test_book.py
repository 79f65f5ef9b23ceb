"""The book: every page is there, every link leads somewhere, and a guess is judged."""

import importlib.util
import math
import os
import random
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from collections.abc import Iterable
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlparse
from zipfile import ZipFile

import pytest
from conftest import copied
from test_jupyterlab import BROWSER_WAIT, CHROMIUM, FLAGS
from test_steps import book_costs

pytest.importorskip("sphinx", reason="the book needs `make book`'s packages")

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.kit.draw.colors import RANK_COLORS  # noqa: E402
from ddp_lab.kit.draw.svg import READABLE  # noqa: E402
from figs import STEPPERS, scale, schedules  # noqa: E402
from tools import course, notebooks  # noqa: E402

pytestmark = pytest.mark.processes

SITES = ("http:", "https:", "mailto:", "data:", "javascript:")
GUESSES = [  # a guess, what the page says, and whether the guess is right
    ("[7, 7]", "the answer is [7, 7], give or take 1 %", True),
    ("7.05 6.95", "the answer is [7, 7], give or take 1 %", True),
    ("7.2, 7", "the answer is [7, 7], give or take 1 %", False),
    ("7", "the answer is [7, 7]", True),
    ("[7]", "the answer is [7, 8]", False),
    ("no", "the answer is False", True),
    ("[yes, no]", "the answer is [True, False]", True),
    ("rank 1", "the answer is 1", True),
    ("30 minutes", "the answer is 30", True),
    ("6/7", "the answer is 0.857, give or take 0.5 %", True),
    ("Abort", "the answer is abort", True),
    ("an abort", "the answer is abort", False),
    ("4", "the run says 3, theory 4", True),
    ("3", "the run says 3, theory 4", True),
    ("5", "the run says 3, theory 4", False),
    ("1_000", "the answer is 1000", True),
    ("[2, 0]", "the answer is [0, 2], in any order", True),
    ("[2, 0]", "the answer is [0, 2]", False),
]


class Page(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors, self.loads = set(), set(), set()
        self.link, self.nested = None, set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.anchors |= {named[key] for key in ("id", "name") if named.get(key)}
        self.targets |= {named[key] for key in ("href", "src") if named.get(key)}
        loaded = {"img": "src", "script": "src"}.get(tag, "")
        if named.get("rel") == "stylesheet":
            loaded = "href"
        if named.get(loaded):
            self.loads.add(named[loaded])
        if tag == "a":
            if self.link:
                self.nested.add(self.link)
            self.link = named.get("href")

    def handle_endtag(self, tag):
        if tag == "a":
            self.link = None


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Build the book as where there is no PyTorch; return its folder."""
    folder = copied(tmp_path_factory.mktemp("book"))
    nothing = tmp_path_factory.mktemp("nothing")
    (nothing / "torch.py").write_text("raise ImportError('the book needs no torch')\n")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning"]
    command += ["--keep-going", "-c", "book", ".", "build/book"]
    env = os.environ | {"PYTHONPATH": str(nothing)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "build" / "book"


@pytest.fixture(scope="module")
def parsed(book):
    """Return what each page refers to."""
    return {page: Page(page.read_text()) for page in pages(book)}


def pages(book: Path) -> list[Path]:
    return sorted(page for page in book.rglob("*.html") if "_static" not in page.parts)


def test_every_lesson_and_program_has_a_page(book):
    for lesson in course.LESSONS:
        path = course.PATH / course.file(lesson)
        text = (book / "notebooks" / f"{path.stem}.html").read_text()
        assert f"{course.NUMBERS[lesson.name]} · {lesson.title}" in unescape(text)
        for program, _ in notebooks.programs(path):
            name = f"{program.parent.name}/{program.stem}"
            assert (book / "ddp_lab" / f"{name}.html").exists(), name
            assert (book / "ddp_lab" / f"{name}.py").exists(), name


def test_every_link_leads_somewhere(book, parsed):
    dead = set()
    for page, content in parsed.items():
        assert not content.nested, page.name  # a link in a link is none
        for target in content.targets:
            if target.startswith(SITES):
                continue
            name, _, anchor = unquote(target).partition("#")
            there = (page.parent / name.partition("?")[0]).resolve() if name else page
            known = parsed[there].anchors if there in parsed else None
            if not there.exists() or (anchor and known and anchor not in known):
                dead.add((str(page.relative_to(book)), target))
    assert dead == set()


def test_every_picture_has_words(book):
    for page in pages(book):
        for tag in re.findall(r"<img\b[^>]*>", page.read_text(), re.S):
            assert re.search(r'alt="[^"]', tag), (page.name, tag[:200])


def test_an_exercise_has_its_hints_and_an_answer(book):
    text = (book / "notebooks" / "03_ddp_basics.html").read_text()
    for title in ("Hint 1", "Hint 3", "An answer"):
        assert text.count(f"<summary>{title}</summary>") == 2


def test_no_solution_of_an_assignment_is_in_the_book(book):
    texts = [page.read_text() for page in pages(book)]
    for path in sorted((ROOT / "classroom" / "source").glob("*/*.ipynb")):
        source = "\n".join(cell.source for cell in notebooks.read(path).cells)
        solutions = re.findall("### BEGIN SOLUTION\n(.*?)### END", source, re.S)
        assert solutions, path
        lines = "\n".join(solutions).splitlines()
        longest = max((line.strip() for line in lines), key=len)
        assert not any(longest in unescape(text) for text in texts), longest


def test_no_page_is_heavy(parsed):
    """With its styles, scripts and drawings, a page has up to 2 MB."""
    for page, content in parsed.items():
        loads = [name for name in content.loads if name[:5] != "data:"]
        names = {unquote(name).partition("?")[0] for name in loads}
        files = {(page.parent / name).resolve() for name in names}
        weight = sum(file.stat().st_size for file in {page, *files} if file.is_file())
        assert weight < 2_000_000, (page.name, weight)


def test_headings_are_a_table_of_contents(book):
    for page in pages(book):
        article = page.read_text().partition("<article")[2].partition("</article>")[0]
        levels = [int(level) for level in re.findall(r"<h([1-6])\b", article)]
        if article:
            assert levels[:1] == [1] and levels.count(1) == 1, page.name
            steps = zip(levels, levels[1:], strict=False)
            assert all(b <= a + 1 for a, b in steps), (page.name, levels)


def test_steppers_are_where_lessons_link_to_them(book):
    for path, page in {
        **{course.PATH / course.file(x): "" for x in course.LESSONS},
        ROOT / "book" / "steps.md": "book/steps.html",
        ROOT / "book" / "steps_training.md": "book/steps_training.html",
    }.items():
        text = (book / (page or f"notebooks/{path.stem}.html")).read_text()
        linked = re.findall(r"figs/steps/(\w+)\.html", path.read_text())
        shown = re.findall(r'<input type="radio" name="(\w+)" id="\w+-1" ', text)
        assert shown == linked, path.name


def test_a_lesson_offers_its_files(book):
    page = book / "notebooks" / "03_ddp_basics.html"
    files = re.search(r'<p class="ddp-files">.*?</p>', page.read_text())[0]
    assert "by_hand.html" in files and "make open" in files
    (notebook,) = re.findall(r'href="([^"]*\.ipynb)" download', files)
    assert (page.parent / notebook).read_text().startswith("{")


def test_lines_that_a_cell_changes_stand_out(book):
    text = (book / "notebooks" / "03_ddp_basics.html").read_text()
    assert 'class="gd">-        average_gradients(model)' in text
    assert 'class="gi">+    model = DDP(model)' in text
    text = (book / "notebooks" / "08_when_it_hangs.html").read_text()
    assert 'class="gi">+    from datetime import timedelta' in text


def test_words_of_the_glossary_are_linked_where_they_are_first_used(book):
    words, linked = (ROOT / "book" / "glossary.md").read_text(), set()
    for page in sorted((book / "notebooks").glob("*.html")):
        found = re.findall(r"glossary\.html#term-([\w-]+)", page.read_text())
        assert len(found) == len(set(found)), page.name
        linked |= {*found}
    terms = re.findall(r"^(\w.*)\n  \S", words, re.M)
    assert linked == {term.replace(" ", "-") for term in terms}
    text = (book / "notebooks" / "00_start_here.html").read_text()
    before = text.partition("<article")[2].partition("#term-world-size")[0]
    prose = re.sub(r"<[^>]*>", "", "".join(re.findall(r"<(?:p|li)>.*", before, re.S)))
    assert not re.search("world size", prose, re.I)


def test_a_verb_is_not_linked_as_a_noun(book):
    for page in (book / "notebooks").glob("*.html"):
        for before in re.findall(r"\b(\w{1,9}) <a [^<>]*#term-store", page.read_text()):
            assert before in ("a", "the"), page.name


def test_the_index_names_rows_of_old_pages(book):
    text = re.sub(r"<[^>]+>", "", (book / "book" / "apis.html").read_text())
    assert re.search(r"all_gather_into_tensor of .*; old pages, row 21$", text, re.M)


def test_every_icon_is_drawn(book):
    drawn = {*re.findall(r"\.(fa-[\w-]+)", (book / "_static/icons.css").read_text())}
    for page in pages(book):
        found = re.findall(r'class="([^"]*\bfa[sr]?\b[^"]*)"', page.read_text())
        used = {name for words in found for name in words.split() if name[:3] == "fa-"}
        assert used - {"fa-lg", "fa-fw"} <= drawn, page.name


# In a browser


@pytest.fixture(scope="module")
def chromium():
    """Return a Chromium for all tests below."""
    sync = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("there is no Chromium")
    with sync.sync_playwright() as play:
        window = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield window
        window.close()


@contextmanager
def opened(chromium, **options):
    """Yield a page that remembers nothing of those before."""
    size = {"width": 1200, "height": 900}
    context = chromium.new_context(viewport=size, **options)
    context.set_default_timeout(BROWSER_WAIT)
    yield context.new_page()
    context.close()


@pytest.fixture
def page(chromium):
    with opened(chromium) as page:
        yield page


def script(name: str) -> str:
    return (ROOT / "book" / "static" / name).read_text()


def planner() -> str:
    """Return the planner's script, whose functions those of play.js use."""
    return (ROOT / "figs" / "planner.js").read_text()


def test_a_page_draws_ranks_in_their_colors():
    listed = re.search(r"COLORS = \[(.*?)\]", planner(), re.S)[1]
    assert re.findall('"(.*?)"', listed) == [*RANK_COLORS]


def test_no_two_scripts_of_a_page_have_one_name():
    """The second one would take the place of the first, for both."""
    scripts = [
        planner(),
        *(path.read_text() for path in (ROOT / "book" / "static").glob("*.js")),
    ]
    name = re.compile(r"^(?:async )?(?:function|const|let|var|class) (\w+)", re.M)
    names = [found for text in scripts for found in {*name.findall(text)}]
    assert sorted(names) == sorted({*names})


SOME = [
    "README.html",
    "notebooks/02_collectives.html",
    "notebooks/03_ddp_basics.html",
    "notebooks/19_pipelines.html",
    "book/play.html",
    "book/steps.html",
    "ddp_lab/start/hello.html",
    "search.html",
]
"""Pages that `make test` looks at; `make test-all` looks at the others."""
LOOKED_AT = [
    *SOME,
    "notebooks/14_model_parallel.html",
    "notebooks/08_when_it_hangs.html",
    "notebooks/21_choose_a_layout.html",
    "book/glossary.html",
    "book/apis.html",
    "TROUBLESHOOTING.html",
    "classroom/INSTRUCTORS.html",
]
"""Pages that axe-core looks at: one of each kind."""


def all_pages(book: Path) -> list[str]:
    """Return the names of all pages, but of the programs' only one: they are alike."""
    names = [str(page.relative_to(book)) for page in pages(book)]
    return [name for name in names if name in SOME or not name.startswith("ddp_lab")]


LOOK = """() => {
  const page = document.documentElement, room = page.clientWidth, wide = [];
  const scrolls = e => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const held = e => e && (scrolls(e) || held(e.parentElement));
  if (page.scrollWidth > room) wide.push("the page");
  for (const e of document.querySelectorAll("article *")) {
    const {width, right} = e.getBoundingClientRect();
    if (width && right > room + 1 && !held(e.parentElement)) wide.push(e.outerHTML);
  }
  const drawn = [...document.querySelectorAll("article img")];
  const letters = [...document.querySelectorAll("article svg text")];
  return {
    wide: wide.map(text => text.slice(0, 80)),
    code: [...document.querySelectorAll(".cell_input pre")]
      .filter(e => e.scrollWidth > e.clientWidth && !/.{89}/.test(e.textContent))
      .map(e => e.textContent.slice(0, 80)),
    images: drawn.map(e => [e.src, e.clientWidth / e.naturalWidth]),
    least: Math.min(...letters.filter(e => e.getClientRects().length)
      .map(e => e.getAttribute("font-size") * e.getScreenCTM().a)),
  };
}"""


def smallest_text(source: str) -> float:
    """Return the size of the smallest text of a drawing; none is as large as any."""
    place = urlparse(source)
    if source.startswith("data:image/svg"):
        drawing = b64decode(source.partition(",")[2])
    elif place.path.endswith(".svg"):
        drawing = Path(unquote(place.path)).read_bytes()
    else:
        return math.inf
    sizes = re.findall(rb'font-size="([\d.]+)"', drawing)
    return min(map(float, sizes), default=math.inf)


def look(page, width: int, scheme: str) -> list[str]:
    """Return what is wrong with a page that is open, in a window of `width` pixels."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_selector(f"html[data-theme={scheme}]")
    seen, wrong = page.evaluate(LOOK), []
    wrong += [f"too wide: {text}" for text in seen["wide"]]
    wrong += [f"code scrolls: {text}" for text in seen["code"] if width >= 1200]
    small = [
        source
        for source, scale in seen["images"]
        if 0 < scale * smallest_text(source) < READABLE - 0.1
    ]
    wrong += [f"words are too small: {source[:80]}" for source in small]
    if (seen["least"] or READABLE) < READABLE - 0.1:
        wrong.append(f"words of a stepper are {seen['least']} pixels")
    return [f"{width} {scheme}: {text}" for text in wrong]


def sweep(book: Path, page, names: Iterable[str]) -> list[str]:
    """Open pages, all that folds unfolded; return what is wrong with them."""
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))

    def asked(request):
        if not request.url.startswith(("file:", "data:")):
            said.append(f"asks the network for {request.url}")

    page.on("request", asked)
    for name in names:
        page.goto((book / name).as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(e => e.open = 1)")
        for width, scheme in ((1200, "light"), (820, "dark"), (390, "light")):
            said += [f"{name} {text}" for text in look(page, width, scheme)]
    return said


def test_pages_fit_and_are_silent(book, page):
    assert sweep(book, page, SOME) == []


@pytest.mark.full
def test_all_other_pages_fit_and_are_silent(book, page):
    assert sweep(book, page, {*all_pages(book)} - {*SOME}) == []


@pytest.mark.parametrize("name", ["notebooks/03_ddp_basics", "ddp_lab/ddp/basics"])
def test_code_has_a_button_that_copies_it(book, page, name):
    page.goto((book / f"{name}.html").as_uri())
    page.locator("div.highlight:has(pre) button.copybtn").first.wait_for(
        state="attached"
    )
    assert page.locator(".cell_output .copybtn").count() == 0


def test_a_guess_is_judged_and_kept(book, page):
    page.goto((book / "notebooks" / "03_ddp_basics.html").as_uri())
    form = page.locator(".ddp-guess").first
    hidden = page.locator(".ddp-hidden")
    before = hidden.count()
    for guess, told in (("2", "✗ wrong"), ("-2.66", "✓ right")):
        form.locator("input").fill(guess)
        form.locator("button").first.click()
        assert form.locator("output").inner_text().startswith(told)
    assert hidden.count() == before - 1
    page.reload()
    assert page.locator(".ddp-guess output").first.inner_text().startswith("✓")


def step_through(page) -> int:
    """Step through all steppers of a page, by keys and buttons; return their number."""
    boxes = page.locator(".ddp-steps").all()
    for box in boxes:
        dots, figures = box.locator("input"), box.locator("figure")
        shown = "figures => figures.findIndex(f => f.offsetParent)"
        dots.first.focus()
        for step in range(1, dots.count()):
            page.keyboard.press("ArrowRight")
            assert figures.evaluate_all(shown) == step
        box.locator("label:visible").first.click()
        assert figures.evaluate_all(shown) == dots.count() - 2
        page.keyboard.press("ArrowRight")  # a button hands the keys to the dots
        assert figures.evaluate_all(shown) == dots.count() - 1
        assert box.locator("figure:visible").count() == 1
    return len(boxes)


def test_steppers_step_by_keys_and_buttons(book, page):
    found = 0
    for name in ("steps", "steps_training"):
        page.goto((book / "book" / f"{name}.html").as_uri())
        found += step_through(page)
    assert found == len(STEPPERS)


def test_a_page_can_be_read_without_scripts(book, chromium):
    """Answers are not hidden, and steppers step: they are buttons of a form."""
    with opened(chromium, java_script_enabled=False) as page:
        page.goto((book / "notebooks" / "02_collectives.html").as_uri())
        text = page.locator("article").inner_text()
        assert "no guess yet: the answer is" in text
        page.locator("summary:has-text('Step by step')").first.click()
        box = page.locator(".ddp-steps").first
        box.locator("label:visible").last.click()
        assert box.locator("figure:visible b").inner_text().startswith("2 of")


def wrong_fields(book: Path, page, lessons: Iterable[course.Lesson]) -> list[str]:
    """Return the lessons' pages whose fields for guesses are not those asked for."""
    wrong = []
    for lesson in lessons:
        path = course.PATH / course.file(lesson)
        page.goto((book / "notebooks" / f"{path.stem}.html").as_uri())
        cells = [c for c in notebooks.read(path).cells if c.cell_type == "code"]
        asked = {
            line
            for cell in cells
            for output in cell.outputs
            for line, below in lines_in_pairs(output.get("text", ""))
            if re.match("  no guess yet: the (answer|run says .* theory) ", below)
        }
        labels = page.locator(".ddp-guess label").all_text_contents()
        wrong += [path.name] * ({label.strip() for label in labels} != asked)
    return wrong


def lines_in_pairs(text: str) -> list[tuple[str, str]]:
    lines = text.splitlines()
    return [*zip(lines, lines[1:], strict=False)]


def test_a_question_has_a_field(book, page):
    assert wrong_fields(book, page, course.LESSONS[2:5]) == []


@pytest.mark.full
def test_every_question_has_a_field(book, page):
    assert wrong_fields(book, page, course.LESSONS) == []


def test_the_page_judges_as_the_lessons_do(page):
    page.evaluate(f"() => {{ {script('book.js')}; window.fits = fits; }}")
    for guess, told, right in GUESSES:
        found = page.evaluate("([guess, told]) => fits(guess, told)", [guess, told])
        assert found == right, (guess, told)


def test_the_search_finds_words_without_a_server(book, page):
    for word in ("broadcast", "no_sync", "slurm", "rref"):
        page.goto(f"{(book / 'search.html').as_uri()}?q={word}")
        page.wait_for_selector("#search-results li")


def test_the_search_shows_the_lines_that_it_found_if_the_book_is_served(book, page):
    command = [sys.executable, "-u", book.parents[1] / "book" / "serve.py"]
    env = os.environ | {"BROWSER": "true"}  # a program that opens nothing
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, text=True
    ) as served:
        try:
            address = re.search(r"http\S+(?=README)", served.stdout.readline())[0]
            page.goto(f"{address}search.html?q=no_sync")
            page.wait_for_selector("#search-results .context", timeout=10_000)
        finally:
            served.terminate()


def test_the_page_computes_costs_as_python_does(page):
    costs = book_costs()
    fast, slow = costs.Wire(1e-6, 1e-11), costs.Wire(3e-5, 1e-9)
    wires = [wire._asdict() for wire in (fast, slow)]
    page.evaluate(f"() => {{ {planner()}{script('play.js')}; window.costs = costs; }}")
    for n, node, size in product((2, 4, 16, 1024), (1, 2, 8), (8, 1e6, 1e10)):
        if node <= n:
            call = "([n, size, fast, slow, node]) => costs(n, size, fast, slow, node)"
            found = page.evaluate(call, [n, size, *wires, node])
            told = costs.formulas(n, size, fast, slow, node)
            assert found == pytest.approx(told, rel=1e-9, abs=0), (n, node, size)


def lesson_road():
    """Load the cost model of the lesson on roads, which no package holds."""
    place = ROOT / "ddp_lab" / "scale" / "road.py"
    spec = importlib.util.spec_from_file_location("road", place)
    road = sys.modules["road"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(road)
    return road


def memory_of(road, model: dict, shape: dict) -> tuple[float, float, float]:
    """Return what the lesson says that a device holds, in bytes."""
    made = road.Training(
        **model, devices=0, machine=8, memory=0, flops=0, fast=0, slow=0
    )
    return road.memory(made, road.Cut(**shape))


SEVEN_BILLION = {"parameters": 6.7e9, "layers": 32, "width": 4096, "length": 2048}


def drawn_situations(road, count: int):
    """Yield trainings and layouts as a reader may set them, and odder ones."""
    chance = random.Random(33)
    for _ in range(count):
        tensor, pipeline, data = (2 ** chance.randrange(5) for _ in range(3))
        near = max(1, 8 // tensor)
        hybrid = near if data % near == 0 else data
        shards = {"DDP": 1, "hybrid sharded": hybrid}
        kind = chance.choice([*shards, "sharded optimizer", "sharded"])
        shard = shards.get(kind, data)
        kind = kind if shard > 1 else "DDP"
        cut = road.Cut(kind, data, shard, tensor, pipeline, 2 ** chance.randrange(3))
        cut = cut._replace(
            recompute=chance.choice([0, 0.25, 1]), laps=chance.choice([1, 1, 2, 5])
        )
        width = chance.choice([128, 1024, 5120, 16384, 25600])
        old = {"kept": chance.randrange(35, 200) * width, "whole": 10 * width}
        yield (
            road.Training(
                parameters=10 ** chance.uniform(6, 12),
                layers=chance.randrange(8, 128),
                width=width,
                sequences=chance.randrange(1, 4096),
                length=2 ** chance.randrange(9, 17),
                devices=data * tensor * pipeline,
                **road.H100 | {"machine": chance.choice([1, 4, 8])},
                slow=chance.uniform(1, 100) * 1e9,
                **chance.choice([old, {}]),
            ),
            cut,
        )


def test_the_planner_computes_what_the_lesson_does(page):
    road = lesson_road()
    page.evaluate(f"""() => {{ {planner()}; window.told = ([t, c]) => (
        {{memory: memory(t, c), sent: sent(t, c), seconds: seconds(t, c),
          share: shareOfPeak(t, c, 1e15)}}); }}""")
    drawn = [*drawn_situations(road, 300)]
    assert len({cut.kind for _, cut in drawn}) == 4
    given = [[vars(t), c._asdict()] for t, c in drawn]
    found = page.evaluate("given => given.map(told)", given)
    for (t, c), got in zip(drawn, found, strict=True):
        held = got["memory"]
        state = held["weights"] + held["gradients"] + held["optimizer"]
        told = state, held["gathered"], held["activations"]
        assert told == pytest.approx(road.memory(t, c)), c
        assert got["seconds"] | {"main memory": 0} == pytest.approx(
            road.seconds(t, c)
        ), c
        for why, pair in road.sent(t, c).items():
            assert got["sent"][why] == pytest.approx(pair), (why, c)
        took = sum(road.seconds(t, c).values())
        alone = road.operations(t) * t.sequences * t.length / t.devices
        assert got["share"] == pytest.approx(alone / took / 1e15)


def test_the_planner_starts_from_the_lessons_published_layouts(page):
    (path,) = ROOT.glob("notebooks/*_choose_a_layout.ipynb")
    (cell,) = (c for c in notebooks.read(path).cells if "\nROWS = {" in c.source)
    road = lesson_road()
    known = dict(vars(road))
    source = cell.source.partition("\nPUBLISHED = ")[0]
    exec(re.sub(r"^from ddp_lab.*$", "", source, flags=re.M), known)  # its own table
    found = page.evaluate(f"() => {{ {planner()}; return PUBLISHED; }}")
    assert len(found) == 10
    for name, (reported, heads, sizes, gpu, slow, layout) in found.items():
        *lesson, machine, cut, laps = known["ROWS"][name]
        assert lesson == [reported, heads, tuple(sizes)], name
        peak = {"peak": machine["peak"]}
        assert gpu | {"slow": slow * 1e9} | peak == machine, name
        assert layout == [*road.Cut(*cut, laps=laps)[:7], laps], name


def test_the_planner_draws_the_schedules_that_the_figures_do(page):
    page.evaluate(f"() => {{ {planner()}; window.schedule = schedule; }}")
    for p, m, v in ((1, 3, 1), (2, 2, 1), (3, 6, 1), (4, 3, 1), (2, 4, 2), (4, 8, 3)):
        orders = (
            schedules.interleaved(p, m, v) if v > 1 else schedules.one_f_one_b(p, m)
        )
        begun = schedules.starts(orders)
        found = page.evaluate(f"schedule({p}, {m}, {v}, [1, 1])")
        assert [[work[2] for work in row] for row in found] == begun, (p, m, v)
        kinds = [[("FB"[work[0]], work[1]) for work in row] for row in found]
        assert kinds == [[work[:2] for work in order] for order in orders]
        long = page.evaluate(f"schedule({p}, {m}, {v}, [1, 2])")
        end = max(work[3] for row in long for work in row)
        assert 1 - 3 * m * v / end == pytest.approx((p - 1) / (m * v + p - 1))


def test_the_page_computes_the_bubble_that_schedules_have(page):
    page.evaluate(
        f"() => {{ {planner()}{script('play.js')}; window.bubble = bubble; }}"
    )
    for p, m, v in ((2, 2, 1), (3, 6, 1), (4, 8, 1), (2, 4, 2), (3, 6, 2), (4, 8, 4)):
        begun = schedules.starts(schedules.interleaved(p, m, v))
        share = 1 - 2 * m * v / (1 + max(map(max, begun)))  # of the slots, idle
        assert page.evaluate(f"bubble({p}, {m}, {v})") == pytest.approx(share), (p, m)


UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1}


def press(page, slider: str, *keys: str) -> None:
    """Move a slider as a reader does who has no mouse."""
    page.locator(f"label:has-text('{slider}') input").focus()
    for key in keys:
        page.keyboard.press(key)


def test_a_slider_changes_what_is_told(book, page):
    costs = book_costs()
    page.goto((book / "book" / "play.html").as_uri())
    press(page, "size of the tensor S", "End")
    press(page, "ranks n", "ArrowLeft")
    fast, slow = costs.Wire(2e-6, 8e-12), costs.Wire(2e-5, 8e-11)
    told = costs.formulas(8, 2**34, fast, slow, 8)
    cells = page.locator("#play-cost tbody td:nth-child(2)").all_inner_texts()
    found = [float(n) * UNITS[unit] for n, unit in map(str.split, cells)]
    assert found == pytest.approx([*told.values()], rel=0.01)

    press(page, "ranks that cut each layer", "ArrowRight")
    shape = {"kind": "sharded", "data": 8, "shard": 8, "tensor": 2, "pipeline": 1}
    shape |= {"rows": 1, "recompute": 0}
    total = sum(memory_of(lesson_road(), SEVEN_BILLION | {"sequences": 64}, shape))
    says = page.locator("#play-memory p").first.inner_text()
    assert says.startswith(f"{total / 1e9:.0f} GB fits on")

    box = page.locator("#play-planner")
    box.locator("select").select_option("Megatron 1T")
    told = box.locator(".ddp-told")
    assert told.inner_text().endswith(
        "38 % of the GPUs' peak; in the paper a step took 102.6 s, which is 39 %."
    )
    press(page, "layers recomputed", "Home")
    assert "It does not fit" in told.inner_text()
    assert "in the paper" not in told.inner_text()
    press(page, "GPUs", "Home")
    assert told.inner_text() == "Tensor 8 and pipeline 64 need 512 GPUs."
    assert box.locator("svg rect").count() == 0  # nor is the last layout drawn

    press(page, "stages of each rank v", "ArrowRight")
    assert "= 3 / 19: " in page.locator("#play-bubble p").inner_text()


def test_a_cells_picture_becomes_a_form_that_starts_there(page):
    road, said = lesson_road(), []
    page.on("pageerror", lambda error: said.append(str(error)))
    t = road.Training(175e9, 96, 12288, 1536, 2048, 1000, **road.H100, slow=7e9)
    drawn = scale.planned(t, cut := road.Cut("DDP", 15, 1, 8, 8, laps=2))
    page.set_content(f"<div id='cell'>{drawn._repr_html_()}</div>")
    assert page.locator("img").count() == 0 and said == []
    told = page.locator(".ddp-told").inner_text()
    took = sum(road.seconds(t, cut).values())
    assert "Tensor 8 × pipeline 8 × data 15, with 103 micro" in told
    assert "counted as one lap. 40 GPUs are left over." in told and "It fits" in told
    plain = sum(road.seconds(t, cut._replace(laps=1)).values())
    assert took < plain and f"a step of {plain:#.3g} s" in told
    page.locator(".ddp-mesh").click(position={"x": 30, "y": 12})
    assert "show the groups of rank 0" not in page.locator(".ddp-play").inner_text()


@pytest.mark.full
def test_axe_finds_nothing_serious(book, page, tmp_path):
    """Axe-core looks for what keeps people with a screen reader, or weak eyes, out."""
    command = ["npm", "install", "--silent", "--prefix", str(tmp_path), "axe-core"]
    if not shutil.which("npm") or subprocess.run(command, timeout=120).returncode:
        pytest.skip("axe-core cannot be fetched")
    axe = (tmp_path / "node_modules" / "axe-core" / "axe.min.js").read_text()
    wrong = set()
    for name, scheme in product(LOOKED_AT, ("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        page.goto((book / name).as_uri())
        page.wait_for_function("document.getAnimations().length === 0")  # of colors
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        wrong |= {
            (name, scheme, each["id"], each["nodes"][0]["html"][:100])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        }
    assert wrong == set()


@pytest.mark.full
def test_a_reader_of_books_can_open_the_book(tmp_path):
    folder = copied(tmp_path)
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning"]
    command += ["-b", "epub", "-c", "book", ".", "build/epub"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with ZipFile(folder / "build" / "epub" / "ddp-lab.epub") as book:
        names = [name for name in book.namelist() if name.endswith(".xhtml")]
        assert len(names) > len(course.LESSONS)
        for name in names:
            ElementTree.fromstring(book.read(name))  # it has to be well formed
        drawn = book.read("notebooks/02_collectives.xhtml").decode()
        assert drawn.count("<svg") >= 30 and 'type="radio"' not in drawn
