"""A learner's guess: right is told right, however it is written, and wrong is not."""

import ast
import re
from fractions import Fraction

import pytest
from IPython.core.error import UsageError

from ddp_lab.kit import predict, score, suspect
from ddp_lab.kit.cell import predict as room
from ddp_lab.kit.cell.answers import fits, show
from ddp_lab.kit.cell.predict import Guessed
from ddp_lab.kit.draw.colors import WHITE, contrast
from whichrank.explain.causes.ended import Raised
from whichrank.explain.causes.waiting import Absent, Busy
from whichrank.explain.failure import Failure
from whichrank.explain.states import Elsewhere, Left, Waits
from whichrank.explain.symptoms import Symptom
from whichrank.record.stacks import Frame
from whichrank.run.result import Run

pytest.importorskip("nbformat", reason="the notebooks' tests need Jupyter")

from tools import notebooks  # noqa: E402

lessons = pytest.mark.parametrize(
    "path", notebooks.lessons(), ids=lambda path: path.stem
)


@pytest.fixture
def shown(monkeypatch):
    """Return the list of what is shown, and forget what was compared before."""
    bundles = []
    monkeypatch.setattr(room, "display", lambda bundle, raw: bundles.append(bundle))
    monkeypatch.setattr(
        room, "print", lambda text: bundles.append({"text/plain": text}), raising=False
    )
    monkeypatch.setattr(room, "COMPARED", {})
    return bundles


# --- what means the same ---

RIGHT = [
    ((1, 2), [1, 2]),
    ("1, 2", [1, 2]),
    ("[1 2]", [1, 2]),
    (range(3), [0, 1, 2]),
    ({0: 5, 1: 7}, [5, 7]),
    ([[0], [1]], [0, 1]),
    ([(1, 2), (3,)], [[1, 2], [3]]),
    ("3", 3),
    ("30 minutes", 30.0),
    ("75 %", 75),
    ("1/2", 0.5),
    (Fraction(1, 2), 0.5),
    (0.1 + 0.2, 0.3),
    (7, [7.0, 7.0]),
    ([4850] * 4, 4850),
    (1, True),
    ("no", False),
    ("[true, False]", [True, False]),
    (" Sharded ", "sharded"),
    ("after, before", ["after", "before"]),
    ("Different Calls", Symptom.DIFFERENT_CALLS),
    (["a crash"], "a crash"),
    (["3"], "3"),
    ("rank 1", 1),
    ("0 of 3", 0),
    ("twice as long", 2),
    ("double", 2),
    ("float32", 32),
    ("only rank 1", [1]),
    ("Rank 0 and rank 2", {0, 2}),
    ("1683, 1617 and 1650", [1683, 1617, 1650]),
    ("Rank 1", {1}),
    (3, "3"),
    ([2, 1], {1, 2}),
    ("2, 1", {1, 2}),
    (1, {1}),
    ([], set()),
    ([[2, 1], 1], [{1, 2}, {1}]),
    ("62,500", 62_500),
    (["39,312", "98,304"], [39_312, 98_304]),
    ("1,683 1,617 1,650", [1683, 1617, 1650]),
    ("[456,384; 1,825,536]", [456_384, 1_825_536]),
    ("62.5 kB", 62_500),
    ("36 KiB", 36 * 1024),
    ("2 MB", 2),
    ("4 %", 0.04),
    ("4%", 4),
    ("3.6×", 3.6),
    ("456384 / 4", 114_096),
    ("1 and 1", [1, 1]),
    ("1, 2 and 3", [1, 2, 3]),
    ("3.6 and 20", [3.6, 20]),
    ("ranks 0, 1, 2 and 3", {0, 1, 2, 3}),
    ("0-3", {0, 1, 2, 3}),
    ("0 to 3", [0, 1, 2, 3]),
    ("3 forward, 2 backward", [3, 2]),
    ("5 all_gathers", 5),
    ("block 3", 3),
    ("once", 1),
    ("one", 1),
    ("just one", 1),
    ("one of them", 1),
    ("all four", 4),
    ("six ranks", 6),
    (["ring", "to root"], ["ring", "to_root"]),
    ("all-gather", "all_gather"),
    ("allgather", "all_gather"),
    ("accumulation.", "accumulation"),
    ("the median", "median"),
    ("an abort", "abort"),
    (["DDP", "backward(2)"], ["DDP()", "backward 2"]),
    ([None, "Shard(0)"], ["none", "Shard(0)"]),
]


class Broken:
    """A guess that cannot even be looked at."""

    def __eq__(self, other):
        raise RuntimeError

    def __repr__(self):
        raise RuntimeError


CIRCLE: list = []
CIRCLE.append(CIRCLE)

WRONG = [
    ((1, 3), [1, 2]),
    ([2, 1], [1, 2]),
    ([1], [1, 2]),
    ([1, 2, 3], [1, 2]),
    ([None, None], [1, 2]),
    (1684, 1683),
    ("none", 1),
    (199_681, 199_680),
    (3, []),
    ([], 3),
    ([], [1]),
    (3, set()),
    ({1}, {1, 2}),
    ([1, 2, 3], {1, 2}),
    (True, 2),
    ("yes", False),
    ("before", ["after", "before"]),
    ("absent", None),
    ("", 3),
    (float("nan"), 3),
    (lambda: 3, 3),
    (print, [1, 2]),
    (1j, 1),
    (Broken(), 3),
    (Broken(), [1, 2]),
    (CIRCLE, [1]),
    (CIRCLE, "a crash"),
    (["a hang"], "a crash"),
    ("all but rank 1", [1]),
    ("not rank 1", 1),
    ("1,683", 1.683),
    ("-1", 1),
    ("3 %", 0.04),
    ("62.5 MB", 62_500),
    ("0-2", {0, 1, 2, 3}),
    ("broadcast", "all_gather"),
    ("two of them", 3),
]


@pytest.mark.parametrize(("guess", "answer"), RIGHT, ids=str)
def test_a_right_guess_may_be_written_in_many_ways(guess, answer):
    assert fits(guess, answer)


@pytest.mark.parametrize(("guess", "answer"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_guess_is_not_right_and_raises_nothing(guess, answer, shown):
    assert not fits(guess, answer)
    predict("What?", guess).compare(answer)
    assert "✗ wrong" in shown[0]["text/plain"]


@pytest.mark.parametrize(
    ("question", "guess", "answer"),
    [
        (
            "Is it the whole 'step', or 'until' the all_reduce?",
            "until all_reduce",
            "until",
        ),
        ("A 'single' bucket, or 'several'?", "several buckets", "several"),
        ("'optimizer', 'scheduler' or 'random state'?", "random", "random state"),
        ("'forward', 'backward' or 'step'?", "in backward", "backward"),
    ],
)
def test_a_guess_may_say_more_or_less_than_the_quoted_word(question, guess, answer):
    assert predict(question, guess).verdict(answer) is Guessed.RIGHT


@pytest.mark.parametrize("guess", ["not single", "single or several", "one", "", None])
def test_a_guess_that_names_no_single_one_of_the_quoted_words_is_not_right(guess):
    question = "A 'single' bucket, or 'several'?"
    verdicts = {predict(question, guess).verdict(a) for a in ("single", "several")}
    assert Guessed.RIGHT not in verdicts


def test_a_list_without_brackets_is_asked_for_them():
    with pytest.raises(UsageError, match=r"brackets around your answer: \[1, 2\]"):
        predict("What?", 1, 2)


def test_numbers_of_torch_and_numpy_are_numbers():
    import torch  # takes seconds

    numpy = pytest.importorskip("numpy")
    assert fits(torch.tensor(3), 3) and fits(3, torch.tensor(3.0))
    assert fits(numpy.float32(0.1), 0.1) and not fits(numpy.float32(0.2), 0.1)
    assert fits(numpy.array([True, False]), [True, False])
    assert fits([1, 2], torch.tensor([1, 2])) and not fits(torch.ones(3), [1, 1])
    assert not fits(torch.Tensor, 3)  # the class
    assert show(numpy.array([1.5, 2.0])) == "[1.5, 2]"


def test_within_is_a_share_of_the_answer():
    assert fits(0.5, 0.6, 0.2) and fits(0.72, 0.6, 0.2) and not fits(0.47, 0.6, 0.2)
    assert fits([90, 11], [100, 10], 0.1) and not fits([90, 12], [100, 10], 0.1)
    assert not fits(1, 0, 0.5)


def test_none_of_them_is_a_number_unless_a_rank_is_asked_for(shown):
    for guess in ("none", "Nobody", "none of them"):
        assert predict("How many?", guess).verdict(0) is Guessed.RIGHT
        assert predict("How many?", guess).verdict(1) is Guessed.WRONG
        assert predict("Which rank?", guess).verdict(0) is Guessed.WRONG
    assert predict("What is left?", "none").verdict(None) is Guessed.RIGHT


# --- what is shown ---


def told(shown, guess, answer, **how):
    predict("What?", guess).compare(answer, **how)
    question, line = shown[-1]["text/plain"].splitlines()
    assert question == "What?"
    return line.strip()


def test_the_words_say_right_or_wrong_and_the_answer(shown):
    assert told(shown, None, 3) == "no guess yet: the answer is 3"
    assert told(shown, (3, 1), [3, 1.0]) == (
        "✓ right: you guessed (3, 1); the answer is [3, 1]"
    )
    assert told(shown, "b", "a") == "✗ wrong: you guessed 'b'; the answer is a"
    assert told(shown, 0.5, 0.55, within=0.1) == (
        "✓ right: you guessed 0.5; the answer is 0.55, give or take 10 %"
    )
    assert told(shown, None, {10, 9}) == "no guess yet: the answer is [9, 10]"


def test_a_right_theory_is_right(shown):
    for guess, sign in (([75, 27], "✓"), ([75, 30], "✓"), ([75, 50], "✗")):
        line = told(shown, guess, [75, 30], theory=[75, 27])
        assert line.startswith(sign)
        assert line.endswith("; the run says [75, 30], theory [75, 27]")


def test_the_page_shows_it_untrusted_and_escaped(shown):
    predict("Is 1 < 2?", "<script>").compare(True)
    (html,) = (bundle["text/html"] for bundle in shown)
    assert "Is 1 &lt; 2?" in html and "&lt;script&gt;" in html
    assert not re.search(r"<(?!/?(div|span|br)\b)|class=|url\(|var\(", html)
    assert all(contrast(verdict.color, WHITE) >= 4.5 for verdict in Guessed)


def test_a_guess_of_any_size_is_shown_short(shown):
    predict("What?", list(range(10**5))).compare(3)
    assert len(shown[0]["text/plain"]) < 300


# --- a diagnosis ---


def run_that_failed(name, rank, line, symptom, cause="stands still", others=None):
    why = Raised(rank=rank, frame=Frame("", line, ""), symptom=symptom, error=cause)
    told = {r: Raised(rank=r, error=says) for r, says in (others or {}).items()}
    failure = Failure("timeout", why, by_rank=told)
    return Run(f"torchrun {name}", [[], []], [], [], [], 4.0, failure)


def is_right(suspicion, run):
    suspicion.compare(run)
    return room.COMPARED[run.command] is Guessed.RIGHT


def test_a_diagnosis_is_told_row_by_row(shown):
    run = run_that_failed("a.py", 1, 50, Symptom.ABSENT)
    suspect(1, 44, " Absent ").compare(run)
    assert shown[0]["text/plain"].splitlines()[1:] == [
        "  ✓ right: rank: you say 1; the run says rank 1",
        "  ✗ wrong: line: you say 44; the run says line 50",
        "  ✓ right: symptom: you say ' Absent '; the run says 'absent'",
    ]
    suspect("me", print, 3).compare(run)  # raises nothing


def test_a_rank_that_says_the_cause_itself_is_the_one(shown):
    said = {0: "waits in all_reduce", 1: "has raised ValueError: 21,5, and waits"}
    run = run_that_failed("a.py", 1, 50, None, cause=said[1], others=said)
    assert is_right(suspect(1, 50, None), run)
    run = run_that_failed("a.py", 1, 50, None, cause=said[1], others={0: said[1]})
    assert is_right(suspect(None, 50, None), run)


def test_none_is_an_answer_where_others_are_given(shown):
    run = run_that_failed("a.py", None, 50, None)
    suspect(None, None, None).compare(run)
    assert shown[0]["text/plain"].count("no guess yet: ") == 3
    assert not is_right(suspect(None, None, None), run)
    assert is_right(suspect(None, 50, None), run)
    assert not is_right(suspect(0, 50, None), run)
    assert not is_right(suspect(None, 50, "absent"), run)


def test_no_single_rank_has_other_names(shown):
    run = run_that_failed("a.py", None, 50, None)
    for rank in ("none", "all", "Every rank", "no single rank", "all of them"):
        assert is_right(suspect(rank, 50), run)
    assert not is_right(suspect("all", 50), run_that_failed("a.py", 0, 50, None))
    assert not is_right(suspect("none", 50), run_that_failed("a.py", 0, 50, None))


def test_a_symptom_may_lose_its_plural_and_an_unknown_one_is_named(shown):
    run = run_that_failed("a.py", 1, 50, Symptom.GROUPS)
    assert is_right(suspect(1, 50, "group"), run)
    suspect(symptom="flu"), suspect(symptom="?")
    flu, names = (each["text/plain"] for each in shown[-2:])
    assert flu == f"no symptom is called 'flu'; {names}"


@pytest.mark.parametrize("found", [Symptom.ABSENT, Symptom.DIFFERENT_CALLS])
def test_one_rank_in_another_call_is_absent_and_its_call_differs(shown, found):
    frame, both = Frame("", 50, ""), ("absent", "different call")
    waits = Waits(1, frame, "barrier")
    end = Raised(error="E", since=waits)
    for stand in (waits, Left(1, frame, end=end)):
        cause = Absent(rank=1, frame=frame, symptom=found, away=(stand,), waiting=())
        failure = Failure("timeout", cause, stands=[stand])
        run = Run("torchrun a.py", [[], []], [], [], [], 4.0, failure)
        assert all(is_right(suspect(1, 50, each), run) for each in both)
        assert not is_right(suspect(1, 50, "cycle"), run)
    asleep = Failure(
        "timeout",
        Absent(rank=1, frame=frame, symptom=Symptom.ABSENT, away=(waits,), waiting=()),
        stands=[Elsewhere(1, frame)],
    )
    run = Run("torchrun a.py", [[], []], [], [], [], 4.0, asleep)
    assert not is_right(suspect(1, 50, "different calls"), run)


def test_a_line_that_called_this_one_is_right_as_well(shown, tmp_path):
    program = tmp_path / "a.py"
    program.write_text("def f():\n    send(x)\nf(1)\ng()\n")
    frame, caller = (Frame(str(program), line, "f") for line in (2, 3))
    stands = [Waits(1, frame, outer=(frame, caller))]
    failure = Failure(
        "timeout", Busy(rank=1, frame=frame, stands=tuple(stands)), stands=stands
    )
    run = Run("torchrun a.py", [[], []], [], [], [], 4.0, failure)
    assert is_right(suspect(1, "f(1)"), run) and is_right(suspect(1, "send"), run)
    assert not is_right(suspect(1, "g()"), run)


def test_a_line_may_be_named_by_what_stands_in_it(shown, tmp_path):
    program = tmp_path / "a.py"
    program.write_text("x = 1\nsend(x)\nx = recv()\n")
    failure = Failure(
        "timeout", Busy(rank=1, frame=Frame(str(program), 2, "f"), stands=())
    )
    run = Run("torchrun a.py", [[], []], [], [], [], 4.0, failure)
    assert is_right(suspect(1, " send(x)  "), run) and is_right(suspect(1, 2), run)
    for wrong in ("x", "recv", "x = ", "", "no such line"):
        assert not is_right(suspect(1, wrong), run)
    suspect(1, "recv").compare(run)
    said = "✗ wrong: line: you say 'recv'; the run says line 2: send(x)"
    assert said in shown[-1]["text/plain"]


def test_where_the_rank_stands_is_right_as_well(shown, tmp_path):
    program = tmp_path / "a.py"
    program.write_text("raise x\nx = 1\nbarrier()\nx = 1\n")
    stands = [Elsewhere(r, frame=Frame(str(program), 4 - r, "f")) for r in (0, 1)]
    cause = Busy(rank=1, frame=Frame(str(program), 1, "f"), stands=())
    failure = Failure("timeout", cause, stands=stands)
    run = Run("torchrun a.py", [[], []], [], [], [], 4.0, failure)
    for line in ("raise x", "barrier()", 1, 3):
        assert is_right(suspect(1, line), run)
    assert not is_right(suspect(1, 4), run)  # another rank stands there
    suspect(1, "x = 1").compare(run)
    assert "your text is in lines 2 and 4" in shown[-1]["text/plain"]


def test_where_a_rank_waits_that_has_raised_is_right_as_well(shown, tmp_path):
    program = tmp_path / "a.py"
    program.write_text("raise x\nx = 1\nbarrier()\n")
    raised, waits = (Frame(str(program), line, "f") for line in (1, 3))
    end = Raised(error="E", since=Waits(1, waits))
    stands = [Waits(0, raised), Left(1, raised, end=end)]
    failure = Failure(
        "timeout",
        Absent(rank=1, frame=raised, away=tuple(stands), waiting=()),
        stands=stands,
    )
    run = Run("torchrun a.py", [[], []], [], [], [], 4.0, failure)
    assert is_right(suspect(1, "barrier()"), run) and is_right(
        suspect(1, "raise x"), run
    )
    assert not is_right(suspect(1, "x = 1"), run)


def test_no_rank_is_the_one_if_several_raise_the_same(shown):
    cause = "AssertionError: the mean is 12.0"
    others = {1: "AssertionError: the mean is 12.25"}  # rank 2 was lucky
    run = run_that_failed("a.py", 0, 50, None, cause, others)
    assert is_right(suspect(None, 50, None), run)
    others = {1: "RuntimeError: what the assertion has led to"}
    run = run_that_failed("a.py", 0, 50, None, cause, others)
    assert is_right(suspect(0, 50, None), run)


def test_an_unknown_symptom_is_told_the_names(capsys):
    suspect(None, None, "ABSENT")
    assert capsys.readouterr().out == ""
    suspect(None, None, "flu")
    assert "symptoms are: absent, " in capsys.readouterr().out


# --- what is counted ---


def test_each_question_counts_once(shown):
    def last():
        score()
        return shown[-1]["text/plain"]

    predict("a", None).compare(1)
    predict("b", None).compare(1)
    predict("never compared", 1)
    assert last().startswith("0 of 2 predictions made")
    predict("a", 2).compare(1)
    assert last() == "0 of 2 predictions right, 1 wrong, 1 not made"
    predict("a", 1).compare(1)
    predict("b", 2).compare(1)
    assert last() == "1 of 2 predictions right, 1 wrong"
    predict("b", 1).compare(1)
    assert last() == "2 of 2 predictions right"
    for name in ("a.py", "b.py", "a.py"):  # a diagnosis is one of them
        suspect(1, 50, None).compare(run_that_failed(name, 1, 50, Symptom.ABSENT))
    assert last() == "2 of 4 predictions right, 2 not made"
    suspect(1, 50, "absent").compare(run_that_failed("a.py", 1, 50, Symptom.ABSENT))
    suspect(1, 44, None).compare(run_that_failed("b.py", 1, 50, Symptom.ABSENT))
    assert last() == "3 of 4 predictions right, 1 wrong"


# --- in the lessons ---

TOLD = re.compile(
    r"^  no guess yet: (?:the answer is|the run says) (?P<answer>.*?)"
    r"(?:, theory (?P<theory>.*?))?(?:, give or take (?P<within>[\d.]+) %)?$",
    re.M,
)


def code(path):
    return [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]


def names(path, pattern):
    return [n for cell in code(path) for n in re.findall(pattern, cell.source, re.M)]


@lessons
def test_every_prediction_is_compared_once(path):
    guesses = names(path, r"^(guess_\w+) = predict\(")
    assert sorted(guesses) == sorted(names(path, r"^ *(guess_\w+)\.compare\("))
    assert len(set(guesses)) == len(guesses) > 0
    suspicions = names(path, r"^(guess) = suspect\(")
    assert len(suspicions) == len(names(path, r"^(guess)\.compare\("))


@lessons
def test_the_score_stands_before_the_summary(path):
    cells = notebooks.read(path).cells
    (summary,) = [n for n, cell in enumerate(cells) if "## Summary" in cell.source]
    assert cells[summary - 1].source.endswith("\nscore()")


def value(text):
    """Return the answer that was shown as `text`."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.strip("[]").split(", ") if text.startswith("[") else text


def spellings(answer):
    """Return some ways to write an answer."""
    if isinstance(answer, list):
        items = [spellings(each) for each in answer]
        return [tuple(answer), str(answer), *map(list, zip(*items, strict=False))]
    if isinstance(answer, set):
        return [sorted(answer, reverse=True), tuple(answer), str(sorted(answer))]
    if isinstance(answer, bool):
        return [int(answer), str(answer), "yes" if answer else "no"]
    if isinstance(answer, str):
        return [answer.upper(), f" {answer} ", [answer]]
    return [float(answer), str(answer), Fraction(answer)]


def mistakes(answer):
    """Return some answers that are another one."""
    if isinstance(answer, list):
        first = [[wrong, *answer[1:]] for wrong in mistakes(answer[0])]
        turned = [] if answer == answer[::-1] else [answer[::-1]]
        return [answer[1:], [*answer, answer[0]], *first, *turned]
    if isinstance(answer, set):
        return [set(), answer | {99}]
    if isinstance(answer, bool):
        return [not answer, int(not answer)]
    if isinstance(answer, str):
        return [f"not {answer}", "", 1]
    return [3 * answer + 1, -1, str(3 * answer + 1), "?"]


@lessons
def test_the_right_answer_is_right_and_others_are_wrong(path):
    """Of each answer that stands in the committed outputs."""
    outputs = [output for cell in code(path) for output in cell.outputs]
    printed = "".join(output.get("text", "") for output in outputs)
    answers = list(TOLD.finditer(printed))
    assert len(answers) == len(names(path, r"\b(guess_\w+)\.compare\("))
    for found in answers:
        answer, theory = value(found["answer"]), value(found["theory"] or "None")
        how = {"theory": theory, "within": float(found["within"] or 0) / 100}
        for guess in [answer, *spellings(answer)]:
            verdict = predict("?", guess).verdict(answer, **how)
            assert verdict is Guessed.RIGHT, (guess, found[0])
        if theory is not None:
            assert predict("?", theory).verdict(answer, **how) is Guessed.RIGHT
        for guess in mistakes(answer):
            verdict = predict("?", guess).verdict(answer, **how)
            assert verdict is Guessed.WRONG, (guess, found[0])
