"""Where a training step's time goes, told from the traces of torch.profiler.

    python ddp_lab/profiling/verdict.py FOLDER_OF_TRACES, or the files

Give it one trace for each rank, as prof.export_chrome_trace() writes it, of a
profiler with a schedule, in a loop that calls prof.step(). Names of your own are not
needed: it knows those that torch gives. Only if your batches come from elsewhere than
a DataLoader, get them under record_function("enumerate(DataLoader)"). It imports
nothing but Python's own modules, so you can take it with you.

Each moment of a step belongs to one of five kinds:

    kernels   the device computes
    loader    the rank has no batch yet, or copies it to the GPU
    messages  a collective runs, and no computation hides it
    waiting   as messages, but another rank has not come to the collective yet
    Python    none of these: the host prepares the next call

The biggest kind of the rank that waits longest is the verdict. The profiler's own cost
is in Python. Where waiting cannot be told from messages, a line says why: traces are
missing, a group has some of the ranks only, send and recv, or ranks that make different
numbers of calls of one name. Clocks are compared by the ends of the collectives that
all ranks leave together.
"""

import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean, median

KINDS = "kernels", "loader", "messages", "waiting", "Python"
ADVICE = {
    "loader": "more workers, or less work per sample",
    "kernels": "the device is busy: bf16, torch.compile, a larger batch, more ranks",
    "messages": "overlap with backward, fewer or larger calls, fewer bytes",
    "waiting": "look at the rank that comes last, not at the ranks that wait",
    "Python": "larger batches, torch.compile, no .item(); or a loader of your own",
}
SHORT = 20.0  # µs: an op of a CPU that computes for less is a call and little more
LOADER = "enumerate(DataLoader)"
COLLECTIVE = "gloo:", "mpi:", "ucc:"  # and kernels of a GPU with "nccl" in their names
OUTSIDE = "c10d::", "autograd::", "torch::"  # ops that only call others
# What all ranks leave together, as each of them needs something from all the others.
TOGETHER = re.compile(
    "all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE
)
ONE_TO_ONE = re.compile("send|recv", re.IGNORECASE)


@dataclass
class Rank:
    """One rank's trace: spans [start, end] in microseconds, by what was going on."""

    number: int
    steps: list
    loads: list
    computes: list
    copies: list  # to the GPU; they are among the loads
    collectives: list  # of [start, end, name], by their start
    ranks: int  # of the whole job
    parts: bool  # whether a process group has some of them only


def read(path):
    """Read one trace."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt") as file:
        trace = json.load(file)
    if "traceEvents" not in trace:
        raise SystemExit(f"{path}: no trace of torch.profiler")
    told, base = trace.get("distributedInfo", {}), trace.get("baseTimeNanoseconds", 0)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and "dur" in e]
    for event in events:
        start = float(event["ts"]) + base / 1000
        event["span"] = [start, start + float(event["dur"])]
    notes = [e for e in events if e.get("cat") == "user_annotation"]
    steps = sorted(e["span"] for e in notes if e["name"].startswith("ProfilerStep#"))
    if not steps:
        raise SystemExit(f"{path}: no steps: profile(schedule=...), prof.step()")
    loads = [e["span"] for e in notes if e["name"].startswith(LOADER)]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memset")]
    sends = [e for e in notes if e["name"].startswith(COLLECTIVE)]
    sends += [e for e in kernels if "nccl" in e["name"].lower()]
    moved = [e for e in events if e.get("cat") == "gpu_memcpy"]
    copies = [e["span"] for e in moved if "HtoD" in e["name"]]
    if kernels:
        computes = [e["span"] for e in kernels if "nccl" not in e["name"].lower()]
        computes += [e["span"] for e in moved if "HtoD" not in e["name"]]
    else:
        computes = minus(union(computing(events)), union(loads))
    sends = sorted([*e["span"], e["name"]] for e in sends)
    # The first step of a trace has the profiler's own start in it.
    steps = steps[1:] if len(steps) > 2 else steps
    size, groups = told.get("world_size", 1), told.get("pg_config", [])
    parts = any(group.get("pg_size", size) < size for group in groups)
    spans = steps, union(loads + copies), union(computes), union(copies), sends
    return Rank(told.get("rank", 0), *spans, size, parts)


def computing(events):
    """Return the spans of a CPU's ops that compute, without the calls around them."""
    threads, found = {}, []
    for event in events:
        if event.get("cat") == "cpu_op":
            threads.setdefault(event.get("tid"), []).append(event)
    for ops in threads.values():
        open_ops = []
        for event in sorted(ops, key=lambda e: (e["span"][0], -e["span"][1])):
            while open_ops and open_ops[-1]["span"][1] <= event["span"][0]:
                open_ops.pop()
            if open_ops:
                open_ops[-1]["own"] -= event["dur"]
            event["own"] = event["dur"]
            open_ops.append(event)
        # An autograd.Function of yours has no "::" in its name: its lines are Python.
        found += [
            event["span"]
            for event in ops
            if event["own"] >= SHORT
            and "::" in event["name"]
            and not event["name"].startswith(OUTSIDE)
        ]
    return found


def union(spans):
    """Return the same time as spans that do not touch, in order."""
    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def both(some, others):
    """Return the time that is in `some` and in `others`; each is a union."""
    found, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        start, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if start < end:
            found.append([start, end])
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def minus(some, others):
    """Return the time that is in `some` and not in `others`; each is a union."""
    edges = [-inf, *(edge for span in others for edge in span), inf]
    return both(some, [[*gap] for gap in zip(edges[::2], edges[1::2], strict=True)])


def by_name(ranks):
    """Return each collective's calls, by name and rank."""
    names = sorted({name for rank in ranks for _, _, name in rank.collectives})
    return {
        name: [[c[:2] for c in rank.collectives if c[2] == name] for rank in ranks]
        for name in names
    }


def unclear(ranks):
    """Return the collectives in which waiting cannot be told, and why."""
    calls, why = by_name(ranks), {}
    for name, each in calls.items():
        if len(ranks) < ranks[0].ranks:
            why[name] = f"{len(ranks)} of {ranks[0].ranks} traces"
        elif any(rank.parts for rank in ranks):
            why[name] = "a group has some of the ranks only"
        elif ONE_TO_ONE.search(name):
            why[name] = "send and recv"
        elif len({*map(len, each)}) > 1:
            why[name] = f"not equally many calls of {name[:40]}"
    return why


def split(ranks):
    """Return, by rank, when it waited in collectives, and when these moved data.

    A rank waits until the last one comes. Where clocks differ, all_reduce and its like
    tell by how much, as all ranks leave these together; and no rank waits for longer
    than its call took more than that of the last one.
    """
    waits, moves = [[] for _ in ranks], [[] for _ in ranks]
    calls, why = by_name(ranks), unclear(ranks)
    for name in why:
        for place, each in enumerate(calls.pop(name)):
            moves[place] += each
    same = {name: [*zip(*each, strict=True)] for name, each in calls.items()}
    met = [row for name, rows in same.items() if TOGETHER.search(name) for row in rows]
    ahead = [
        median([row[p][1] - row[0][1] for row in met] or [0]) for p in range(len(ranks))
    ]
    for row in (row for rows in same.values() for row in rows):  # the same call
        last = max(start - a for (start, _), a in zip(row, ahead, strict=True))
        least = min(end - start for start, end in row)
        for place, (start, end) in enumerate(row):
            came = max(start, min(last + ahead[place], end - least))
            waits[place].append([start, came])
            moves[place].append([came, end])
    return [*map(union, waits)], [*map(union, moves)]


def pieces(ranks):
    """Return, by rank and step, the spans of each kind; together they are the step."""
    waits, moves = split(ranks)
    found = []
    for rank, waited, moved in zip(ranks, waits, moves, strict=True):
        layers = rank.computes, rank.loads, moved, waited
        rows = []
        for step in rank.steps:
            left, row = [step], {}
            # A moment belongs to the first of these kinds that it is in.
            for kind, spans in zip(KINDS, layers, strict=False):
                row[kind] = both(left, spans)
                left = minus(left, spans)
            rows.append(row | {"Python": left})
        found.append(rows)
    return found


def judge(ranks):
    """Return milliseconds by rank, the numbers of the verdict, and who is late."""
    spans = pieces(ranks)
    steps = min(map(len, spans))
    table = [
        [
            {kind: sum(b - a for a, b in row[kind]) / 1000 for kind in KINDS}
            for row in rows[-steps:]
        ]
        for rows in spans
    ]
    longest = [
        max(step, key=lambda row: row["waiting"]) for step in zip(*table, strict=True)
    ]
    shares = {kind: mean(row[kind] for row in longest) for kind in KINDS}
    order = range(len(ranks))
    late = [
        min(order, key=lambda r: table[r][step]["waiting"]) for step in range(steps)
    ]
    means = [
        {kind: mean(row[kind] for row in rows) for kind in KINDS} for rows in table
    ]
    return means, shares, late


def say(ranks):
    """Yield the lines of the report."""
    means, shares, late = judge(ranks)
    yield "ms per step" + "".join(f"{kind:>10}" for kind in KINDS) + f"{'all':>10}"
    for rank, row in zip(ranks, means, strict=True):
        times = [row[kind] for kind in KINDS]
        yield f"rank {rank.number:<6}" + "".join(
            f"{time:10.1f}" for time in [*times, sum(times)]
        )
    why = sorted({*unclear(ranks).values()})
    for reason in why:
        yield f"{reason}: waiting counts as messages"
    verdict = max(KINDS, key=shares.get)
    told = "messages or waiting" if why and verdict == "messages" else verdict
    yield (
        f"verdict: {told}, {shares[verdict]:.1f} of {sum(shares.values()):.1f} ms, "
        "by step those of the rank that waits longest"
    )
    if verdict == "waiting":
        place, times = Counter(late).most_common(1)[0]
        yield f"  rank {ranks[place].number} comes last in {times} of {len(late)} steps"
        rest = [row for other, row in enumerate(means) if other != place]
        more = {
            kind: means[place][kind] - median(row[kind] for row in rest)
            for kind in KINDS
            if kind != "waiting"
        }
        kind = max(more, key=more.get)
        yield f"  it spends {more[kind]:.1f} ms more than the others on: {kind}"
    copied = mean(
        sum(b - a for a, b in both(rank.steps, rank.copies)) / 1000 / len(rank.steps)
        for rank in ranks
    )
    if verdict == "loader" and copied > shares["loader"] / 2:
        yield "  mostly copies to the GPU: pin_memory; or are weights kept on the host?"
    yield f"  {ADVICE[verdict]}"


def read_all(paths):
    """Read traces, or all that are in a folder; return them in the order of ranks."""
    files = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.json*")) if path.is_dir() else [path]
    ranks = sorted(map(read, files), key=lambda rank: rank.number)
    for one, other in pairwise(ranks):
        if one.number == other.number:
            raise SystemExit(f"two traces of rank {one.number}: give those of one run")
    return ranks


def main():
    ranks = read_all(sys.argv[1:])
    if not ranks:
        raise SystemExit("no traces: python verdict.py rank0.json rank1.json ...")
    print(*say(ranks), sep="\n", flush=True)


if __name__ == "__main__":
    main()
