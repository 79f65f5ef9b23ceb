"""A script examined: each mistake is found and told, and no right script is accused.

scripts.py has both.
"""

import json
import threading
from functools import partial

import pytest
import record_facts
from launched import torchrun
from record_facts import LIMITS, SCRIPTS
from scripts import HEAD, NOTED, RIGHT, WRONG
from support import FULL, SOURCE, Later

from whichrank import Limits
from whichrank.examination import examined
from whichrank.examination.facts import (
    Averaged,
    Batch,
    Column,
    Copy,
    Drawn,
    Fed,
    Forwards,
    Load,
    Loader,
    Moments,
    Optimizer,
    Pass,
    Split,
    Step,
    Tie,
    Witnessed,
    Wrapped,
    as_json,
    from_json,
)
from whichrank.examination.page import Page, alone, numbers
from whichrank.examination.questions.drift import same_weights
from whichrank.run import cold
from whichrank.run.ports import free_port
from whichrank.terminal import follow
from whichrank.terminal.main import main

torch, watcher = Later("torch"), Later("whichrank.examination.watcher")
outside = Later("whichrank.examination.watch.outside")
seen_in = Later("whichrank.examination.watch.tensors")


def page(script, ranks: int = 2, steps: int = 20) -> Page:
    """Examine a script, and return what is told of it."""
    page = examined.examine([str(script)], ranks, steps, record_facts.start)
    assert page, "a rank has left nothing"
    return page


def written(folder, source: str):
    script = folder / "train.py"
    script.write_text(f"FOLDER = {str(folder)!r}\n{HEAD}{source}")
    return script


def judge(name: str, page: Page) -> None:
    """Judge what is told of a script of scripts.py."""
    told = " ".join(str(page).split())
    assert "steps of" in told or name in WRONG, told
    words, _ = (NOTED | WRONG).get(name, ("", ""))
    assert words in told and page.well == ("✗" not in told) == (name not in WRONG), told
    assert told.count("✗") <= 2, told


KEPT = record_facts.load()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mistake_is_told_and_no_right_script_is_accused(name):
    """By what each script has left: see record_facts.py, which records anew."""
    anew = f"it has changed: python tests/record_facts.py {name!r}"
    assert name in KEPT and KEPT[name].digest == record_facts.digest(name), anew
    judge(name, record_facts.told(KEPT[name]))


ALWAYS = ("a loop", "never wrapped", "no sampler", "strict=False loads nothing")


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ALWAYS else FULL) for n in SCRIPTS]
)
def test_a_script_leaves_what_is_kept_of_it(name, tmp_path):
    page = record_facts.told(record_facts.live(name, tmp_path))
    judge(name, page)
    assert page == record_facts.told(KEPT[name])


@pytest.mark.processes
def test_what_every_rank_prints_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('begin')\nprint('I am', os.environ['RANK'])\n")
    told = str(page(script))
    assert "all ranks print the same at train.py:2." in told


def stepped(*digests: int) -> Optimizer:
    """Return an optimizer of one weight, which had these digests after its steps."""
    steps = [Step([0.1], 0, [], [1], [each]) for each in digests]
    return Optimizer("SGD", ["weight"], idle=[], steps=steps)


def test_only_steps_that_all_ranks_took_are_compared():
    ranks = [
        Witnessed(sends=1, optimizers=[each])
        for each in (stepped(1, 2, 3), stepped(1, 2))
    ]
    assert same_weights(ranks).evidence == "1 weight of ranks 0 and 1 after 2 steps."


def test_what_is_written_is_read_again():
    optimizer = stepped(1, 2)
    optimizer.within = [[True]]
    optimizer.averaged = [Averaged([0, 1], {3: "train.py:7", 10: ""}, {3: 2.0})]
    drawn = Batch([4, 0], None, [[5, 6], [7, 8]])
    ddp = Wrapped("train.py:3", [0, 1], ["weight"], ["weight"], [], ["bias"])
    ddp.forwards, ddp.copies = Forwards(2, 1, True), [Copy("weight", 1, None)]
    facts = Witnessed(
        backend="gloo",
        ties=[Tie("DDP", [0, 1], "train.py:3")],
        fed=[Fed("train.py:4", [0, 1], [(1, None), ()])],
        drawn={"train.py:4": Drawn(True, False, 3, 9)},
        moments=Moments("train.py:1", False, 3),
        models=[ddp],
        optimizers=[optimizer, Optimizer("Adam", [], [])],
        loaders=[Loader("", 0, 7, None, 9, True, 2, [Pass(1, [drawn], whole=True)])],
        columns=[Column("reduce", "train.py:5")],
        splits=[Split("train.py:2", 9)],
        files={"/tmp/a": "train.py:8"},
        prints={"train.py:9": 3},
        loads=[Load("train.py:4", ["a"]), Load("", theirs="b", own="c")],
        waited=0.5,
    )
    assert from_json(Witnessed, json.loads(as_json(facts))) == facts


@pytest.mark.parametrize("wrong", [{"group": "gloo"}, {"splits": [{"line": ""}]}])
def test_what_has_other_fields_is_not_read(wrong):
    with pytest.raises((KeyError, TypeError)):
        from_json(Witnessed, wrong)


@pytest.mark.processes
def test_the_script_is_as_it_is_without_a_witness(tmp_path):
    source = (
        "import sys\nmodel = DDP(nn.Linear(8, 1))\n"
        "opt = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for x, y in DataLoader(data, 10, sampler=DistributedSampler(data)):\n"
        "    opt.zero_grad(); mse(model(x), y).backward(); opt.step()\n"
        "print(rank, __name__, sys.argv[1:], model.module.weight.sum().item())\n"
        "import facts; print(facts.OWN, sys.path)\n"
    )
    script = written(tmp_path, source)
    (tmp_path / "facts.py").write_text("OWN = 'of the script'\n")
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
    told = page(written(tmp_path, source + "\nraise AssertionError"), steps=3)
    assert told.well and "; 3 steps of AdamW" in told.numbers


@pytest.mark.processes
def test_a_rank_that_fails_is_not_said_to_have_fewer_batches(tmp_path):
    source = RIGHT["a loop"].replace("    opt.step()", "    opt.step(); 1 / (1 - rank)")
    assert source != RIGHT["a loop"]
    told = str(page(written(tmp_path, source)))
    assert "differ where the script has failed" in told and "✗" not in told, told


def test_the_command(monkeypatch, capsys, tmp_path):
    def run(launcher, words, silence, whole):
        record_facts.leave(KEPT["set_epoch is forgotten"], words)
        return 0

    monkeypatch.setattr(follow, "run", run)
    kept = tmp_path / "page.json"
    assert main(["examine", "--json", str(kept), "train.py"]) == 1
    told, told_again = capsys.readouterr().out, json.loads(kept.read_text())
    assert "Call `sampler.set_epoch(epoch)`" in told and not told_again["well"]
    assert [each["mark"] for each in told_again["found"]][:2] == ["✗", "✓"]


@pytest.mark.parametrize(
    ("name", "ends", "code"),
    [
        ("a loop", 0, 0),
        ("a loop", 7, 7),
        ("set_epoch is forgotten", 0, 1),
        ("set_epoch is forgotten", KeyboardInterrupt, 130),
    ],
)
def test_what_the_command_ends_with(name, ends, code, monkeypatch, capsys):
    def run(launcher, words, silence, whole):
        record_facts.leave(KEPT[name], words)
        if ends is KeyboardInterrupt:
            raise ends
        return ends

    monkeypatch.setattr(follow, "run", run)
    assert main(["examine", "train.py"]) == code
    assert "steps of" in capsys.readouterr().out


def test_who_trains_nothing_is_not_said_to_train_alone(monkeypatch):
    for ranks in (
        [Witnessed()] * 2,
        [Witnessed(optimizers=[stepped(1)], failed=True)] * 2,
    ):
        assert alone(ranks) == ""
    assert "joins no process group" in alone([Witnessed(optimizers=[stepped(1)])] * 2)


MESH = """\
import os
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
model = parallelize_module(torch.nn.Linear(8, 4), mesh, ColwiseParallel())
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    model(torch.randn(2, 8)).sum().backward()
    opt.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("source", "words", "well"),
    [
        (MESH, "5 steps of SGD", True),
        (
            "import torch\nraise SystemExit('at least one GPU is needed')",
            "no step",
            False,
        ),
        (MESH.replace("5", "2") + "1 / 0\n", "failed on rank 0", True),
    ],
)
def test_a_mesh_joins_and_who_fails_early_is_not_accused(source, words, well, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(source)
    told = page(script)
    assert words in told.numbers and told.well == well and "✗" not in str(told), told


SPAWNS = """\
import os
import torch.multiprocessing


def train(rank, world):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", {port!r}
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
    exec({body!r}, {{}})


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (3,), nprocs=3)
"""


@FULL
@pytest.mark.processes
def test_ranks_that_a_script_spawns_are_seen(tmp_path):
    body = f"FOLDER = {str(tmp_path)!r}\n{HEAD}{WRONG['no sampler'][1]}"
    script = tmp_path / "train.py"
    script.write_text(SPAWNS.format(port=str(free_port()), body=body))
    patient = partial(torchrun, limits=Limits(silence=240))  # each imports torch
    told = examined.examine([str(script)], 2, 20, patient)
    assert told and told.ranks == 3 and "ranks 0 and 1 got the same batch" in str(told)


@FULL
@pytest.mark.processes
def test_a_module_of_a_package_is_examined(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "net.py").write_text("from torch import nn\nnet = nn.Linear(8, 1)\n")
    source = RIGHT["a loop"].replace("nn.Sequential(", "nn.Sequential(net, ")
    source = source.replace("nn.Linear(8, 16)", "nn.Linear(1, 16)")
    (folder / "train.py").write_text(f"from .net import net\n{HEAD}{source}")
    monkeypatch.chdir(tmp_path)
    assert main(["examine", "-m", "package.train"]) == 0
    told = capfd.readouterr().out
    assert "examined: -m package.train" in told and "6 weights of ranks 0 and 1" in told


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
                made = watcher.Witness(type(tmp_path)(words[3]), 20)
                made.rank = rank
                made.write()

    told = examined.examine(["train.py"], 2, 20, start)
    assert told is None if lost != "no step" else not told.well


def test_what_a_rank_answers_to_the_launcher_is_no_file_of_the_script(tmp_path):
    seen = outside.Outside(Witnessed(), tmp_path / "seen")
    source = "def write(seen, path):\n    seen.audit('open', (path, 'w', 0))\n"
    for file in (SOURCE / "run" / "inside" / "answers.py", tmp_path / "train.py"):
        exec(compile(source, str(file), "exec"), names := {})
        words = seen, str(file.with_name("written"))
        thread = threading.Thread(target=names["write"], args=words)
        thread.start()
        thread.join()
    assert [*seen.facts.files.values()] == ["train.py:2"]


def test_the_witness_starts_warm():
    assert cold.why_cold(examined.WITNESS) == ""


def test_what_is_long_is_written_now_and_then(tmp_path):
    seen, written = watcher.Witness(tmp_path, 0), []
    seen.write = lambda: written.append(len(seen.facts.optimizers[0].steps))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    for _ in range(250):
        seen.training.before_step(optimizer, (), {})
        seen.training.after_step(optimizer, (), {})
        seen.after_step(optimizer, (), {})
    assert written == [*range(1, 101), 120, 144, 172, 206, 247]


def test_samples_of_many_sizes_are_told_apart():
    images = [torch.rand(1, 4 + size) for size in (0, 1, 1)]
    boxes = [{"boxes": torch.ones(n, 4)} for n in (1, 2, 2)]
    one, other, third = seen_in.samples((images, boxes), 3)
    assert other[0] != third[0] and one[1] != other[1] == third[1]
    (only,) = {*map(tuple, seen_in.samples([["a", "b"], torch.ones(2)], 2))}
    assert len(only) == 1  # a tensor that has a part for each is enough


def test_what_no_batch_tells_is_not_said_of_a_step():
    passes = [Pass(1, [Batch([], None, [[], []])] * 2, trained=2)]
    loaders = [Loader("a.py:1", 0, None, 4, 4, True, 0, passes)]
    steps = [Step([0.1], n, [], [1], [n]) for n in (1, 2)]
    optimizer = Optimizer("SGD", ["weight"], idle=[], steps=steps)
    ranks = [Witnessed(loaders=loaders, optimizers=[optimizer], trained=2)] * 2
    assert "a step: 2 samples × 1 backward × 2 ranks; 2 steps" in numbers(ranks)
