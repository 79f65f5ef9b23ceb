"""Assignment 3: what is special to it; test_solutions.py has the rest."""

import pytest
from course import cells, changed, solution, some, verdict

pytestmark = pytest.mark.sandbox


def with_functions(text: str, modules: str = "") -> dict[str, str]:
    """Return the solution with another `save` and `resume`."""
    program = solution("resume")["resume.py"]
    head, tail = program.index("def save("), program.index("def train(")
    program = program[:head] + text.strip("\n") + "\n\n\n" + program[tail:]
    imports = "".join(f"import {name}\n" for name in modules.split())
    return {"resume.py": imports + program}


def tried(answer: dict[str, str], criterion: str) -> str:
    """Return the verdict on all cases of a criterion."""
    (cell,) = (cell for cell in cells("resume") if cell.name == criterion)
    return str(verdict("resume", answer, criterion, cell.cases))


# --- right answers in other styles ---

# A folder for each checkpoint, a file for each rank, and a list of checksums.
A_FOLDER_EACH = with_functions(
    """
def save(run, folder):
    own = folder / f"{run.done:06}"
    own.mkdir(exist_ok=True)
    path = own / f"rank_{dist.get_rank()}"
    torch.save(obj=state_of(run), f=path)
    sums = [None] * dist.get_world_size()
    dist.all_gather_object(sums, hashlib.sha256(path.read_bytes()).hexdigest())
    if dist.get_rank() == 0:
        (folder / "list").write_text(json.dumps(sums))
        (folder / "list").rename(own / "whole.json")
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
            raise SystemExit(f"of {len(sums)} ranks, not {dist.get_world_size()}")
        put_back(run, torch.load(own / f"rank_{dist.get_rank()}"))
        return
""",
    "hashlib json shutil",
)

# Each rank its own files, written in place, under a checksum; the newest step that all
# of them have counts.
AGREED = with_functions(
    """
def save(run, folder):
    data = io.BytesIO()
    torch.save(state_of(run) | {"ranks": dist.get_world_size()}, data)
    data, rank = data.getvalue(), dist.get_rank()
    sum_ = zlib.crc32(data).to_bytes(4, "big")
    (folder / f"{run.done:06}_{rank}").write_bytes(sum_ + data)
    dist.barrier()
    for old in sorted(folder.glob(f"*_{rank}"))[:-3]:
        old.unlink()


def resume(run, folder):
    mine, alls = {}, [None] * dist.get_world_size()
    for path in folder.glob(f"*_{dist.get_rank()}"):
        data = path.read_bytes()
        if zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big") and len(data) > 4:
            mine[int(path.name[:6])] = torch.load(io.BytesIO(data[4:]))
    dist.all_gather_object(alls, {step: state["ranks"] for step, state in mine.items()})
    ranks = {count for own in alls for count in own.values()}
    if ranks - {dist.get_world_size()}:
        raise SystemExit(f"of {max(ranks)} ranks, not {dist.get_world_size()}")
    steps = set.intersection(*map(set, alls))
    if steps:
        put_back(run, mine[max(steps)])
""",
    "io zlib",
)

# A single file that grows: records of a checksum, a length and a checkpoint.
A_LOG = with_functions(
    """
def save(run, folder):
    state, owns = state_of(run), [None] * dist.get_world_size()
    dist.all_gather_object(owns, state["own"])
    if dist.get_rank() == 0:
        data = pickle.dumps({"shared": state["shared"], "owns": owns})
        with open(folder / "log", "ab") as file:
            file.truncate(last(folder)[1])
            sum_ = hashlib.sha256(data).digest()
            file.write(sum_ + len(data).to_bytes(8, "big") + data)
    dist.barrier()


def last(folder):
    found, at = None, 0
    whole = (folder / "log").read_bytes() if (folder / "log").exists() else b""
    while at + 40 <= len(whole):
        end = at + 40 + int.from_bytes(whole[at + 32 : at + 40], "big")
        if hashlib.sha256(whole[at + 40 : end]).digest() != whole[at : at + 32]:
            break
        found, at = whole[at + 40 : end], end
    return found, at


def resume(run, folder):
    if (found := last(folder)[0]) is None:
        return
    kept, here = pickle.loads(found), dist.get_world_size()
    if len(kept["owns"]) != here:
        raise SystemExit(f"of {len(kept['owns'])} ranks, not {here}")
    put_back(run, {"shared": kept["shared"], "own": kept["owns"][dist.get_rank()]})
""",
    "hashlib pickle",
)

# The order of the samples is dealt out anew, and the library gets the states.
DEALT_AGAIN = changed(
    "resume",
    ("    sampler = run.sampler  # which is in the middle of an epoch\n", ""),
    (
        '    shared |= {"done": run.done, "position": sampler.position}\n'
        '    shared |= {"order": sampler.generator.get_state(), '
        '"batches": sampler.batches}\n',
        '    shared["done"] = run.done\n',
    ),
    (
        '    run.done, run.sampler.position = shared["done"], shared["position"]\n'
        '    run.sampler.generator.set_state(shared["order"])\n'
        '    run.sampler.batches = shared["batches"]\n',
        '    run.done = shared["done"]\n'
        "    for _ in range(run.done):\n"
        "        run.sampler.next_batch()\n",
    ),
    (
        '    parts = "model", "optimizer", "scheduler"\n'
        "    shared = {name: getattr(run, name).state_dict() for name in parts}\n",
        "    model, optimizer = states.get_state_dict(run.model, run.optimizer)\n"
        '    shared = {"model_state_dict": model, "optim_state_dict": optimizer}\n'
        '    shared = {"both": shared, "scheduler": run.scheduler.state_dict()}\n',
    ),
    (
        '    for name in "model", "optimizer", "scheduler":\n'
        "        getattr(run, name).load_state_dict(shared[name])\n",
        '    states.set_state_dict(run.model, run.optimizer, **shared["both"])\n'
        '    run.scheduler.load_state_dict(shared["scheduler"])\n',
    ),
    (
        "import gc\n",
        "import gc\nimport torch.distributed.checkpoint.state_dict as states\n",
    ),
)
RIGHT = {
    "a folder each": A_FOLDER_EACH,
    "agreed": AGREED,
    "a log": A_LOG,
    "dealt again": DEALT_AGAIN,
}
QUICK = ("agreed", "whole"), ("a log", "cut"), ("dealt again", "epoch")


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.full])
        for pair in [(name, cell.name) for name in RIGHT for cell in cells("resume")]
    ],
)
def test_another_style_passes(name, criterion):
    assert tried(RIGHT[name], criterion) == "pass"


# --- wrong ones ---

# Four files, each renamed by itself: no checkpoint is whole.
FOUR_FILES = with_functions(
    """
PARTS = "model", "optimizer", "rest", "owns"


def save(run, folder):
    state, owns = state_of(run), [None] * dist.get_world_size()
    dist.all_gather_object(owns, state["own"])
    if dist.get_rank() == 0:
        rest, path = state["shared"], folder / "part"
        parts = {name: rest.pop(name) for name in ("model", "optimizer")}
        for name, part in (parts | {"rest": rest, "owns": owns}).items():
            torch.save(part, path)
            path.rename(folder / f"{name}_{run.done:06}")
    dist.barrier()


def resume(run, folder):
    parts = {}
    for name in PARTS:
        for path in sorted(folder.glob(f"{name}_*")):
            parts[name] = torch.load(path)
    if len(parts) == len(PARTS):
        own = parts.pop("owns")[dist.get_rank()]
        put_back(run, {"shared": parts.pop("rest") | parts, "own": own})
"""
)
AGREE = "    steps = set.intersection(*map(set, alls))\n"
TEXT = solution("resume")["resume.py"]
STATE = TEXT[TEXT.index("    parts = ") : TEXT.index("def save(")]
REPLAY = """    return {"shared": {"done": run.done}, "own": {}}


def put_back(run, state):
    while run.done < state["shared"]["done"]:
        run.step()


"""
WRONG = {
    "four files": (FOUR_FILES, "whole", "last weights: "),
    "no agreement": (
        {"resume.py": AGREED["resume.py"].replace(AGREE, "    steps = mine\n")},
        "whole",
        "",
    ),
    "of rank 0 alone": (
        {"resume.py": AGREED["resume.py"].replace(AGREE, "    steps = alls[0]\n")},
        "rotten",
        "",
    ),
    "the length is right": (
        changed("resume", ("ZipFile(path).testzip()", "path.stat().st_size < 30_000")),
        "rotten",
        "last weights: ",
    ),
    "a number and a replay": (
        changed("resume", (STATE, REPLAY)),
        "momentum",
        "rank 0 expected to go on from step 3, got 0",
    ),
}


@pytest.mark.parametrize("name", some(WRONG, "four files", "no agreement"))
def test_a_wrong_answer_fails(name):
    answer, criterion, words = WRONG[name]
    assert tried(answer, criterion).startswith(f"fail: {words}")


def test_nobody_dies_who_writes_no_file_of_that_size():
    case = dict(ranks=2, step=2, byte=90000, steps=3, save_every=2)
    found = verdict("resume", solution("resume"), "writing", [case])
    assert found.state == "pass", found
