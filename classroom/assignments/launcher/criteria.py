"""Assignment 6, Launcher: judged by what it does when a rank fails, or is asked to end.

Each case is one call of launch(), or several at once in processes of their own. The
ranks are toys which sign in, then end as planned here; see harness.py.
"""

import json
import signal

from classroom.engine.assignment import named
from classroom.engine.rig import Rig
from classroom.engine.verdict import PASS, Decided, Verdict, fail

PROGRAMS = {"program": "launcher.py"}
WORDS = {
    "who": "rank {}",
    "how": "{}",
    "done": "rank {} done before",
    "saves": "{} s to save",
    "grace": "{} s of grace",
    "asked": "{}",
    "signals": "{} times",
    "ranks_are": "ranks {}",
    "apart": "{} s apart",
    "jobs": "{} jobs",
    "lines": "{} lines each",
}
HERE = "127.0.0.1"
LEAVES = 5  # how a rank ends that was told to
ENOUGH = 3.0  # seconds of grace, in which every rank gets a core


def _act(do: str, code: int = 0, **more: object) -> dict:
    """Return the part of one rank: it can "end", "die" of a signal, or "work"."""
    usual = {"after": 0, "told": "leaves", "saves": 0, "leaves": LEAVES}
    return {"do": do, "code": code} | usual | more


def _job(acts: list[dict], **more: object) -> dict:
    plan = {"acts": acts, "grace": ENOUGH, "signal": "", "signals": 1, "lines": 0}
    return plan | {"binds": False, "mark": "a shell", "words": []} | more


def _play(rig: Rig, *jobs: dict, times: int = 1) -> list[dict]:
    """Let launch() run all jobs at once, so many times; return what became of each.

    The case is decided if launch() has raised, or has not started all ranks, unless it
    was asked to end before.
    """
    outcome = rig.run(1, {"jobs": list(jobs), "times": times}, timeout=40)
    events = outcome.events[0] if outcome.events else []
    outcome.must_give()
    if not any(event.get("what") == "told" for event in events):
        raise Decided(fail("its harness ended before it had told what happened"))
    found: list[dict] = []
    for event in events:
        if event.get("what") == "job":
            found.append(event | {"ranks": []})
        if event.get("what") == "rank":
            found[-1]["ranks"].append(event)
    for place, facts in enumerate(found):
        error, count = facts["error"], len(jobs[facts["job"]]["acts"])
        if error and error.startswith("raises NotImplementedError"):
            raise Decided(Verdict("not yet", f"launch() {error}"))
        if error:
            raise Decided(fail(f"launch() {error}"))
        asked_before = not jobs[facts["job"]]["signals"]
        if facts["there"] < count and (facts["late"] or not asked_before):
            told = f"{count} ranks expected, {facts['there']} were started"
            told = told if place < len(jobs) else f"launch() is called again: {told}"
            raise Decided(fail("\n".join(filter(None, [told, facts["errors"]]))))
    return found


def _ended(facts: dict) -> Verdict:
    """Judge whether launch() has returned, and none of its ranks is left."""
    if facts["late"]:
        return fail("launch() does not return")
    for rank, about in enumerate(facts["ranks"]):
        if how := about["left"]:
            return fail(f"launch() has returned, and rank {rank} {how}")
    return PASS


def _returned(facts: dict, code: int) -> Verdict:
    returned = "does not return" if facts["late"] else f"returned {facts['code']}"
    if facts["late"] or facts["code"] != code:
        return fail(f"launch() expected to return {code}, {returned}")
    return PASS


def _failing(ranks: int, who: int, how: str) -> tuple[list[dict], int]:
    """Return what ranks do of which one fails, and what launch() shall return."""
    what, _, word = how.partition(" ")
    number = int(word) if what == "exits" else int(getattr(signal, word))
    acts = [_act("work") for _ in range(ranks)]
    acts[who] = _act("end" if what == "exits" else "die", number, after=0.5)
    return acts, number if what == "exits" else 128 + number


# --- criteria ---


def variables(rig: Rig, *, ranks: int, seed: int = 0) -> Verdict:
    """Each rank is told who it is, and gets the command and the rest as they are; the
    launcher itself is told nothing.
    """
    mark = f"shell {rig.draw(seed).integers(1000, 10000)}"
    words = ["--text", "two words", "$HOME", ""]
    (facts,) = _play(rig, _job([_act("end")] * ranks, mark=mark, words=words))
    if len(facts["ranks"]) > ranks:
        return fail(f"{ranks} ranks expected, {len(facts['ranks'])} were started")
    port = facts["ranks"][0]["env"]["MASTER_PORT"]
    for rank, about in enumerate(facts["ranks"]):
        expected: dict = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        expected |= {"LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        expected["MASTER_ADDR"] = HERE
        for name, value in expected.items():
            got = about["env"][name] or "nothing"
            if str(value) != (HERE if got == "localhost" else got):
                return fail(f"rank {rank} expected {name} {value}, got {got}")
        if about["mark"] != mark:
            words_ = "the variables that the launcher itself was started with"
            return fail(f"rank {rank} has lost {words_}")
        if about["words"] != (text := json.dumps(words)):
            return fail(f"rank {rank} expected the words {text}, got {about['words']}")
    if not str(port).isdigit():
        return fail(f"MASTER_PORT expected to be a number, got {port}")
    if stays := facts["stays"]:
        return fail(f"launch() leaves {stays[0]} in the launcher's own environment")
    return PASS


def waits(rig: Rig, *, ranks: int, apart: float) -> Verdict:
    """All ranks end well, one after the other; launch() waits for the last."""
    for order in (range(ranks), reversed(range(ranks))):
        acts = [_act("end", after=apart * place) for place in order]
        (facts,) = _play(rig, _job(acts))
        undone = [r for r, about in enumerate(facts["ranks"]) if not about["done"]]
        if undone and not facts["late"]:
            return fail(f"rank {undone[0]} was not allowed to finish its work")
        if (verdict := _returned(facts, 0)).state != "pass":
            return verdict
    return PASS


def fails(
    rig: Rig, *, ranks: int, who: int, how: str, done: int | None = None
) -> Verdict:
    """One rank fails, perhaps after another has ended well: the others are ended."""
    acts, _ = _failing(ranks, who, how)
    if done is not None:
        acts[done] = _act("end")
    return _ended(_play(rig, _job(acts))[0])


def code(
    rig: Rig, *, ranks: int, who: int = 0, how: str = "", asked: str = ""
) -> Verdict:
    """launch() returns what the first failure, or the signal that it got, says."""
    if asked:
        expected = 128 + int(getattr(signal, asked))
        plan = _job([_act("work", leaves=0) for _ in range(ranks)], signal=asked)
    else:
        acts, expected = _failing(ranks, who, how)
        plan = _job(acts)
    return _returned(_play(rig, plan)[0], expected)


def deaf(
    rig: Rig,
    *,
    ranks: int,
    who: int = -1,
    asked: str = "",
    saves: float = 0.0,
    grace: float = ENOUGH,
) -> Verdict:
    """The ranks are ended: they get time to save, and are killed if they stay.

    Args:
        who: the rank that has failed, if the launcher was not `asked` to end.
        saves: seconds that they need; 0 if they would stay for ever.
    """
    told = "leaves" if saves else "deaf"
    acts = [_act("work", told=told, saves=saves) for _ in range(ranks)]
    if not asked:
        acts[who] = _act("end", 3)
    (facts,) = _play(rig, _job(acts, grace=grace, signal=asked))
    if (verdict := _ended(facts)).state != "pass":
        return verdict
    for rank, about in enumerate(facts["ranks"]):
        if rank == who:
            continue
        if signal.SIGTERM not in about["told"]:
            return fail(f"rank {rank} was killed without SIGTERM before")
        if saves and not about["saved"]:
            words = f"needed {saves} s of the {grace} s of grace, and did not get them"
            return fail(f"rank {rank} {words}")
        if (lasted := about["lasted"]) > grace + ENOUGH:
            told = f"{lasted:.0f} s after the first rank was asked to end"
            told += f": they share {grace} s of grace"
            return fail(f"rank {rank} was killed {told}")
    return PASS


def asked(rig: Rig, *, ranks: int, asked: str, ranks_are: str) -> Verdict:
    """The launcher gets a signal: so do its ranks, and it leaves when they have.

    They are "good" or "late", which leave after a second. All that is done twice.
    """
    number = int(getattr(signal, asked))
    saves = 0.7 if ranks_are == "late" else 0.0
    acts = [_act("work", saves=saves, leaves=0) for _ in range(ranks)]
    for facts in _play(rig, _job(acts, signal=asked), times=2):
        for rank, about in enumerate(facts["ranks"]):
            if number not in about["told"]:
                return fail(f"rank {rank} expected {asked}, and did not get it")
            if not about["saved"] and not facts["late"]:
                return fail(f"rank {rank} was killed before it could leave")
        if (verdict := _ended(facts)).state != "pass":
            return verdict
    return PASS


def early(rig: Rig, *, ranks: int, asked: str, signals: int = 0) -> Verdict:
    """The launcher gets a signal before it has started its last rank, or two of them:
    the second one while it ends the ranks.
    """
    acts = [_act("work", saves=1.0 if signals else 0.0) for _ in range(ranks)]
    (facts,) = _play(rig, _job(acts, signal=asked, signals=signals))
    return _ended(facts)


def together(rig: Rig, *, ranks: int, jobs: int) -> Verdict:
    """Several jobs at once, and once more while others have their ports.

    A port that was free may be taken by chance before it is opened. Chance does not
    strike twice.
    """
    verdict = _at_once(rig, ranks, jobs)
    return verdict if verdict.state == "pass" else _at_once(rig, ranks, jobs)


def _at_once(rig: Rig, ranks: int, jobs: int) -> Verdict:
    plan = _job([_act("end") for _ in range(ranks)], binds=True)
    found = _play(rig, *[plan] * jobs, times=2)
    for facts in found:
        for about in facts["ranks"]:
            if about["bound"]:
                words = f"cannot open port {about['env']['MASTER_PORT']}"
                job = f"job {facts['job'] + 1}"
                return fail(f"{job}: its rank 0 {words} ({about['bound']})")
    ports = [facts["ranks"][0]["env"]["MASTER_PORT"] for facts in found]
    if len(set(ports[:jobs])) < jobs:
        return fail(f"jobs that run at once were given the ports {', '.join(ports)}")
    for facts in found:
        if (verdict := _returned(facts, 0)).state != "pass":
            return verdict
    return PASS


def output(rig: Rig, *, ranks: int, lines: int) -> Verdict:
    """What ranks print is to be seen while they run, each stream where it belongs."""
    (facts,) = _play(rig, _job([_act("end") for _ in range(ranks)], lines=lines))
    for rank in range(ranks):
        for stream, count in (("out", lines), ("err", 1)):
            name = f"{rank} {stream}"
            live, said = facts["live"].get(name, 0), facts["said"].get(name, 0)
            if live < count:
                words = "came only after its end" if said >= count else "are lost"
                what = f"of its {count:,} lines on std{stream} {count - live:,}"
                return fail(f"rank {rank}: {what} {words}")
            if said > count:
                what = f"{said:,} lines on std{stream}, expected its {count:,}"
                return fail(f"rank {rank}: {what}")
    return _returned(facts, 0)


CRITERIA = named(variables, waits, fails, code, deaf, asked, early, together, output)
