"""Copies look alike however they are dressed up; two people's own work does not."""

import re

import nbformat
import pytest
from course import as_notebook, solution, starter

from classroom.extras import similar

RING = solution("ring")["ring.py"]
GIVEN = similar.read(starter("ring"))
# Two ring all_reduces by people who have not met.
EVEN_ODD = """
def bounds(length, parts):
    small, extra = divmod(length, parts)
    edges = [0]
    for part in range(parts):
        edges.append(edges[-1] + small + (1 if part < extra else 0))
    return edges


def exchange(send_buf, recv_buf):
    me, n = dist.get_rank(), dist.get_world_size()
    if n % 2 == 0 and me % 2 == 0 or n % 2 and me:
        dist.send(send_buf, (me + 1) % n)
        dist.recv(recv_buf, (me + n - 1) % n)
    else:
        kept = send_buf.clone()
        dist.recv(recv_buf, (me + n - 1) % n)
        dist.send(kept, (me + 1) % n)


def reduce_scatter(chunks):
    me, n = dist.get_rank(), dist.get_world_size()
    at = me
    while True:
        at_next = at - 1 if at else n - 1
        if at_next == (me + 1) % n and n > 1:
            pass
        got = torch.zeros(len(chunks[at_next]), dtype=chunks[at_next].dtype)
        exchange(chunks[at], got)
        chunks[at_next].add_(got)
        at = at_next
        if at == (me + 1) % n:
            return


def all_gather(chunks):
    n = len(chunks)
    for hop in reversed(range(1, n)):
        source = dist.get_rank() + hop + 1
        exchange(chunks[source % n].contiguous(), chunks[(source - 1) % n])


def all_reduce(x):
    edges = bounds(x.numel(), dist.get_world_size())
    pieces = [x.narrow(0, lo, hi - lo) for lo, hi in zip(edges, edges[1:])]
    if len(pieces) > 1:
        reduce_scatter(pieces)
        all_gather(pieces)


"""
BATCHED = """
def bounds(length, parts):
    sizes = [length // parts] * parts
    for i in range(length % parts):
        sizes[i] += 1
    return [sum(sizes[:i]) for i in range(parts + 1)]


def exchange(send_buf, recv_buf):
    world = dist.get_world_size()
    ops = []
    ops.append(dist.P2POp(dist.isend, send_buf, (dist.get_rank() + 1) % world))
    ops.append(dist.P2POp(dist.irecv, recv_buf, (dist.get_rank() - 1) % world))
    if send_buf.numel() + recv_buf.numel() == 0:
        return
    [request.wait() for request in dist.batch_isend_irecv(ops)]


def reduce_scatter(chunks):
    index = dist.get_rank()
    scratch = [torch.empty_like(chunk) for chunk in chunks]
    for _ in chunks[1:]:
        incoming = (index - 1) % len(chunks)
        exchange(chunks[index], scratch[incoming])
        chunks[incoming] += scratch[incoming]
        index = incoming


def all_gather(chunks):
    index = (dist.get_rank() + 1) % len(chunks)
    for _ in chunks[1:]:
        exchange(chunks[index], chunks[index - 1])
        index = (index - 1) % len(chunks)


def all_reduce(x):
    limits = bounds(x.shape[0], dist.get_world_size())
    parts = []
    for start, stop in zip(limits[:-1], limits[1:]):
        parts.append(x[start:stop])
    reduce_scatter(parts)
    all_gather(parts)


"""


def parts(program: str) -> tuple[str, str, str]:
    """Return what is before the student's functions, these, and what is behind."""
    head, tail = program.index("def bounds"), program.index("@record")
    return program[:head], program[head:tail], program[tail:]


def framed(body: str) -> str:
    """Return a program with this in place of the functions that students write."""
    head, _, tail = parts(RING)
    return head + body.strip("\n") + "\n\n\n" + tail


def renamed(program: str) -> str:
    for old, new in {
        "chunks": "pieces",
        "works": "handles",
        "work": "handle",
        "recv_buf": "incoming",
        "send_buf": "outgoing",
        "world_size": "n",
        "step": "k",
        "mine": "target",
    }.items():
        program = re.sub(rf"\b{old}\b", new, program)
    return program


def commented(program: str) -> str:
    head, body, tail = parts(program)
    body = re.sub(r'""".*?"""', '"""Mine alone."""', body, flags=re.S)
    body = re.sub(r"  # .*", "", body)
    body = re.sub(r"(?m)^(    .*)$", r"    # I thought of this\n\1  # indeed", body)
    return head + body + tail


def reworded(program: str) -> str:
    return re.sub(r'(?<=[( ])f?"[^"\n]+"', '"other words"', program)


def undocumented(program: str) -> str:
    return re.sub(r' *""".*?"""\n', "", program, flags=re.S)


def reordered(program: str) -> str:
    head, body, tail = parts(program)
    return head + "".join(reversed(re.split(r"(?m)^(?=def )", body))) + tail


def share(one: str, other: str) -> float:
    """Return how much of two programs is alike; 0 if that is not worth telling."""
    texts = {"a": similar.read({"ring.py": one}), "b": similar.read({"ring.py": other})}
    return next((pair.share for pair in similar.compare(texts, GIVEN)), 0.0)


@pytest.mark.parametrize("original", [RING, framed(EVEN_ODD), framed(BATCHED)])
@pytest.mark.parametrize(
    "disguise",
    [
        lambda text: text,
        renamed,
        commented,
        reordered,
        undocumented,
        reworded,
        lambda text: commented(renamed(reordered(text))),
    ],
    ids="none renamed commented reordered undocumented reworded all".split(),
)
def test_a_copy_is_found(disguise, original):
    assert share(original, disguise(original)) > 0.75


def test_half_a_copy_is_found():
    mixed = BATCHED[: BATCHED.index("def all_gather")]
    mixed += EVEN_ODD[EVEN_ODD.index("def all_gather") :]
    assert share(framed(mixed), framed(BATCHED)) > 0.5


@pytest.mark.parametrize(
    "one, other",
    [
        (RING, framed(EVEN_ODD)),
        (RING, framed(BATCHED)),
        (framed(EVEN_ODD), framed(BATCHED)),
    ],
)
def test_work_of_ones_own_is_not(one, other):
    assert share(one, other) == 0


def test_what_the_starter_gives_is_nobodys():
    assert share(starter("ring")["ring.py"], starter("ring")["ring.py"]) == 0


def test_what_many_have_written_is_nobodys():
    text = similar.read({"ring.py": RING})
    crowd = {str(number): text for number in range(similar.COMMON + 1)}
    assert similar.compare(crowd, GIVEN) == []
    crowd.popitem()
    assert similar.compare(crowd, GIVEN)


@pytest.mark.parametrize(
    "text",
    ["", "def (", "'''", "\tx\n  y\n", "x = '\\", "(" * 300, "\x00", "٣ = ½"]
    + ["x = " + "-" * 10_000],  # too much for the parser
)
def test_what_is_no_python_breaks_nothing(text):
    assert similar.read({"ring.py": text}).words[-1] == "end of ring.py"
    assert share(text, RING) == 0


def test_the_page_shows_both_sides_and_executes_nothing():
    trap = RING.replace("now the sum of", "<script>alert(1)</script>")
    texts = {"anna": similar.read({"ring.py": RING})}
    texts["<b>"] = similar.read({"ring.py": trap})
    pairs = similar.compare(texts, GIVEN)
    page = similar.page("ring", pairs, texts, GIVEN)
    assert "anna and &lt;b&gt;: 100% alike" in page and "no proof" in page
    assert page.count('<span class="alike">    works = [dist.isend') == 2
    assert '<span class="given">import torch.distributed as dist</span>' in page
    assert "<script>" not in page and "<b>" not in page


def test_whatever_name_one_gives_is_a_name():
    one = "import numpy as np\nclass A:\n    def f(self, a, *b):\n"
    one += "        self.c = np.e\n        return self.c * a, 'text'\n"
    other = "import numpy as n\nclass B:\n    def g(me, x, *y):\n"
    other += "        me.d = n.e\n        return me.d * x, 'another'\n"
    assert similar.read({"a.py": one}).words == similar.read({"a.py": other}).words
    pi = other.replace("n.e", "n.pi")  # which is somebody else's name
    assert similar.read({"a.py": one}).words != similar.read({"a.py": pi}).words


def test_a_docstring_is_no_word():
    told = 'def f():\n    """What it does."""\n    return 1\n'
    untold = "def f():\n    return 1\n"
    assert similar.read({"a.py": told}).words == similar.read({"a.py": untold}).words


def test_a_copy_in_a_longer_program_is_one():
    longer = BATCHED + EVEN_ODD.replace("def ", "def my_")
    assert share(framed(BATCHED), framed(longer)) > 0.9


def test_what_is_told_is_in_both():
    program = "\n".join(f"value = [thing.f{i}(a, b) for a in b]" for i in range(5))
    texts = {"a": similar.read({"a.py": program})}
    texts["b"] = similar.read({"a.py": f"{program}\n{program}"})
    (pair,) = similar.compare(texts, GIVEN)
    assert pair.tokens <= len(texts["a"].words)


def test_a_submission_without_end_is_looked_at_in_bounds():
    text = similar.read({"ring.py": "x += 1\n" * similar.MOST_TOKENS})
    assert len(text.words) == len(text.at) == similar.MOST_TOKENS


def test_what_one_has_written_often_is_not_what_many_have():
    again = "\n".join("value = [thing.send(a, b) for a in b]" for _ in range(20))
    again = f"def all_reduce(x):\n{again}\n"
    assert share(again, again) == 1


def test_little_of_ones_own_is_nothing_to_compare():
    line = "value = [thing.send(a, b) for a in b]\n"
    assert similar.RUN < len(similar.read({"a.py": line}).words) < similar.LEAST
    assert share(line, line) == 0


def test_those_who_share_most_come_first():
    half = BATCHED[: BATCHED.index("def all_gather")]
    half += EVEN_ODD[EVEN_ODD.index("def all_gather") :]
    texts = {"anna": framed(half), "bert": framed(BATCHED), "carl": framed(half)}
    texts = {name: similar.read({"ring.py": text}) for name, text in texts.items()}
    names = [pair.names for pair in similar.compare(texts, GIVEN)]
    assert names[0] == ("anna", "carl") and ("anna", "bert") in names


def test_a_page_has_an_end():
    text = similar.read({"ring.py": RING})
    pair = similar.Pair(("anna", "bert"), 1.0, 99, (set(), set()))
    page = similar.page("ring", [pair] * 99, {"anna": text, "bert": text}, GIVEN)
    assert page.count("<details>") == similar.SHOWN_PAIRS


def test_two_files_have_no_run_across_their_border():
    words = similar.read({"a.py": "x = 1", "b.py": "y = 2"}).words
    assert words == ["name", "=", "1", "end of a.py", "name", "=", "2", "end of b.py"]


def test_a_report_compares_all_and_the_solution(tmp_path, monkeypatch):
    def place(step, name, student="."):
        return tmp_path / step / student / f"{name}.ipynb"

    def put(step, student, programs):
        path = place(step, "ring", student)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(as_notebook("ring", programs)))

    monkeypatch.setattr(similar, "notebook", place)
    monkeypatch.setattr(similar, "COURSE", tmp_path)
    put("source", ".", solution("ring"))
    put("release", ".", starter("ring"))
    put("submitted", "anna", {"ring.py": framed(EVEN_ODD)})
    put("submitted", "bert", {"ring.py": renamed(framed(EVEN_ODD))})
    put("submitted", "carl", {"ring.py": commented(RING)})
    put("submitted", "dora", starter("ring"))
    said = similar.report("ring", ["anna", "bert", "carl", "dora", "emil"])
    rows = [line.split()[:2] for line in said.splitlines()]
    assert ["anna", "bert"] in rows and ["carl", "(the"] in rows
    assert "5 submissions, pairs that look alike: 2; a reason to talk" in said
    page = (tmp_path / "similar" / "ring.html").read_text()
    assert page.count("<details>") == 2
