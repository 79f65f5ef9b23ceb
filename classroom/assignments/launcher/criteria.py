"""Assignment 7, Launcher: judged by what it does when a rank fails, or is asked to end.

Each case is one call of launch() or two at once, in processes of their own. The ranks
are toys which sign in, then end as planned here; see harness.py.
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
    "saves": "{} s to save",
    "grace": "{} s of grace",
    "asked": "{}",
    "ranks_are": "ranks {}",
    "apart": "{} s apart",
    "jobs": "{} jobs",
    "lines": "{} lines each",
}
LEAVES = 5  # how a rank ends that was told to
ENOUGH = 3.0  # seconds of grace, in which every rank gets a core


def _act(do: str, code: int = 0, **more: object) -> dict:
    """Return the part of one rank: it can "end", "die" of a signal, or "work"."""
    act = {"do": do, "code": code, "after": 0, "told": "leaves", "saves": 0}
    return act | {"leaves": LEAVES} | more


def _job(acts: list[dict], **more: object) -> dict:
    plan = {"acts": acts, "grace": ENOUGH, "signal": None, "lines": 0, "binds": False}
    return plan | {"mark": "a shell", "words": []} | more


def _play(rig: Rig, *jobs: dict) -> list[dict]:
    """Let launch() run all jobs at once; return what became of each.

    The case is decided if not all ranks were started, or if launch() raised.
    """
    outcome = rig.run(1, {"jobs": list(jobs)}, timeout=40)
    events = outcome.events[0] if outcome.events else []
    outcome.must_give()
    if not any(event.get("what") == "told" for event in events):
        raise Decided(fail("its harness ended before it had told what happened"))
    found = [event for event in events if event.get("what") == "job"]
    for number, (job, facts) in enumerate(zip(jobs, found, strict=True)):
        error, count = facts["error"], len(job["acts"])
        facts["ranks"] = [
            event
            for event in events
            if event.get("what") == "rank" and event["job"] == number
        ]
        if error and error.startswith("NotImplementedError"):
            raise Decided(Verdict("not yet", f"launch() raises {error}"))
        if error:
            raise Decided(fail(f"launch() raises {error}"))
        if facts["there"] < count and facts["late"]:
            raise Decided(fail(f"of {count} ranks only {facts['there']} were started"))
        if any(about["library"] for about in facts["ranks"]):
            words = "a process between launch() and a rank has loaded torch"
            raise Decided(fail(f"{words}: start the ranks without one"))
        if not all(about["toy"] for about in facts["ranks"]):
            words = "a rank expected to run the command in a process of its own"
            raise Decided(fail(words))
    return found


def _ended(facts: dict, code: int) -> Verdict:
    """Judge how launch() ended, and whether any of its ranks is left."""
    if facts["late"]:
        return fail(f"launch() expected to return {code}, and does not return")
    if left := [rank for rank, about in enumerate(facts["ranks"]) if about["left"]]:
        who = ", ".join(f"rank {rank}" for rank in left)
        return fail(f"launch() has returned, and {who} still runs")
    got = facts["code"]
    if type(got) is not int or got != code:
        return fail(f"launch() expected to return {code}, returned {str(got)[:40]}")
    return PASS


# --- criteria ---


def variables(rig: Rig, *, ranks: int, seed: int = 0) -> Verdict:
    """Each rank is told who it is, and gets the command and the rest as they are."""
    mark = f"shell {rig.draw(seed).integers(1000, 10000)}"
    words = ["--text", "two words", "$HOME", ""]
    (facts,) = _play(rig, _job([_act("end")] * ranks, mark=mark, words=words))
    if len(facts["ranks"]) != ranks:
        return fail(f"{ranks} ranks expected, {len(facts['ranks'])} were started")
    port = facts["ranks"][0]["env"]["MASTER_PORT"]
    for rank, about in enumerate(facts["ranks"]):
        expected = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        expected |= {"LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        for name, value in expected.items():
            if about["env"][name] != str(value):
                got = about["env"][name] or "nothing"
                return fail(f"rank {rank} expected {name} {value}, got {got}")
        if about["env"]["MASTER_ADDR"] not in ("127.0.0.1", "localhost"):
            got = about["env"]["MASTER_ADDR"] or "nothing"
            return fail(f"rank {rank} expected MASTER_ADDR 127.0.0.1, got {got}")
        if about["mark"] != mark:
            words_ = "the variables that the launcher itself was started with"
            return fail(f"rank {rank} has lost {words_}")
        if about["words"] != (text := json.dumps(words)):
            return fail(f"rank {rank} expected the words {text}, got {about['words']}")
    if not str(port).isdigit():
        return fail(f"MASTER_PORT expected to be a number, got {port}")
    return PASS


def waits(rig: Rig, *, ranks: int, apart: float) -> Verdict:
    """All ranks end well, one after the other; launch() waits for the last."""
    for order in (range(ranks), reversed(range(ranks))):
        acts = [_act("end", after=apart * place) for place in order]
        (facts,) = _play(rig, _job(acts))
        undone = [r for r, about in enumerate(facts["ranks"]) if not about["done"]]
        if undone and not facts["late"]:
            return fail(f"rank {undone[0]} was not allowed to finish its work")
        if (verdict := _ended(facts, 0)).state != "pass":
            return verdict
    return PASS


def fails(rig: Rig, *, ranks: int, who: int, how: str) -> Verdict:
    """One rank fails: the others are ended, and launch() tells of the first."""
    what, _, number = how.partition(" ")
    acts = [_act("work") for _ in range(ranks)]
    if what == "exits":
        code = int(number)
        acts[who] = _act("end", code)
    else:
        died = int(getattr(signal, number))
        code = 128 + died
        acts[who] = _act("die", died)
    return _ended(_play(rig, _job(acts))[0], code)


def deaf(
    rig: Rig, *, ranks: int, who: int, saves: float = 0.0, grace: float = ENOUGH
) -> Verdict:
    """One rank fails: the others get time to save, and are killed if they stay.

    Args:
        saves: seconds that they need; 0 if they would stay for ever.
    """
    told = "leaves" if saves else "deaf"
    acts = [_act("work", told=told, saves=saves) for _ in range(ranks)]
    acts[who] = _act("end", 3)
    (facts,) = _play(rig, _job(acts, grace=grace))
    # With which code, and whether good ranks are ended at all, is asked by `fails`.
    if facts["late"] or not saves:
        if (verdict := _ended(facts, facts["code"] or 3)).state != "pass":
            return verdict
    for rank, about in enumerate(facts["ranks"]):
        if rank == who or about["left"]:
            continue
        if signal.SIGTERM not in about["told"]:
            return fail(f"rank {rank} was killed without SIGTERM before")
        if saves and not about["saved"]:
            words = f"needed {saves} s of the {grace} s of grace, and did not get them"
            return fail(f"rank {rank} {words}")
    return PASS


def asked(rig: Rig, *, ranks: int, asked: str, ranks_are: str) -> Verdict:
    """The launcher gets a signal: so do its ranks, and it leaves when they have.

    They are "good", "late" or "deaf": the good ones leave with 0, the late ones after
    a second.
    """
    number = int(getattr(signal, asked))
    saves = 0.7 if ranks_are == "late" else 0.0
    told = "deaf" if ranks_are == "deaf" else "leaves"
    acts = [_act("work", told=told, saves=saves, leaves=0) for _ in range(ranks)]
    (facts,) = _play(rig, _job(acts, signal=asked))
    for rank, about in enumerate(facts["ranks"]):
        if number not in about["told"]:
            return fail(f"rank {rank} expected {asked}, and did not get it")
        if ranks_are != "deaf" and not about["saved"] and not facts["late"]:
            return fail(f"rank {rank} was killed before it could leave")
    return _ended(facts, 128 + number)


def together(rig: Rig, *, ranks: int, jobs: int) -> Verdict:
    """Several jobs at once on one machine do not get in each other's way."""
    plan = _job([_act("end") for _ in range(ranks)], binds=True)
    found = _play(rig, *[plan] * jobs)
    ports = [facts["ranks"][0]["env"]["MASTER_PORT"] for facts in found]
    for number, facts in enumerate(found, 1):
        for about in facts["ranks"]:
            if about["bound"]:
                words = f"cannot open port {about['env']['MASTER_PORT']}"
                return fail(f"job {number}: its rank 0 {words} ({about['bound']})")
    if len(set(ports)) < jobs:
        return fail(f"jobs that run at once were given the ports {', '.join(ports)}")
    for facts in found:
        if (verdict := _ended(facts, 0)).state != "pass":
            return verdict
    return PASS


def output(rig: Rig, *, ranks: int, lines: int) -> Verdict:
    """What ranks print is to be seen while they run, on both streams."""
    (facts,) = _play(rig, _job([_act("end") for _ in range(ranks)], lines=lines))
    for rank in range(ranks):
        for stream, count in (("out", lines), ("err", 1)):
            name = f"{rank} {stream}"
            live, said = facts["live"].get(name, 0), facts["said"].get(name, 0)
            if live < count:
                words = "came only after its end" if said >= count else "are lost"
                what = f"of its {count:,} lines on std{stream} {count - live:,}"
                return fail(f"rank {rank}: {what} {words}")
    return _ended(facts, 0)


CRITERIA = named(variables, waits, fails, deaf, asked, together, output)
