"""A script examined: each mistake is found and told, and no right script is accused.

scripts.py has both.
"""

import subprocess
import sys
import threading

import pytest
from conftest import FULL, Later, outside
from scripts import HEAD, RIGHT, WRONG

from ddp_lab import ROOT
from ddp_lab.kit import Limits, RunFailed, torchrun
from ddp_lab.kit.examine import examined, questions
from ddp_lab.kit.terminal.main import main

torch, witness = Later("torch"), Later("ddp_lab.kit.examine.witness")
LIMITS = Limits(silence=60)
# Programs whose training is not shared, or whose ranks all write, on purpose.
MEANT = {"script/joined", "script/single", "script/wrapped", "script/sampled"}
MEANT |= {"script/judge", "ddp/single", "old_pages/guides"}


def page(script, ranks: int = 2, steps: int = 20) -> tuple[str, bool]:
    """Examine a script, and return what is told of it."""

    def start(words):
        try:
            torchrun(words, limits=LIMITS)
        except RunFailed:
            pass  # as one mistake does

    return examined.examine([str(script)], ranks, steps, start)


def written(folder, source: str):
    script = folder / "train.py"
    script.write_text(f"FOLDER = {str(folder)!r}\n{HEAD}{source}")
    return script


@pytest.mark.processes
@pytest.mark.parametrize("style", RIGHT)
def test_a_right_script_is_not_accused(style, tmp_path):
    told, well = page(written(tmp_path, RIGHT[style]))
    assert "steps of" in told and well and "✗" not in told, told


@pytest.mark.processes
@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_told(mistake, tmp_path):
    words, source = WRONG[mistake]
    told, well = page(written(tmp_path, source))
    assert words in " ".join(told.split()) and told.count("✗") <= 2 and not well, told


@pytest.mark.processes
def test_what_every_rank_prints_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('begin')\nprint('I am', os.environ['RANK'])\n")
    told, _ = page(script)
    assert "all ranks print the same at train.py:2." in told


GATHERS = """\
from torch.distributed.nn.functional import all_gather

model = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, _ in DataLoader(data, 10, sampler=DistributedSampler(data)):
    mine = model(x)
    every = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(every, mine)
    opt.zero_grad()
    (mine @ torch.cat([*every]).T).logsumexp(1).sum().backward()
    opt.step()
"""
GATHERED = f"train.py:{HEAD.count(chr(10)) + 9}"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("dist.all_gather(every, mine)", True),
        ("dist.all_gather(every, mine.detach())", False),
        ("every = all_gather(mine)", False),
    ],
)
def test_a_gradient_that_a_call_gives_nobody_back_is_named(call, lost, tmp_path):
    source = GATHERS.replace("dist.all_gather(every, mine)", call)
    told, well = page(written(tmp_path, source), steps=3)
    assert well and (f"gives none back ({GATHERED})" in " ".join(told.split())) == lost


COPIES = """\
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):
    opt.zero_grad()
    mse(model(x), y).backward()
    for p in model.parameters():
        mean = p.grad / world
        dist.all_reduce(mean)
        p.grad = mean
    opt.step()
"""
HELD = "after every step: 3 steps."


@pytest.mark.processes
@pytest.mark.parametrize(("kept", "answer"), [(True, HELD), (False, "whether it may.")])
def test_weights_that_nothing_shows_to_be_averaged_are_compared(kept, answer, tmp_path):
    source = COPIES if kept else COPIES.replace("        p.grad = mean\n", "")
    told, well = page(written(tmp_path, source), steps=3)
    assert well and answer in " ".join(told.split()), told


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


@pytest.mark.processes
def test_the_command(tmp_path):
    script = written(tmp_path, WRONG["set_epoch is forgotten"][1])
    command = [sys.executable, "-m", "ddp_lab.kit.terminal", "examine", str(script)]
    done = subprocess.run(command, env=outside(), capture_output=True, text=True)
    assert done.returncode == 1 and "Call `sampler.set_epoch(epoch)`" in done.stdout
    assert "note:" not in done.stderr  # the script does not end as it would have


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
    for file in (ROOT / "ddp_lab/kit/run/rank.py", tmp_path / "train.py"):
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


@FULL
@pytest.mark.processes
def test_no_program_of_the_course_is_accused():
    accused = []
    for path in sorted((ROOT / "ddp_lab").glob("*/*.py")):
        name, text = f"{path.parent.name}/{path.stem}", path.read_text()
        plain = not path.stem.startswith(("exercise", "puzzle")) and "optim" in text
        if plain and path.parent.name not in ("kit", "clinic") and name not in MEANT:
            ranks = 4 if "--nproc-per-node 4" in text else 2
            told, _ = page(path, ranks)
            accused += [f"{name}: {line}" for line in told.split("\n") if "✗" in line]
    assert not accused, "\n".join(accused)
