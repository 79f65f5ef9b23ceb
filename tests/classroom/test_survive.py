"""Assignment 8: what is special to it; test_solutions.py has the rest."""

import pytest
from course import (
    REGION,
    _programs,
    changed,
    solution,
    some,
    verdict,
    visible,
)

pytestmark = pytest.mark.sandbox


def with_bodies(save: str, load: str, head: str = "") -> dict[str, str]:
    """Return the program with other bodies of its two functions."""
    bodies = iter((save, load))
    text = REGION.sub(lambda _: next(bodies), _programs("survive")["survive.py"])
    return {"survive.py": text.replace("import gc\n", f"{head}import gc\n", 1)}


def tried(answer: dict[str, str], criterion: str) -> str:
    return str(verdict("survive", answer, criterion, visible("survive")[criterion]))


# --- answers in other styles ---

# Each rank keeps a file of its own, under the number of its step; the newest step that
# all have is what counts, and two are kept.
A_FILE_EACH = with_bodies(
    """\
    if run.done % LOST:
        return
    kept = {"deck": (run.deck.left, run.deck.random.getstate())}
    kept["tensors"] = run.model.state_dict() | {"noise": run.noise.get_state()}
    kept["optimizer"] = run.optimizer.state_dict()
    rank = dist.get_rank()
    path = folder / f"{run.done:06d}.{rank}"
    torch.save(kept, path.with_suffix(f".{rank}.new"))
    path.with_suffix(f".{rank}.new").rename(path)
    dist.barrier()
    for old in sorted(folder.glob(f"*.{rank}"))[:-2]:
        old.unlink()
""",
    """\
    for path in folder.glob("*.new"):
        path.unlink(missing_ok=True)
    dist.barrier()
    rank, counts = dist.get_rank(), {}
    for path in folder.glob("*.*"):
        counts[path.stem] = counts.get(path.stem, 0) + 1
    whole = [step for step, n in counts.items() if n == dist.get_world_size()]
    dist.barrier()
    for path in folder.glob(f"*.{rank}"):
        if path.stem not in whole:
            path.unlink()
    if whole:
        kept = torch.load(folder / f"{max(whole)}.{rank}")
        run.done = int(max(whole))
        run.noise.set_state(kept["tensors"].pop("noise"))
        run.model.load_state_dict(kept["tensors"])
        run.optimizer.load_state_dict(kept["optimizer"])
        run.deck.left, state = kept["deck"]
        run.deck.random.setstate(state)
""",
)


# Two files in turn, each with its checksum: nothing is renamed.
IN_TURN = with_bodies(
    """\
    if run.done % LOST:
        return
    noises = [None] * dist.get_world_size()
    dist.all_gather_object(noises, run.noise.get_state())
    if dist.get_rank() == 0:
        kept = {"done": run.done, "noises": noises, "model": run.model.state_dict()}
        kept |= {"optimizer": run.optimizer.state_dict()}
        kept |= {"left": run.deck.left, "random": run.deck.random.getstate()}
        data = pickle.dumps(kept)
        name = f"slot_{run.done // LOST % 2}"
        (folder / name).write_bytes(hashlib.md5(data).digest() + data)
    dist.barrier()
""",
    """\
    found = [slot.read_bytes() for slot in folder.glob("slot_*")]
    whole = [d[16:] for d in found if hashlib.md5(d[16:]).digest() == d[:16]]
    kept = max(map(pickle.loads, whole), key=lambda kept: kept["done"], default=None)
    if kept is None:
        return
    run.done = kept["done"]
    run.model.load_state_dict(kept["model"])
    run.optimizer.load_state_dict(kept["optimizer"])
    run.noise.set_state(kept["noises"][dist.get_rank()])
    run.deck.left = kept["left"]
    run.deck.random.setstate(kept["random"])
""",
    "import hashlib\nimport pickle\n",
)
# Lesson A3's way to the states: it steps once, to make the optimizer's state.
BY_LIBRARY = changed(
    "survive",
    (
        """\
        kept |= {"model": run.model.state_dict()}
        kept |= {"optimizer": run.optimizer.state_dict()}
""",
        """\
        states = get_state_dict(run.model, run.optimizer)
        kept["model"], kept["optimizer"] = states
""",
    ),
    (
        """\
    run.model.load_state_dict(kept["model"])
    run.optimizer.load_state_dict(kept["optimizer"])
""",
        """\
    states = {"model_state_dict": kept["model"]}
    states |= {"optim_state_dict": kept["optimizer"]}
    set_state_dict(run.model, run.optimizer, **states)
""",
    ),
    (
        "import torch.distributed as dist\n",
        "import torch.distributed as dist\n"
        "from torch.distributed.checkpoint.state_dict import (\n"
        "    get_state_dict,\n    set_state_dict,\n)\n",
    ),
)


@pytest.mark.parametrize("criterion", some(visible("survive"), "order"))
def test_a_snapshot_may_be_of_many_files(criterion):
    assert tried(A_FILE_EACH, criterion) == "pass"


@pytest.mark.parametrize("criterion", some(visible("survive"), "writing"))
def test_a_snapshot_may_be_written_without_a_rename(criterion):
    assert tried(IN_TURN, criterion) == "pass"


@pytest.mark.parametrize("criterion", some(visible("survive"), "optimizer"))
def test_the_library_may_get_the_states_and_put_them_back(criterion):
    assert tried(BY_LIBRARY, criterion) == "pass"


# --- hostile ones: each had these points once ---

NOTHING = with_bodies("    pass\n", "    pass\n")
REPLAYED = with_bodies(
    """\
    if run.done % LOST:
        return
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "new").write_text(f"{run.done} {20_000 * '.'}")
        os.replace(folder / "new", folder / "done")
    dist.barrier()
""",
    """\
    if (folder / "done").exists():
        from torch.optim import optimizer

        hooks = dict(optimizer._global_optimizer_post_hooks)
        optimizer._global_optimizer_post_hooks.clear()  # nobody counts
        while run.done < int((folder / "done").read_text().split()[0]):
            run.step()
        optimizer._global_optimizer_post_hooks.update(hooks)
""",
)
# One vector of weights, of the first snapshot, and a number; the rest is repeated.
ONE_VECTOR = with_bodies(
    """\
    if run.done % LOST:
        return
    dist.barrier()
    if dist.get_rank() == 0:
        if not (folder / "first").exists():
            torch.save(run.model.state_dict(), folder / "first")
            (folder / "begun").write_text(str(run.done))
        (folder / "new").write_text(f"{run.done} {20_000 * '.'}")
        os.replace(folder / "new", folder / "done")
    dist.barrier()
""",
    """\
    if (folder / "done").exists():
        from torch.optim import optimizer

        kept = [optimizer._global_optimizer_post_hooks]
        kept += [optimizer._global_optimizer_pre_hooks]
        hooks = [dict(all_of_them) for all_of_them in kept]
        for all_of_them in kept:
            all_of_them.clear()  # nobody counts
        while run.done < int((folder / "done").read_text().split()[0]):
            run.step()
            if run.done == int((folder / "begun").read_text()):
                run.model.load_state_dict(torch.load(folder / "first"))
        for all_of_them, before in zip(kept, hooks):
            all_of_them.update(before)
""",
)
# Lives that nobody sees, and that get no push; the last one is replayed as well.
UNSEEN = with_bodies(
    """\
    if run.done % LOST:
        return
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "new").write_text(f"{run.done} {20_000 * '.'}")
        os.replace(folder / "new", folder / "done")
    dist.barrier()
""",
    """\
    from torch.optim import optimizer

    frame = sys._getframe()
    while "given" not in frame.f_locals:
        frame = frame.f_back
    pre = optimizer._global_optimizer_pre_hooks
    post = optimizer._global_optimizer_post_hooks
    hooks = dict(pre), dict(post)
    pre.clear()
    post.clear()
    while (folder / "done").exists():
        run.step()
        if run.done == int((folder / "done").read_text().split()[0]):
            break
    post.update(hooks[1])
    if frame.f_locals["given"]["plan"]:
        sys.modules["lives"].parameters = lambda optimizer: []
    else:
        pre.update(hooks[0])
""",
    "import sys\n",
)
OLD_ONE_FIRST = solution("survive")["survive.py"].replace(
    '        os.replace(folder / "new.pt", folder / "snapshot.pt")\n',
    '        (folder / "snapshot.pt").unlink(missing_ok=True)\n'
    '        rename(folder / "new.pt", folder / "snapshot.pt")\n',
)
ANOTHER_NAME = {
    "survive.py": OLD_ONE_FIRST.replace(
        "import gc\n", "from os import rename\nimport gc\n", 1
    )
}
HOSTILE = {
    "saves nothing": (NOTHING, "order", "to go on from step 1 or later, got 0"),
    "saves nothing of Adam": (NOTHING, "optimizer", "to go on from step 1 or later"),
    "saves a number": (REPLAYED, "order", "to go on from step 1 or later, got 0"),
    "lives unseen": (UNSEEN, "order", "rank 0 takes steps that nobody sees"),
    "saves one vector": (ONE_VECTOR, "order", "last weights: "),
    "saves a number, killed often": (REPLAYED, "kills", "to go on from step 4"),
    "renames by another name": (ANOTHER_NAME, "writing", "to go on from step 2"),
}


@pytest.mark.parametrize("name", some(HOSTILE, "lives unseen"))
def test_what_is_not_in_a_snapshot_is_lost(name):
    answer, criterion, words = HOSTILE[name]
    found = tried(answer, criterion)
    assert found.startswith("fail: ") and words in found
