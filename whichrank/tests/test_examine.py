"""A script examined: each mistake is found and told, and no right script is accused.

scripts.py has both.
"""

import threading
from pathlib import Path
from zlib import crc32

import pytest
import record_facts
from launched import torchrun
from record_facts import LIMITS, SCRIPTS
from scripts import HEAD, NOTED, RIGHT, WRONG
from support import FULL, SOURCE, Later

from whichrank.examination import examined, questions
from whichrank.terminal import follow
from whichrank.terminal.main import main

torch, witness = Later("torch"), Later("whichrank.examination.witness")


def page(script, ranks: int = 2, steps: int = 20) -> tuple[str, bool]:
    """Examine a script, and return what is told of it."""
    return examined.examine([str(script)], ranks, steps, record_facts.start)


def written(folder, source: str):
    script = folder / "train.py"
    script.write_text(f"FOLDER = {str(folder)!r}\n{HEAD}{source}")
    return script


def judge(name: str, told: str, well: bool) -> None:
    """Judge what is told of a script of scripts.py."""
    told = " ".join(told.split())
    assert "steps of" in told or name in WRONG, told
    words, _ = (NOTED | WRONG).get(name, ("", ""))
    assert words in told and well == ("✗" not in told) == (name not in WRONG), told
    assert told.count("✗") <= 2, told


KEPT = record_facts.load()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mistake_is_told_and_no_right_script_is_accused(name):
    """By what each script has left: see record_facts.py, which records anew."""
    text = record_facts.text_of(name, Path())
    anew = f"it has changed: python tests/record_facts.py {name!r}"
    assert KEPT.get(name, [0])[0] == crc32(text.encode()), anew
    judge(name, *record_facts.told(KEPT[name]))


ALWAYS = ("a loop", "never wrapped", "no sampler", "strict=False loads nothing")


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ALWAYS else FULL) for n in SCRIPTS]
)
def test_a_script_leaves_what_is_kept_of_it(name, tmp_path):
    told, well = record_facts.told(record_facts.live(name, tmp_path))
    judge(name, told, well)
    assert told == record_facts.told(KEPT[name])[0]


@pytest.mark.processes
def test_what_every_rank_prints_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('begin')\nprint('I am', os.environ['RANK'])\n")
    told, _ = page(script)
    assert "all ranks print the same at train.py:2." in told


def test_only_steps_that_all_ranks_took_are_compared():
    made = {"weights": ["weight"], "within": {}}
    ranks = [
        {
            "models": [],
            "averaged": {},
            "sends": 1,
            "optimizers": [made | {"digests": d}],
        }
        for d in ([[1], [2], [3]], [[1], [2]])
    ]
    assert str(questions.same_weights(ranks)) == "✓ 2 steps."


@pytest.mark.processes
def test_the_script_is_as_it_is_without_a_witness(tmp_path):
    source = (
        "import sys\nmodel = DDP(nn.Linear(8, 1))\n"
        "opt = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):\n"
        "    opt.zero_grad(); mse(model(x), y).backward(); opt.step()\n"
        "print(rank, __name__, sys.argv[1:], model.module.weight.sum().item())\n"
    )
    script = written(tmp_path, source)
    runs = []
    for words in (
        [str(script)],
        [str(examined.WITNESS), str(tmp_path), "99", str(script)],
    ):
        run = torchrun(["--nproc-per-node", "2", *words, "--lr", "3"], limits=LIMITS)
        runs.append(sorted(run.lines))
    assert runs[0] == runs[1] and "__main__ ['--lr', '3']" in str(runs[0])


@pytest.mark.processes
def test_it_ends_after_its_steps_and_without_the_rest_of_the_script(tmp_path):
    source = RIGHT["a loop"].replace("range(3)", "range(10**6)")
    told, well = page(written(tmp_path, source + "\nraise AssertionError"), steps=3)
    assert well and "; 3 steps of AdamW" in told


@pytest.mark.processes
def test_a_rank_that_fails_is_not_said_to_have_fewer_batches(tmp_path):
    source = RIGHT["a loop"].replace("    opt.step()", "    opt.step(); 1 / (1 - rank)")
    assert source != RIGHT["a loop"]
    told, _ = page(written(tmp_path, source))
    assert "differ where the script has failed" in told and "✗" not in told, told


def test_the_command(monkeypatch, capsys):
    def run(launcher, words, silence, whole):
        record_facts.leave(KEPT["set_epoch is forgotten"], words)
        return 0

    monkeypatch.setattr(follow, "run", run)
    assert main(["examine", "train.py"]) == 1
    assert "Call `sampler.set_epoch(epoch)`" in capsys.readouterr().out


@FULL  # nothing is warm
@pytest.mark.processes
def test_the_command_that_runs(tmp_path, capfd):
    script = written(tmp_path, WRONG["set_epoch is forgotten"][1])
    assert main(["examine", str(script)]) == 1
    told = capfd.readouterr()
    assert "Call `sampler.set_epoch(epoch)`" in told.out
    assert "note:" not in told.err  # the script does not end as it would have


def test_the_command_says_how_it_is_used(capsys):
    assert main(["examine"]) == 2
    assert "which script?" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["no step", "a rank that died early"])
def test_what_is_not_there_is_not_judged(tmp_path, monkeypatch, lost):
    def start(words):
        if lost == "no step":
            for rank in range(2):
                made = witness.Witness(type(tmp_path)(words[3]), 20)
                made.rank = rank
                made.write()

    told, well = examined.examine(["train.py"], 2, 20, start)
    assert (told == "", well) == (lost != "no step", False)


def test_what_a_rank_answers_to_the_launcher_is_no_file_of_the_script(tmp_path):
    seen = witness.Witness(tmp_path / "seen", 20)
    source = "def write(seen, path):\n    seen.audit('open', (path, 'w', 0))\n"
    for file in (SOURCE / "run" / "inside" / "answers.py", tmp_path / "train.py"):
        exec(compile(source, str(file), "exec"), names := {})
        words = seen, str(file.with_name("written"))
        thread = threading.Thread(target=names["write"], args=words)
        thread.start()
        thread.join()
    assert [*seen.facts["files"].values()] == ["train.py:2"]


def test_what_is_long_is_written_now_and_then(tmp_path):
    seen, written = witness.Witness(tmp_path, 0), []
    seen.write = lambda: written.append(len(seen.facts["optimizers"][0]["digests"]))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    for _ in range(250):
        seen.before_step(optimizer, (), {})
        seen.after_step(optimizer, (), {})
    assert written == [*range(1, 101), 200]
