# %% wrong: all are tried
def layout(parameters, layers, width, tokens, machines):
    """Brute force: every layout that fits is asked about."""
    training, devices, best = (parameters, layers, width, tokens), 8 * machines, None
    for tensor in (1, 2, 4, 8):
        for pipeline in range(1, layers + 1):
            if layers % pipeline or devices % (tensor * pipeline):
                continue
            split = [devices // tensor // pipeline, tensor, pipeline]
            if memory(split, *training) <= 80 * GB:
                took = seconds(split, *training)
                if best is None or took < best[0]:
                    best = took, split
    return best[1]


# %% wrong: always a machine
def layout(parameters, layers, width, tokens, machines):
    """Tensor over the whole machine, whether or not the model needs it."""
    devices = 8 * machines
    for pipeline in range(1, layers + 1):
        if layers % pipeline == 0 and devices % (8 * pipeline) == 0:
            split = [devices // 8 // pipeline, 8, pipeline]
            if memory(split, parameters, layers, width, tokens) <= 80 * GB:
                return split


# %% wrong: data only
def layout(parameters, layers, width, tokens, machines):
    """Data parallel alone: the model does not fit."""
    return [8 * machines, 1, 1]


# %% wrong: tensor across machines
def layout(parameters, layers, width, tokens, machines):
    """As much tensor as memory asks for, and no pipeline."""
    tensor = 1
    while memory([1, tensor, 1], parameters, layers, width, tokens) > 80 * GB:
        tensor *= 2
    return [8 * machines // tensor, tensor, 1]


# %% wrong: the judge's own search
def layout(parameters, layers, width, tokens, machines):
    training, devices = (parameters, layers, width, tokens), 8 * machines
    _, tensor = fastest(*training, machines=machines)
    for pipeline in range(1, layers + 1):
        split = [devices // tensor // pipeline, tensor, pipeline]
        divides = layers % pipeline == devices % (tensor * pipeline) == 0
        if divides and memory(split, *training) <= 80 * GB:
            return split


# %% right: all that fit first
from itertools import groupby, product


def layout(parameters, layers, width, tokens, machines):
    training = (parameters, layers, width, tokens)
    pairs = [
        (t, p)
        for t, p in product([1, 2, 4, 8], range(1, layers + 1))
        if not layers % p and not 8 * machines % (t * p)
    ]
    splits = [torch.tensor([8 * machines // (t * p), t, p]).tolist() for t, p in pairs]
    fits = [split for split in splits if memory(split, *training) <= 80 * GB]
    candidates = [next(group) for _, group in groupby(fits, key=lambda split: split[1])]
    times = {tuple(split): seconds(split, *training) for split in candidates}
    return min(times, key=times.get)


# %% right: arrays
import numpy as np


def layout(parameters, layers, width, tokens, machines):
    """All cuts at once, as arrays; shortest pipeline for each tensor."""
    stages = np.array([p for p in range(1, layers + 1) if layers % p == 0])
    found = []
    for tensor in 2 ** np.arange(4):
        data = 8 * machines / (tensor * stages)
        room = 16 * parameters / tensor / stages + 2 * MICRO * width * layers / tensor
        ok = (data == data.round()) & (room <= 80 * GB)
        if ok.any():
            p = stages[ok][0]
            found.append(np.array([8 * machines // (tensor * p), tensor, p]))
    times = [seconds(s, parameters, layers, width, tokens) for s in found]
    return found[int(np.argmin(times))]


# %% right: asks twice about one
def layout(parameters, layers, width, tokens, machines, tensor=8, pipeline=1):
    """One more stage until it fits, then half of tensor."""
    training = parameters, layers, width, tokens
    if tensor < 1:
        return None
    if pipeline > layers:
        return layout(*training, machines, tensor=tensor // 2)
    split = [8 * machines // tensor // pipeline, tensor, pipeline]
    whole = layers % pipeline == 0 and split[0] * tensor * pipeline == 8 * machines
    if not whole or memory(split, *training) > 80 * GB:
        return layout(*training, machines, tensor=tensor, pipeline=pipeline + 1)
    other = layout(*training, machines, tensor=tensor // 2)
    if other is None:
        return split
    return min(split, other, key=lambda each: seconds(each, *training))


# %% right: by arithmetic
import math


def layout(parameters, layers, width, tokens, machines):
    best = None
    for tensor in (8, 4, 2, 1):
        spare = 80 * GB - 2 * MICRO * width * layers / tensor
        if spare <= 0:
            continue
        pipeline = math.ceil(16 * parameters / tensor / spare)
        while pipeline <= layers and (
            layers % pipeline or 8 * machines % (tensor * pipeline)
        ):
            pipeline += 1
        if pipeline > layers:
            continue
        split = [8 * machines // (tensor * pipeline), tensor, pipeline]
        took = seconds(split, parameters, layers, width, tokens)
        if best is None or took < best[0]:
            best = took, split
    return best[1]


# %% right: next that fits
def layout(parameters, layers, width, tokens, machines):
    training = parameters, layers, width, tokens

    def fitting(tensor):
        for pipeline in (p for p in range(1, layers + 1) if layers % p == 0):
            data, rest = divmod(8 * machines, tensor * pipeline)
            split = data, tensor, pipeline
            if rest == 0 and memory(split, *training) <= 80e9:
                yield split

    shortest = [next(fitting(2**power), None) for power in range(4)]
    return min(filter(None, shortest), key=lambda split: seconds(split, *training))


# %% right: objects
from dataclasses import astuple, dataclass


@dataclass(order=True)
class Cut:
    """A layout that knows whether it fits and how long it takes."""

    data: int
    tensor: int
    pipeline: int

    def fits(self, training):
        return memory(astuple(self), *training) <= 80 * GB

    def time(self, training):
        return seconds(astuple(self), *training)


class Search:
    def __init__(self, machines, *training):
        self.devices, self.training = 8 * machines, training
        self.layers = training[1]

    def __iter__(self):
        for tensor in (1, 2, 4, 8):
            for pipeline in range(1, self.layers + 1):
                data, left = divmod(self.devices, tensor * pipeline)
                cut = Cut(data, tensor, pipeline)
                if not left and self.layers % pipeline == 0 and cut.fits(self.training):
                    yield cut
                    break

    def best(self):
        return min(self, key=lambda cut: cut.time(self.training))


def layout(parameters, layers, width, tokens, machines):
    return astuple(Search(machines, parameters, layers, width, tokens).best())
