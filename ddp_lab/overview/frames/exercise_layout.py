"""Exercise: lay a model out over machines so that a step is fast enough.

Three trainings on other machines, each with a time that a step may take. Memory and
time of a layout are computed below, by the formulas of the lessons.

    [rank 0] not yet: write layout()
"""

import torch.distributed as dist

GB, FLOPS = 1e9, 150e12
FAST, SLOW = 250 * GB, 25 * GB  # bytes a second of a device: in a machine, between two
# Parameters, layers, width, tokens of a batch, machines of 8 devices of 80 GB; and the
# seconds that a step may take.
TRAININGS = {
    "13 billion": (13e9, 40, 5120, 4_194_304, 8, 36.0),
    "175 billion": (175e9, 96, 12288, 3_145_728, 128, 25.5),
    "530 billion": (530e9, 105, 20480, 3_932_160, 280, 46.0),
}
MICRO = 2048  # tokens of a micro-batch


def layout(parameters, layers, width, tokens, machines):
    return None  # the cell's function stands here


def memory(split, parameters, layers, width, tokens):
    """Bytes on a device: 16 a parameter, and two a number that enters a layer."""
    data, tensor, pipeline = split
    # 1F1B: the first stage keeps a micro-batch for each stage, and has 1 / pipeline of
    # the layers.
    kept = 2 * MICRO * width * layers
    return 16 * parameters / tensor / pipeline + kept / tensor


def seconds(split, parameters, layers, width, tokens):
    """Computing, with the bubble; the sums of tensor, and those of data."""
    data, tensor, pipeline = split
    devices = data * tensor * pipeline
    micro_batches = tokens / MICRO / data  # of each pipeline
    if micro_batches < 1:
        return float("inf")
    bubble = (pipeline - 1) / micro_batches
    compute = 6 * parameters * tokens / devices / FLOPS

    # Four all_reduces a layer and micro-batch, on the link that joins all of them.
    link = FAST if tensor <= 8 else SLOW
    sums = 4 * layers / pipeline * micro_batches * 2 * MICRO * width
    sums *= 2 * (tensor - 1) / tensor / link
    gradients = 2 * parameters / tensor / pipeline * 2 * (data - 1) / data / SLOW
    return (compute + sums) * (1 + bubble) + gradients


def judge(name):
    """Return the layout and its seconds, or raise if it does not do."""
    *training, machines, most = TRAININGS[name]
    split = layout(*training, machines)
    if any(n != int(n) or n < 1 for n in split) or len(split) != 3:
        raise AssertionError(f"{name}: {split} are not three whole numbers")
    data, tensor, pipeline = split
    if data * tensor * pipeline != 8 * machines or training[1] % pipeline:
        raise AssertionError(f"{name}: {split} for {8 * machines} devices")
    if memory(split, *training) > 80 * GB:
        needed = memory(split, *training) / GB
        raise AssertionError(f"{name}: {split} needs {needed:.0f} GB a device")
    if seconds(split, *training) > most:
        took = seconds(split, *training)
        raise AssertionError(f"{name}: {split} takes {took:.1f} s, at most {most} s")
    return [*split, seconds(split, *training)]


def main(rank, world_size, device):
    dist.barrier()  # who leaves before all are connected makes the others fail
    facts = {"solved": True, "layouts": {}}
    for name in TRAININGS:
        try:
            facts["layouts"][name] = judge(name)
        except NotImplementedError:
            print(f"[rank {rank}] not yet: write layout()", flush=True)
            return {"solved": False}
        data, tensor, pipeline, took = facts["layouts"][name]
        told = f"data {data}, tensor {tensor}, pipeline {pipeline}: {took:.1f} s"
        print(f"[rank {rank}] {name}: {told}", flush=True)
    return facts
