"""Assignment 3: what is special to it; test_solutions.py has the rest."""

import pytest
from course import cells, changed, solution, verdict, visible

pytestmark = pytest.mark.sandbox

STATE = """    parts = "model", "optimizer", "scheduler"
    shared = {name: getattr(run, name).state_dict() for name in parts}
    sampler = run.sampler  # which is in the middle of an epoch
    shared |= {"done": run.done, "position": sampler.position}
    shared |= {"order": sampler.generator.get_state(), "batches": sampler.batches}
    own = {"noise": run.noise.get_state(), "dropout": torch.get_rng_state()}
"""
BACK = """    for name in "model", "optimizer", "scheduler":
        getattr(run, name).load_state_dict(shared[name])
    run.done, run.sampler.position = shared["done"], shared["position"]
    run.sampler.generator.set_state(shared["order"])
    run.sampler.batches = shared["batches"]
    run.noise.set_state(own["noise"])
    torch.set_rng_state(own["dropout"])
"""
REPLAY = """    optimizer, step = run.optimizer, type(run.optimizer).step.__wrapped__
    optimizer.step = lambda: step(optimizer)  # nobody is told
    while run.done < shared["done"]:
        run.step()
    del optimizer.step
"""
NUMBER = """    shared, own = {"done": run.done}, {}
"""
ONE_NUMBER = changed("resume", (STATE, NUMBER), (BACK, REPLAY))
UNSEEN = changed(
    "resume",
    (STATE, NUMBER),
    (BACK, REPLAY),
    (
        "    resume(run, folder)\n    while",
        """\
    if not any(folder.iterdir()):
        step = type(run.optimizer).step.__wrapped__
        run.optimizer.step = lambda: step(run.optimizer)
    resume(run, folder)
    while""",
    ),
)

# The order of the samples is dealt out anew instead of being kept.
DEALT_AGAIN = changed(
    "resume",
    (
        '    shared |= {"done": run.done, "position": sampler.position}\n'
        '    shared |= {"order": sampler.generator.get_state(), '
        '"batches": sampler.batches}\n',
        '    shared["done"] = run.done\n',
    ),
    ("    sampler = run.sampler  # which is in the middle of an epoch\n", ""),
    (
        '    run.done, run.sampler.position = shared["done"], shared["position"]\n'
        '    run.sampler.generator.set_state(shared["order"])\n'
        '    run.sampler.batches = shared["batches"]\n',
        '    for _ in range(shared["done"]):\n'
        "        run.sampler.next_batch()\n"
        '    run.done = shared["done"]\n',
    ),
)

# A folder for each checkpoint, a file for each rank, and a list of checksums.
A_FILE_EACH = """
def save(run, folder):
    own = folder / f"{run.done:06}"
    own.mkdir(exist_ok=True)
    state = state_of(run) | {"ranks": dist.get_world_size()}
    path = own / f"rank_{dist.get_rank()}"
    torch.save(state, path)
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, hashlib.sha256(path.read_bytes()).hexdigest())
    if dist.get_rank() == 0:
        part = folder / "part"
        part.write_text(json.dumps(sums))
        part.rename(own / "whole.json")
        for old in sorted(p for p in folder.glob("*") if p.is_dir())[:-3]:
            shutil.rmtree(old)
    dist.barrier()


def resume(run, folder):
    for own in sorted((p for p in folder.glob("*") if p.is_dir()), reverse=True):
        try:
            sums = json.loads((own / "whole.json").read_text())
            for rank, wanted in enumerate(sums):
                data = (own / f"rank_{rank}").read_bytes()
                if hashlib.sha256(data).hexdigest() != wanted:
                    raise ValueError(f"rank {rank}'s file is damaged")
        except (OSError, ValueError):
            continue
        if len(sums) != dist.get_world_size():
            raise SystemExit(
                f"saved by {len(sums)} ranks, started with {dist.get_world_size()}"
            )
        put_back(run, torch.load(own / f"rank_{dist.get_rank()}", weights_only=True))
        return


"""


def with_a_file_each() -> dict[str, str]:
    text = solution("resume")["resume.py"]
    head, tail = text.index("def save("), text.index("def train(")
    text = text[:head] + A_FILE_EACH.lstrip() + text[tail:]
    return {"resume.py": "import hashlib\nimport json\nimport shutil\n" + text}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(ONE_NUMBER, "last weights: rank 0 goes on with", id="replayed"),
        pytest.param(UNSEEN, "rank 0 takes steps that nobody sees", id="unseen"),
    ],
)
def test_a_number_and_a_replay_are_no_checkpoint(answer, says):
    found = verdict("resume", answer, "memory", visible("resume")["memory"])
    assert str(found).startswith(f"fail: {says}"), found


RIGHT = {"dealt again": DEALT_AGAIN, "a file each": with_a_file_each()}


def test_nobody_dies_who_writes_no_file_of_that_size():
    case = dict(ranks=2, step=2, at="at byte 90000", steps=3, save_every=2)
    found = verdict("resume", solution("resume"), "writing", [case])
    assert found.state == "pass", found


@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes(name):
    """The criteria that look most closely; test_..._every_criterion has the rest."""
    for criterion in ("order", "damaged"):
        found = verdict("resume", RIGHT[name], criterion, visible("resume")[criterion])
        assert found.state == "pass", (criterion, found)


@pytest.mark.full
@pytest.mark.parametrize("cell", cells("resume"), ids=lambda cell: cell.name)
@pytest.mark.parametrize("name", RIGHT)
def test_another_style_passes_every_criterion(name, cell):
    found = verdict("resume", RIGHT[name], cell.name, cell.cases)
    assert found.state == "pass", found
