"""The verdict on a trace: right where the cause is planted, on a CPU and on a GPU."""

import gzip
import json
import re

import pytest
from ranks import launch

from ddp_lab.profiling import verdict

PLANTED = """
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        time.sleep(0.06)
        return i


def loader(rank, parts):
    pass


def python(rank, parts):
    for _ in range(1500):
        parts["small"] += sum(range(2000))  # mostly Python, on a busy machine, too


def kernels(rank, parts):
    for _ in range(3):
        parts["square"] @ parts["square"]


def messages(rank, parts):
    dist.all_reduce(parts["large"])


def waiting(rank, parts):
    time.sleep(0.08 * rank)


def main(rank, world_size, device):
    torch.set_num_threads(1)
    parts = {"small": torch.zeros(4), "large": torch.zeros(2**24)}
    parts["square"] = torch.ones(768, 768)
    for way in (loader, python, kernels, messages, waiting):
        folder = Path(sys.argv[1]) / way.__name__
        folder.mkdir(exist_ok=True)
        with profile(schedule=schedule(wait=0, warmup=0, active=5, repeat=1)) as prof:
            for _ in DataLoader(Slow(), 1) if way is loader else range(5):
                way(rank, parts)
                dist.all_reduce(parts["small"])
                prof.step()
        prof.export_chrome_trace(str(folder / f"any_{rank}.json"))
"""


def program(folder):
    """Write the planted loops with the end that programs have."""
    from ddp_lab.kit.cell.compose import Order, whole

    path = folder / "planted.py"
    text = '"""Loops."""\n' + PLANTED
    path.write_text(whole(Order("ddp_lab/profiling/planted.py"), text, {}.get).text)
    return path


@pytest.mark.processes
def test_the_cause_that_was_planted_is_the_verdict(tmp_path):
    launch(2, program(tmp_path), arguments=str(tmp_path))
    for name in ("loader", "python", "kernels", "messages", "waiting"):
        ranks = verdict.read_all([tmp_path / name])
        assert [rank.number for rank in ranks] == [0, 1]
        lines = list(verdict.say(ranks))
        assert re.search(f"verdict: {name},", "\n".join(lines), re.IGNORECASE), lines
    assert "  rank 1 comes last in 4 of 4 steps" in lines
    assert lines[-2].endswith("more than the others on: Python")


def event(name, cat, start, end, **more):
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": start,
        "dur": end - start,
        **more,
    }


def trace(folder, rank, events, ranks=2, **more):
    """Write a trace of two steps of 100 ms; `events` are those of each step."""
    made = []
    for step in range(2):
        at = 100_000 * step
        made.append(event(f"ProfilerStep#{step}", "user_annotation", at, at + 100_000))
        for name, cat, start, end in events:
            made.append(event(name, cat, at + 1000 * start, at + 1000 * end))
    told = {"rank": rank, "world_size": ranks, **more}
    path = folder / f"{rank}.json"
    path.write_text(json.dumps({"traceEvents": made, "distributedInfo": told}))
    return path


KERNEL = "void gemm<float>(...)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def of_gpu(start, loads=(0, 1), computes=((2, 50),)):
    """The events of a step, whose all_reduce begins at `start` and ends at 90 ms."""
    return [
        (NEXT, "user_annotation", *loads),
        *((KERNEL, "kernel", *span) for span in computes),
        (NCCL, "kernel", start, 90),
        ("nccl:all_reduce", "user_annotation", 1, 2),  # the host's call is short
        ("aten::mm", "cpu_op", 0, 99),  # the host's ops are no kernels
        ("cudaStreamSynchronize", "cuda_runtime", 50, 90),
    ]


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("kernels", (of_gpu(85, computes=[(2, 80)]), of_gpu(85, computes=[(2, 80)]))),
        ("messages", (of_gpu(20, computes=[(2, 20)]), of_gpu(20, computes=[(2, 20)]))),
        ("loader", (of_gpu(85, loads=(0, 70), computes=[(70, 85)]),) * 2),
        ("waiting", (of_gpu(20, computes=[(2, 20)]), of_gpu(85, loads=(0, 70)))),
        ("Python", (of_gpu(88, computes=[(i, i + 0.1) for i in range(80)]),) * 2),
    ],
)
def test_a_gpu_s_trace_is_judged_by_its_kernels(tmp_path, name, events):
    ranks = [verdict.read(trace(tmp_path, r, each)) for r, each in enumerate(events)]
    means, shares, late = verdict.judge(ranks)
    assert max(shares, key=shares.get) == name
    assert all(sum(row.values()) == pytest.approx(100) for row in means)
    if name == "waiting":
        assert late == [1, 1]


def test_kernels_hide_what_runs_beside_them(tmp_path):
    events = of_gpu(20, loads=(0, 60), computes=[(0, 85)])
    events.append(("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 90, 96))
    ranks = [verdict.read(trace(tmp_path, r, events)) for r in range(2)]
    _, shares, _ = verdict.judge(ranks)
    assert shares == {
        "kernels": pytest.approx(85),
        "messages": pytest.approx(5),
        "waiting": 0,
        "loader": pytest.approx(6),
        "Python": pytest.approx(4),
    }


@pytest.mark.parametrize("ahead", [-3000, -40, -20, -5, 5, 20, 3000])
def test_clocks_need_not_agree(tmp_path, ahead):
    """By so many ms is the clock of the rank that comes last ahead of the other's."""
    paths = [trace(tmp_path, r, of_gpu((20, 70)[r], computes=[])) for r in range(2)]
    wrong = json.loads(paths[1].read_text())
    wrong["baseTimeNanoseconds"] = 1_000_000 * ahead
    paths[1].write_text(json.dumps(wrong))
    means, _, late = verdict.judge(list(map(verdict.read, paths)))
    assert late == [1, 1] and means[1]["waiting"] == 0
    assert means[0]["waiting"] == pytest.approx(50)
    assert means[0]["messages"] == pytest.approx(20)


def test_a_root_that_sends_and_goes_on_is_waited_for_by_nobody(tmp_path):
    """The rank that comes later finds the message under way."""
    sums = [("gloo:all_reduce", "user_annotation", 85, 90)]
    root = [("gloo:broadcast", "user_annotation", 0, 1), *sums]
    other = [("gloo:broadcast", "user_annotation", 20, 60), *sums]
    ranks = [verdict.read(trace(tmp_path, r, e)) for r, e in enumerate((root, other))]
    means, _, _ = verdict.judge(ranks)
    assert means[1]["waiting"] == 0 and means[1]["messages"] == pytest.approx(45)


LATE = of_gpu(20, computes=[(2, 20)]), of_gpu(85, loads=(0, 70))
ONE_MORE = (NCCL, "kernel", 95, 96)


@pytest.mark.parametrize(
    ("reason", "events", "more"),
    [
        ("1 of 2 traces", LATE[:1], {}),
        ("not equally many calls of ncclDev", ([*LATE[0], ONE_MORE], LATE[1]), {}),
        ("a group has some of the", LATE, {"pg_config": [{"pg_size": 1}]}),
        ("send and recv", ([("gloo:recv", "user_annotation", 10, 90)],) * 2, {}),
    ],
)
def test_what_it_cannot_know_it_says(tmp_path, reason, events, more):
    ranks = [verdict.read(trace(tmp_path, r, e, **more)) for r, e in enumerate(events)]
    lines = "\n".join(verdict.say(ranks))
    assert re.search(rf"^{reason}.*: waiting counts as messages$", lines, re.M), lines
    assert "verdict: messages or waiting" in lines


def test_a_call_over_gloo_beside_nccl_is_a_collective_too(tmp_path):
    early, late = (
        [*of_gpu(start, computes=[]), ("gloo:all_gather", "user_annotation", at, 19)]
        for start, at in ((85, 1), (85, 17))
    )
    ranks = [verdict.read(trace(tmp_path, r, e)) for r, e in enumerate((early, late))]
    means, _, late = verdict.judge(ranks)
    assert late == [1, 1] and means[0]["waiting"] == pytest.approx(16)


def test_weights_that_come_from_the_host_are_told_from_batches(tmp_path):
    events = of_gpu(85, loads=(0, 2), computes=[(70, 85)])
    events.append(("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 2, 70))
    ranks = [verdict.read(trace(tmp_path, r, events)) for r in range(2)]
    assert "weights kept on the host" in "\n".join(verdict.say(ranks))


def test_lines_of_an_autograd_function_are_python(tmp_path):
    """As the profiler records them on a CPU: an op with no library in its name."""
    events = [("Nap", "cpu_op", 5, 60), ("aten::mm", "cpu_op", 60, 70)]
    means, _, _ = verdict.judge([verdict.read(trace(tmp_path, 0, events, ranks=1))])
    assert means[0]["kernels"] == pytest.approx(10)
    assert means[0]["Python"] == pytest.approx(90)


def test_a_packed_trace_is_read(tmp_path):
    path = trace(tmp_path, 0, of_gpu(20))
    packed = tmp_path / "0.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert verdict.read_all([tmp_path])[0].ranks == 2


def test_a_trace_without_steps_says_what_is_missing(tmp_path):
    path = trace(tmp_path, 0, [])
    path.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(SystemExit, match=r"prof\.step\(\)"):
        verdict.read(path)


def test_traces_of_two_runs_are_refused(tmp_path):
    for r in range(2):
        path = trace(tmp_path, r, of_gpu(20))
        (tmp_path / f"old_{r}.json").write_text(path.read_text())
    with pytest.raises(SystemExit, match="two traces of rank 0"):
        verdict.read_all([tmp_path])


def test_it_needs_nothing_but_python():
    import ast
    import sys

    tree = ast.parse(open(verdict.__file__).read())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
            )
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)


def test_another_json_file_is_named(tmp_path):
    (tmp_path / "facts.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"facts\.json: no trace"):
        verdict.read(tmp_path / "facts.json")
