"""What loaders deliver, and which of it is trained on."""

import json
import time
import weakref
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, DataLoader, dataloader

from whichrank.examination.facts import Batch, Loader, Pass, Split
from whichrank.examination.watch.frames import place, wrap
from whichrank.examination.watch.tensors import digest, first_tensor, samples
from whichrank.examination.watch.training import Training

ITEMS = 2**14  # of a list, above which every k-th one is looked at
LONG = 2**10  # characters, bytes or items of each of those, at most
KNOWN = ("torch", "builtins")  # modules of samplers whose order is no accident


class Batches:
    """Fills `loaders`, `splits`, `trained` and `waited`."""

    def __init__(self, training: Training) -> None:
        self.facts, self.training = training.facts, training
        self.bases: list[Any] = []  # data sets, each known by its place here
        self.loaders: Any = weakref.WeakKeyDictionary()
        self.drawing: list | None = None  # indices, while an iterator is being made
        self.delivering: list[tuple[Pass, bool]] = []  # and whether gradients follow
        self.before: list[Pass] = []  # whose came the time before

    def watch(self) -> None:
        """See what loaders deliver."""
        iterator: Any = dataloader._BaseDataLoaderIter
        iterator._witness = None  # of a loader that iterates in a way of its own
        wrap(DataLoader, "__iter__", self.iterated)
        wrap(iterator, "_next_index", self.drawn)
        wrap(iterator, "__next__", self.delivered)
        wrap(torch.utils.data, "random_split", self.split)
        wrap(torch.autograd, "backward", self.trained_on)

    def iterated(self, original: Any, loader: Any) -> Any:
        """A pass over a loader begins."""
        if loader not in self.loaders:
            self.loaders[loader] = self._loader(loader)
        facts, read = self.loaders[loader]
        numbers = {
            name: value
            for name, value in getattr(loader.dataset, "__dict__", {}).items()
            if type(value) is int
        }
        current = Pass(models=len(self.facts.models), numbers=numbers)
        facts.passes.append(current)
        indices: list = []
        self.drawing = indices  # an iterator with workers draws as it is made
        iterator = original(loader)
        self.drawing = None
        iterator._witness = current, indices, read, self.facts.backwards
        return iterator

    def _loader(self, loader: Any) -> tuple[Loader, Any]:
        """Return a loader's facts, and what reads an index through its subsets."""
        data, chosen = loader.dataset, list[Any]()
        while hasattr(data, "indices") and hasattr(data, "dataset"):  # a Subset
            chosen, data = [*chosen, data.indices], data.dataset
        base = next((n for n, d in enumerate(self.bases) if d is data), len(self.bases))
        self.bases += [data] * (base == len(self.bases))
        sampler, batches = loader.sampler, loader.batch_sampler
        if batches is not None:
            sampler = batches.sampler if type(batches) is BatchSampler else batches
        random = hasattr(sampler, "set_epoch") or "Random" in type(sampler).__name__
        of = type(sampler).__module__.partition(".")[0]
        known = random or of in KNOWN or hasattr(sampler, "shuffle")
        facts = Loader(
            line=place(),
            base=base,
            holds=_held_by(data),
            size=_length(loader.dataset),
            draws=_length(loader.sampler if sampler is batches else sampler),
            shuffles=bool(getattr(sampler, "shuffle", random)) if known else None,
            workers=loader.num_workers,
        )
        self.facts.loaders.append(facts)

        def read(index: Any) -> Any:
            for indices in chosen:
                index = int(indices[index])
            return index

        return facts, read

    def split(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A data set is split at random."""
        parts, line = original(*args, **kwargs), place()
        if not hasattr(parts[0].dataset, "indices"):  # a part by rank, perhaps
            indices = json.dumps([[int(i) for i in part.indices] for part in parts])
            self.facts.splits.append(Split(line, zlib.crc32(indices.encode())))
        return parts

    def drawn(self, original: Any, iterator: Any) -> Any:
        """The indices of a batch are drawn, perhaps long before it is delivered."""
        index = original(iterator)
        if self.drawing is not None:
            self.drawing.append(index)
        elif iterator._witness:
            iterator._witness[1].append(index)
        return index

    def delivered(self, original: Any, iterator: Any) -> Any:
        """A batch is delivered."""
        if not iterator._witness:
            return original(iterator)
        begun, (current, indices, read, before) = time.monotonic(), iterator._witness
        try:
            data = original(iterator)
        except StopIteration:
            current.whole, current.idle = True, self.facts.backwards == before
            raise
        if self.training.first_step:
            self.facts.waited += time.monotonic() - begun
        drawn: list[int] = []
        with suppress(Exception):  # indices of any kind
            index = indices[len(current.batches)]
            batch = index if isinstance(index, list) else [index]
            drawn = [int(read(i)) for i in batch if i is not None]
        tensor = first_tensor(data)
        seen = None if tensor is None else digest(tensor)
        current.batches.append(Batch(drawn, seen, samples(data, len(drawn))))
        self.delivering.append((current, torch.is_grad_enabled()))
        return data

    def trained_on(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients are computed, of the last batch, and of those that come with it.

        A loader whose batches come each time goes along; one may validate in between.
        """
        if self.delivering:
            self.facts.trained += 1
            came = [each for each, grad in self.delivering if grad]
            came = came or [each for each, _ in self.delivering]
            along, last = {*map(id, self.before)}, came[-1]
            each_once = {id(p): p for p in came if id(p) in along}
            for each in (each_once | {id(last): last}).values():
                each.trained += 1
            self.before, self.delivering = came, []
        return original(*args, **kwargs)


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except Exception:  # of the script's own class, which may raise what it likes
        return None


def _held_by(data: Any) -> int | None:
    """Return a digest of the lists and tensors that a data set is, or has."""
    held = None
    for value in [data, *getattr(data, "__dict__", {}).values()]:
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, torch.Tensor):
                part = str(digest(each))
            elif isinstance(each, list) or hasattr(each, "__array__"):
                part = ""
                with suppress(Exception):  # a file that is closed, say
                    part = _some(each)
            else:
                continue
            held = zlib.crc32(part.encode(), held or 0)
    return held


def _some(of: Sequence) -> str:
    """Return what a list or an array has, as text."""
    some = of[:: max(1, len(of) // ITEMS)] if _length(of) else of
    some = some.tolist() if hasattr(some, "tolist") else some
    if isinstance(some, list):
        some = [e[:LONG] if isinstance(e, str | bytes | list) else e for e in some]
    text = str(some)
    return "" if " at 0x" in text else text  # of objects, their addresses
