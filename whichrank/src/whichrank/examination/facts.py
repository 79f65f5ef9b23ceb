"""What a witness leaves of one rank: it fills these, and the questions read them.

They travel as JSON. Of this module a rank needs the standard library alone.

A line is a place in the script, as `train.py:12`; "" if there is none. A digest is a
number that differs, but by rare chance, where what it stands for does.
"""

import json
from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

Kind = TypeVar("Kind")
Digest = int | None
"""None where there was nothing to compare: no gradient, a shard, a sparse tensor."""


# --- models ---


@dataclass(frozen=True)
class Forwards:
    """The forwards of one DDP in training, counted from the start."""

    ran: int = 0
    synced: int = 0
    """Of those, how many stood outside of `no_sync`."""
    last_synced: bool = False


@dataclass
class Copy:
    """A copy of a model that was made before DDP wrapped this one, such as an EMA."""

    weight: str
    """Its first weight."""
    before: Digest
    """Of that, when DDP wrapped the model."""
    after: Digest
    """Of that, when this was written."""


@dataclass
class Wrapped:
    """A model in DDP."""

    line: str
    ranks: list[int]
    weights: list[str]
    """Names, as the model gives them, in its order."""
    trainable: list[str]
    """Those that were not frozen when DDP wrapped the model."""
    buffers: list[str]
    ignored: list[str]
    """Weights and buffers that DDP was told to leave alone."""
    broadcasts: bool = True
    """Whether it sends rank 0's buffers to all before a forward."""
    held: list[Digest] = field(default_factory=list)
    """Of each buffer, when this was written."""
    forwards: Forwards = Forwards()
    sends: bool = False
    """Whether it called torch.distributed in a forward, but for SyncBatchNorm."""
    hooked: bool = False
    """Whether it had a communication hook."""
    joins: bool = False
    """Whether it ran under `Join`."""
    orphans: list[str] = field(default_factory=list)
    """Weights that had a gradient at the last step, and that no optimizer steps."""
    copies: list[Copy] = field(default_factory=list)


@dataclass(frozen=True)
class Tie:
    """What lets some ranks train one model: equal weights, and samples of their own."""

    by: str
    """`DDP`, `fully_shard` or `FSDP`."""
    ranks: list[int]
    line: str


@dataclass
class Fed:
    """What a model was given in its forwards in training, as one of a `Tie`."""

    line: str
    """Where it is called."""
    ranks: list[int]
    inputs: list[tuple[Digest, ...]] = field(default_factory=list)
    """Of each tensor that each of the forwards was given; empty if there was none."""


# --- optimizers ---


@dataclass(frozen=True)
class Step:
    """A step that an optimizer has taken."""

    rates: list[float]
    """The learning rate of each group of weights."""
    trained: int
    """Batches of this rank that were trained on until then."""
    forwards: list[Forwards]
    """Of each DDP that there was, until then."""
    gradients: list[Digest]
    """Of each weight, before the step."""
    weights: list[Digest]
    """Of each weight, after the step."""


@dataclass
class Averaged:
    """Gradients that the script has all_reduced by itself, among some ranks."""

    ranks: list[int]
    lines: dict[int, str] = field(default_factory=dict)
    """By a weight's number in its optimizer: the line that did so last."""
    grown: dict[int, float] = field(default_factory=dict)
    """By the number of a weight whose gradient DDP had averaged already: how much
    larger it was at the next step than before that call."""
    own: int = 0
    """A digest of what this rank brought to it, each time."""


@dataclass
class Optimizer:
    """An optimizer, which may never have taken a step."""

    kind: str
    """The name of its class."""
    weights: list[str]
    """Names, as a model gives them."""
    idle: list[str]
    """Those that never had a gradient before a step."""
    line: str = ""
    """Of its first step."""
    steps: list[Step] = field(default_factory=list)
    within: list[list[bool]] = field(default_factory=list)
    """Of each DDP, which of the weights are its own."""
    frozen: list[bool] = field(default_factory=list)
    """Which of the weights required no gradient at the last step."""
    averaged: list[Averaged] = field(default_factory=list)


# --- data ---


@dataclass(frozen=True)
class Batch:
    """A batch that a loader has delivered."""

    drawn: list[int]
    """The index of each sample in the whole data set; empty if that was not seen."""
    digest: Digest
    """Of its first tensor."""
    samples: list[list[int]]
    """Of each sample, a digest of its part of each tensor."""


@dataclass
class Pass:
    """A pass over a loader, which may not have come to its end."""

    models: int
    """How many DDPs there were when it began."""
    batches: list[Batch] = field(default_factory=list)
    trained: int = 0
    """How many of the batches were trained on."""
    whole: bool = False
    idle: bool = False
    """Whether it came to its end, and no gradients were computed meanwhile."""
    numbers: dict[str, int] = field(default_factory=dict)
    """By name: whole numbers that the data set has for attributes, such as an epoch."""

    @property
    def drawn(self) -> list[int]:
        """The samples of all its batches."""
        return [index for batch in self.batches for index in batch.drawn]


@dataclass
class Loader:
    """A DataLoader over which there was a pass."""

    line: str
    """Of its first pass."""
    base: int
    """Its data set beneath all subsets; loaders with one number share one."""
    holds: int | None
    """A digest of what that has for attributes; None if nothing could be read."""
    size: int | None
    """Samples in its data set; None of an IterableDataset."""
    draws: int | None
    """Samples that its sampler draws in a pass; None if that is not known."""
    shuffles: bool | None
    """None if its sampler is of the script's own, and nothing tells."""
    workers: int
    passes: list[Pass] = field(default_factory=list)


@dataclass(frozen=True)
class Split:
    """A random_split of a whole data set."""

    line: str
    digest: int
    """Of the indices in all parts."""


# --- what else a script does ---


@dataclass(frozen=True)
class Column:
    """A call that carried a tensor with gaps in memory."""

    name: str
    """Of the collective."""
    line: str


@dataclass(frozen=True)
class Load:
    """A load that has left something out, or that has restored nothing."""

    line: str
    left: list[str] = field(default_factory=list)
    """Entries of an optimizer's state in the checkpoint that were not asked for."""
    theirs: str = ""
    """If nothing was restored: the first name in the file."""
    own: str = ""
    """If nothing was restored: the first name in the model."""


@dataclass(frozen=True)
class Moments:
    """An optimizer's state that was read from a file, and that no optimizer has got."""

    line: str
    written: bool
    """Whether this run has written that file."""
    steps: int
    """How many steps all optimizers had taken until then."""


@dataclass
class Drawn:
    """Random numbers that a line has drawn since the first backward."""

    inside: bool
    """Whether it did so in a forward of one of the models of a `Tie`."""
    drops: bool
    """Whether they drop something out, in training."""
    seeds: str = "torch.manual_seed"
    """What seeds the generator."""
    times: int = 0
    digest: int = 0
    """Of the states of the generator before each of the draws."""


@dataclass
class Witnessed:
    """What one rank has done."""

    backend: str = ""
    """Of the process group that it has joined; "" if it has not."""
    framework: str = ""
    """In whose loop the first step was taken: `transformers`, say; "" if in none."""
    ties: list[Tie] = field(default_factory=list)
    fed: list[Fed] = field(default_factory=list)
    models: list[Wrapped] = field(default_factory=list)
    """Those in DDP."""
    optimizers: list[Optimizer] = field(default_factory=list)
    loaders: list[Loader] = field(default_factory=list)
    backwards: int = 0
    """How many times gradients were computed."""
    trained: int = 0
    """How many batches of loaders led to that."""
    calls: int = 0
    """Of broadcast and reduce, by the script itself."""
    sends: int = 0
    """Those that carried weights, messages or other large tensors."""
    past: int = 0
    """Collectives that no function of torch.distributed was called for: DDP's, say."""
    columns: list[Column] = field(default_factory=list)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    """By line."""
    clipped: str = ""
    """The line that has clipped gradients which a GradScaler had yet to unscale."""
    gathered: str = ""
    """The line of a call that took values with a gradient, and gave none back."""
    splits: list[Split] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """By each path that it wrote to: the line that did so first."""
    prints: dict[str, int] = field(default_factory=dict)
    """By each line that prints: a digest of all that it printed."""
    loads: list[Load] = field(default_factory=list)
    restored: int = 0
    """Loads of a model, an optimizer or a checkpoint that left nothing out."""
    moments: Moments | None = None
    waited: float = 0.0
    """Seconds in loaders since the first step."""
    training: float = 0.0
    """Seconds from the first step to the last."""
    spawned: bool = False
    """Whether the script itself has started this rank."""
    failed: bool = False
    """Whether the script ended with an exception."""
    left: bool = False
    """Whether it was left after the steps that were asked for."""


# --- JSON ---


def as_json(facts: Any) -> str:
    """Return a dataclass, and those within it, as JSON objects."""
    return json.dumps(facts, default=vars, separators=(",", ":"))


def from_json(kind: type[Kind], value: dict[str, Any]) -> Kind:
    """Return the dataclass of this kind from which `as_json` has made an object.

    Raises:
        KeyError: for a field that the kind does not have.
        TypeError: if one is missing.
    """
    kinds = {each.name: each.type for each in fields(cast(Any, kind))}
    return kind(**{name: _restored(kinds[name], v) for name, v in value.items()})


def _restored(kind: Any, value: Any) -> Any:
    """Return a value as its kind has it: JSON knows lists and strings alone."""
    origin, within = get_origin(kind), get_args(kind)
    if origin is UnionType:  # `Moments | None`
        return None if value is None else _restored(within[0], value)
    if origin in (list, tuple):
        return origin(_restored(within[0], each) for each in value)
    if origin is dict:
        key, of = within
        return {key(name): _restored(of, each) for name, each in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return from_json(kind, value)
    return value
