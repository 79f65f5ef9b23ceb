"""The cost model that chooses a road: what a practitioner asks, and published runs.

Each answer below is seen to change when a mistake is planted in the model. The
published trainings stand in the lesson, in one cell; here they are read from there.
"""

from math import inf
from pathlib import Path

import pytest

pytest.importorskip("nbformat", reason="the lesson is a notebook")

from ddp_lab import ROOT  # noqa: E402
from ddp_lab.scale import road as model  # noqa: E402
from ddp_lab.scale.road import GB, Training  # noqa: E402
from tools import notebooks as kit  # noqa: E402

SOURCE = Path(model.__file__).read_text()

H100 = model.H100 | {"slow": 45 * GB}
A100 = {
    "machine": 8,
    "memory": 80 * GB,
    "flops": 190e12,
    "fast": 235 * GB,
    "slow": 23 * GB,
}
ETHERNET = A100 | {"slow": 0.3 * GB}  # 25 Gbit/s for a machine
CARDS = {"machine": 8, "memory": 24 * GB, "flops": 90e12, "fast": 12 * GB, "slow": GB}
PCS = CARDS | {"machine": 1, "flops": 80e12, "slow": 0.11 * GB}  # 1 Gbit/s
SIZES = {  # parameters, layers, width
    "100M": (100e6, 12, 768),
    "1.5B": (1.5e9, 48, 1600),
    "3B": (3e9, 32, 2560),
    "7B": (6.7e9, 32, 4096),
    "13B": (13e9, 40, 5120),
    "34B": (34e9, 48, 8192),
    "70B": (70e9, 80, 8192),
    "175B": (175e9, 96, 12288),
    "1T": (1e12, 128, 25600),
}


def training(size, sequences, length, devices, machines, **more) -> Training:
    return Training(*SIZES[size], sequences, length, devices, **(machines | more))


def changed(old: str, new: str) -> dict:
    """Return the model's names with a mistake planted in it."""
    assert SOURCE.count(old) == 1, old
    names = {"__name__": "changed"}
    exec(SOURCE.replace(old, new), names)  # the lab's own program, changed
    return names


# Mistakes: what stands in the model, and what stands in its place.
ONE_CARD = ("min(t.fast, inside * t.slow)", "t.slow")
FAST_LINK = (
    "= t.fast if inside == ranks else min(t.fast, inside * t.slow)",
    "= t.fast",
)
NO_LATENCY = ("sent / link + hops * t.hop", "sent / link")
ALL_OF_IT = ("once = (ranks - 1) / ranks * size", "once = size")
A_STEP = ("(2 + t.scatter) * layers * micro", "(2 + t.scatter) * layers")
NOT_HIDDEN = ('exposed("gathering", sum(spent.values()))', 'exposed("gathering", 0)')
FREE_GATHERS = ('= exposed("gathering", sum(spent.values()))', "= 0")
HIDDEN_SUMS = ('= wire["tensor sums"]', "= 0")
HIDDEN_GRADIENTS = ('exposed("gradients", backward)', "0")
NO_BUBBLE = ("* (c.pipeline - 1) / micro", "* 0")
NO_LAUNCH = ("max(layer, LAUNCH)", "layer")
FREE_RECOMPUTING = ('spent["computing"] * c.recompute / 3', "0")
ALWAYS_PAYS = ("PAYS = 0.5", "PAYS = 0")
NO_OFFLOAD = ("rows if offload or rows[0][0] < inf else", "rows if True else")
NO_HOST = (
    "max(sum(memory(t, c)) / (ROOM * t.memory), out / t.host)",
    "sum(memory(t, c)) / (ROOM * t.memory)",
)
NO_ACTIVATIONS = ("optimizer, gathered, activations\n", "optimizer, gathered, 0\n")
WHOLE_ACTIVATIONS = ("((kept - t.whole) / c.tensor + t.whole)", "kept")
ONE_FLYING = ("layers * min(ahead, micro)", "layers")
FREE_ATTENTION = ("dense + 6 * t.layers * t.width * t.length", "dense")
ADAM_ALWAYS = ("gathered = t.states * part", "gathered = 12 * part")
FREE_OPTIMIZER = ("gathered = t.states * part", "gathered = 0 * part")
ALL_COMPUTE = ("(t.active or t.parameters)", "t.parameters")
NO_SHARDED = ('"sharded optimizer": data, "sharded": data', '"sharded optimizer": data')
NO_HYBRID = ("if data > near > 1 and data % near == 0:", "if False:")
DDP_LAST = ('("DDP", "sharded optimizer", *', '("sharded optimizer", "DDP", *')

SITUATIONS = {
    "34 billion on 16 H100, 260,000 tokens a device: sharded, no pipeline": (
        training("34B", 1024, 4096, 16, H100),
        lambda a: a.kind == "sharded" and a.pipeline == 1,
        NOT_HIDDEN,
    ),
    "70 billion on 64 H100: sharded, no pipeline": (
        training("70B", 512, 4096, 64, H100),
        lambda a: a.kind == "sharded" and a.pipeline == 1,
        ONE_CARD,
    ),
    "7 billion on eight 4090, over PCIe: sharded, no tensor": (
        training("7B", 64, 4096, 8, CARDS),
        lambda a: a.kind == "sharded" and a.tensor == a.pipeline == 1,
        HIDDEN_SUMS,
    ),
    "7 billion on 1,024 H100: sharded inside machines only": (
        training("7B", 1024, 4096, 1024, H100),
        lambda a: a.kind == "hybrid sharded" and a.shard == 8 and a.tensor == 1,
        NO_LATENCY,
    ),
    "7 billion on 1,024 H100, where hybrid sharding is wanted at all": (
        training("7B", 1024, 4096, 1024, H100),
        lambda a: a.kind == "hybrid sharded",
        NO_HYBRID,
    ),
    "100 million on 64 PCs, 1 Gbit/s: it does not pay": (
        training("100M", 256, 512, 64, PCS),
        lambda a: a.devices == 1,
        ALWAYS_PAYS,
    ),
    "100 million on 64 PCs, a batch of 8 million tokens: a part of them": (
        training("100M", 16384, 512, 64, PCS),
        lambda a: a.kind == "DDP" and 1 < a.devices < 64,
        HIDDEN_GRADIENTS,
    ),
    "100 million, a batch of 4 on 8 devices: DDP on 4": (
        training("100M", 4, 1024, 8, A100),
        lambda a: a.kind == "DDP" and a.devices == 4,
        NO_LAUNCH,
    ),
    "1.5 billion, a batch of 4 on 8 devices: tensor as well": (
        training("1.5B", 4, 1024, 8, A100),
        lambda a: (a.tensor, a.pipeline, a.data) == (2, 1, 4),
        NO_BUBBLE,
    ),
    "100 million on one machine: DDP": (
        training("100M", 512, 1024, 8, A100),
        lambda a: a.kind == "DDP" and a.data == 8,
        DDP_LAST,
    ),
    "7 billion on one machine: the optimizer does not fit everywhere": (
        training("7B", 512, 2048, 8, A100),
        lambda a: a.kind == "sharded optimizer" and a.data == 8,
        FREE_OPTIMIZER,
    ),
    "13 billion on one machine: sharded": (
        training("13B", 512, 2048, 8, A100),
        lambda a: a.kind == "sharded" and a.data == 8 and not a.recompute,
        NO_SHARDED,
    ),
    "7 billion on one A100: offloaded": (
        training("7B", 64, 2048, 1, A100),
        lambda a: a.devices == 1 and a.offload,
        NO_OFFLOAD,
    ),
    "7 billion on one A100, 8 bits for Adam: nothing offloaded": (
        training("7B", 64, 2048, 1, A100, states=6),
        lambda a: a.devices == 1 and not a.offload and a.recompute,
        ADAM_ALWAYS,
    ),
    "3 billion on one 4090 in a PC with 32 GB: nothing fits": (
        training("3B", 64, 2048, 1, CARDS, host=32 * GB),
        lambda a: a.seconds == inf,
        NO_HOST,
    ),
    "175 billion on eight A100: nothing fits": (
        training("175B", 512, 2048, 8, A100),
        lambda a: a.seconds == inf and 1 < a.fill < 2,
        NO_HOST,
    ),
    "131,072 tokens in a sequence: tensor cuts them, and little is recomputed": (
        training("7B", 8, 131072, 8, H100),
        lambda a: a.tensor == 8 and 0 < a.recompute < 1,
        WHOLE_ACTIVATIONS,
    ),
    "131,072 tokens in a sequence: attention is a good half of the work": (
        training("7B", 8, 131072, 8, H100),
        lambda a: 30 < a.seconds < 60,
        FREE_ATTENTION,
    ),
    "8 million tokens in a sequence: cut the sequence, no road here does": (
        training("7B", 1, 2**23, 8, H100),
        lambda a: a.seconds == inf and "most of it activations" in a.told[0],
        NO_ACTIVATIONS,
    ),
    "47 billion, 13 of them active, on 64 H100": (
        Training(47e9, 32, 4096, 1024, 4096, 64, **H100, active=13e9),
        lambda a: a.kind == "sharded" and a.seconds < 20 and "experts" in a.told[-1],
        ALL_COMPUTE,
    ),
    "a trillion on 3,072 H100: tensor, pipeline, data": (
        training("1T", 3072, 2048, 3072, H100),
        lambda a: a.tensor == 8 and a.pipeline > 8 and a.data > 1,
        A_STEP,
    ),
    "13 billion on 64 A100, 25 Gbit/s between machines: sharded inside them": (
        training("13B", 1024, 2048, 64, ETHERNET),
        lambda a: a.kind == "hybrid sharded" and a.shard * a.tensor == 8,
        FAST_LINK,
    ),
    "70 billion on 32 A100, 25 Gbit/s between machines: a pipeline": (
        training("70B", 1024, 2048, 32, ETHERNET),
        lambda a: a.pipeline >= 4,
        FREE_GATHERS,
    ),
    "70 billion on 64 H100, 16 sequences: tensor and sharded": (
        training("70B", 16, 4096, 64, H100),
        lambda a: a.tensor == 4 and a.kind == "sharded",
        HIDDEN_GRADIENTS,
    ),
    "7 billion on 64 machines of one A100, 100 Gbit/s": (
        training("7B", 512, 4096, 64, A100, machine=1, slow=11 * GB),
        lambda a: a.kind == "sharded optimizer" and not a.recompute,
        FREE_RECOMPUTING,
    ),
    "34 billion on 16 H100: a pipeline keeps a micro-batch for each stage": (
        training("34B", 1024, 4096, 16, H100),
        lambda a: a.pipeline == 1,
        ONE_FLYING,
    ),
    "the same weights are not sent to oneself: two PCs": (
        training("100M", 8192, 512, 2, PCS),
        lambda a: a.devices == 2 and 17 < a.seconds < 20,
        ALL_OF_IT,
    ),
}


def published() -> dict:
    """Return the published trainings, which stand in one cell of the lesson."""
    (path,) = ROOT.glob("notebooks/*_choose_a_layout.ipynb")
    sources = [cell.source for cell in kit.read(path).cells]
    (source,) = [text for text in sources if "\nROWS = {" in text]
    names = dict(vars(model))
    exec(source, names)  # our own cell
    return names["PUBLISHED"]


def test_published_steps_took_about_as_long_as_they_should():
    found = published()
    assert len(found) == 14
    for label, (asked, taken, reported) in found.items():
        took = sum(model.seconds(asked, taken).values())
        assert 0.8 < took / reported < (1.3 if label == "MPT 30B" else 1.2), label
        assert taken.data * taken.tensor * taken.pipeline == asked.devices, label
        time, full, chosen = model.best(asked, asked.devices)[0]
        assert time < 1.01 * took or model.fill(asked, taken) > 1, label
        assert full <= 1 and model.fill(asked, chosen) <= 1, label


class Answer:
    """The chosen road: its cut's fields, and what was said of it."""

    def __init__(self, names: dict, asked: Training):
        rows = names["road"](asked)
        self.seconds, self.fill, cut = rows[0]
        self.__dict__ |= cut._asdict()
        self.devices = names["devices"](cut)
        self.told = names["told"](asked)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_practitioner_would_accept_the_answer(name):
    asked, accepts, _ = SITUATIONS[name]
    answer = Answer(vars(model), asked)
    assert accepts(answer), answer.told


@pytest.mark.full
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_answer_is_another_with_a_mistake_in_the_model(name):
    asked, accepts, mistake = SITUATIONS[name]
    answer = Answer(changed(*mistake), asked)
    assert not accepts(answer), answer.told
