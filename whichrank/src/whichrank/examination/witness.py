"""Run a script as it is, and leave word of how it trains on this rank.

    torchrun ... witness.py FOLDER STEPS SCRIPT ARGUMENTS...

The script is not changed, nor is what it computes. What the witness sees it writes to
FOLDER/RANK.json (see facts.py) after each optimizer step, so that a rank that is ended
has left it, and later, when that file is long, after every hundredth.

After STEPS steps of an optimizer the script is left as by sys.exit, if all ranks come
as far: what would have followed, a checkpoint say, does not.
"""

import builtins
import functools
import gc
import json
import os
import re
import sys
import time
import weakref
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
import torch.utils.data
from torch.distributed import distributed_c10d as c10d
from torch.distributed import rpc
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, dataloader

if __name__ == "__main__":  # then this package may not be installed
    sys.path[0] = str(Path(__file__).absolute().parents[2])  # until `main` sets it
from whichrank.examination.facts import (
    Batch,
    Column,
    Digest,
    Forwards,
    Load,
    Loader,
    Optimizer,
    Pass,
    Split,
    Step,
    Witnessed,
    Wrapped,
    as_json,
)

LIBRARY = (
    os.path.dirname(os.path.dirname(__file__)),  # a thread of it answers the launcher
    os.path.dirname(os.__file__),
    "site-packages",
    "dist-packages",
    "<frozen",
)
LARGE = 2**20  # elements of a tensor, above which every k-th one is looked at
SAMPLE = 2**10  # the same for a sample of a batch
METRIC = 8  # elements of a metric; a larger tensor may be an activation
MESSAGES = ("send", "recv", "isend", "irecv", "all_to_all", "all_to_all_single")
OFTEN = 100  # steps after each of which the facts are written; later every hundredth
PATIENCE = 10.0  # seconds that a rank waits after its steps for the others'
COLLECTIVES = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter "
    "reduce_scatter_tensor gather scatter all_to_all all_to_all_single barrier send "
    "recv isend irecv all_gather_object gather_object broadcast_object_list"
).split()
INITIAL = "torch.distributed.checkpoint.state_dict"  # steps to fill a state
OWN_FILES = re.compile(
    r"/(__pycache__|torchinductor\w*|\.triton|\.cache)/|^/(dev|proc)/|\.lock$"
)


def digest(tensor: Any) -> Digest:
    """Return a number that differs, but by rare chance, where the elements do.

    None for a tensor of which each rank has a shard, and for one without strides.
    """
    if not strided(tensor):
        return None
    if placements := getattr(tensor, "placements", None):
        if not all(each.is_replicate() for each in placements):
            return None
        tensor = tensor.to_local()
    (whole,) = rows(tensor.reshape(1, -1), LARGE)
    return zlib.crc32(whole)


def strided(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has strides: it is not sparse, nor nested."""
    return tensor.layout is torch.strided and not tensor.is_nested


def rows(tensor: torch.Tensor, most: int) -> Any:
    """Return the bytes of each row, of up to twice `most` of its elements."""
    flat = tensor.detach().unsqueeze(-1).flatten(1)
    flat = flat[:, :: max(1, flat.shape[1] // most)].contiguous().cpu()
    return flat.resolve_conj().view(torch.uint8).numpy()


def tensors(data: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and mappings."""
    if isinstance(data, torch.Tensor):
        yield data
    elif isinstance(data, Mapping | list | tuple):
        for each in data.values() if isinstance(data, Mapping) else data:
            yield from tensors(each)


def samples(data: Any, count: int) -> list[list[int]]:
    """Return what each sample of a batch holds: a digest of its part of each tensor."""
    parts = [t for t in tensors(data) if strided(t) and t.dim() and len(t) == count]
    each = [rows(part, SAMPLE) for part in parts]
    return [[zlib.crc32(part[n]) for part in each] for n in range(count)]


def first_tensor(data: Any) -> Any:
    """Return the first tensor in nested lists, tuples and mappings, or None."""
    return next(tensors(data), None)


def place() -> str:
    """Return the innermost line of the script, or of what it brings: `train.py:12`."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        file = frame.f_code.co_filename
        if not any(part in file for part in LIBRARY):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def wrap(owner: Any, name: str, around: Any) -> None:
    """Let `around(original, *args, **kwargs)` stand in the place of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, call)


class Witness:
    """What one rank has facts."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.rank = int(os.environ.get("RANK", 0))
        self.pid = os.getpid()
        self.first_step = 0.0
        self.facts = Witnessed()
        self.optimizers: list[Any] = []  # in the order of their facts
        self.bases: list[Any] = []  # data sets, each known by its place here
        self.models: list[Any] = []
        self.loaders: Any = weakref.WeakKeyDictionary()
        self.begun: defaultdict[int, list[Step]] = defaultdict(list)  # by optimizer
        self.inside: Wrapped | None = None  # the DDP whose forward runs
        self.weights_at: set[int] = set()  # addresses
        self.gradients_at: dict[int, tuple[Optimizer, int]] = {}  # of whose weight
        self.found_at = (-1, -1)
        self.drawing: list | None = None  # indices, while an iterator is being made
        self.last_pass: Pass | None = None  # from which the last batch came

    # --- what it leaves ---

    def write(self) -> None:
        """Leave word."""
        if os.getpid() != self.pid:
            return  # a fork that the script has made
        part = self.folder / f"{self.rank}.part"
        part.write_text(as_json(self.facts))
        part.replace(self.folder / f"{self.rank}.json")

    def leave(self) -> None:
        """Leave the script when the other ranks have come as far; go on if they do not.

        One rank alone may be the one that steps, and the others wait for its weights.
        """
        self.write()
        here = self.folder / f"{self.rank}.done"
        here.touch()
        world, until = int(os.environ.get("WORLD_SIZE", 1)), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if len([*self.folder.glob("*.done")]) == world:
                sys.exit(0)
            time.sleep(0.05)
        here.unlink()
        self.steps *= 5

    # --- training ---

    def watch_training(self) -> None:
        """See models that are wrapped, gradients that are computed, steps."""
        wrap(DDP, "__init__", self.made)
        wrap(DDP, "forward", self.forward)
        wrap(torch.autograd, "backward", self.backward)
        wrap(torch.nn.functional, "dropout", self.dropped)
        wrap(torch.optim.Optimizer, "__init__", self.optimizer_made)
        uncompiled = torch.compiler.disable  # where the step is compiled
        optimizers.register_optimizer_step_pre_hook(uncompiled(self.before_step))
        optimizers.register_optimizer_step_post_hook(uncompiled(self.after_step))

    def made(
        self, original: Any, ddp: Any, module: Any, *args: Any, **kwargs: Any
    ) -> None:
        """A model is wrapped in DDP."""
        original(ddp, module, *args, **kwargs)
        named = dict(module.named_parameters())
        self.models.append(ddp)
        self.facts.models.append(
            Wrapped(
                line=place(),
                ranks=dist.get_process_group_ranks(ddp.process_group),
                weights=[*named],
                trainable=[name for name, p in named.items() if p.requires_grad],
                buffers=[name for name, _ in module.named_buffers()],
                ignored=[*ddp.parameters_to_ignore],
            )
        )

    def optimizer_made(self, original: Any, made: Any, *args: Any, **kw: Any) -> None:
        """An optimizer is made; it may take its first step much later."""
        original(made, *args, **kw)
        self._optimizer(made)

    def forward(self, original: Any, ddp: Any, *args: Any, **kwargs: Any) -> Any:
        """DDP's forward is called."""
        if torch.compiler.is_compiling() or ddp not in self.models:
            return original(ddp, *args, **kwargs)
        wrapped = self.facts.models[self.models.index(ddp)]
        if torch.is_grad_enabled() and ddp.training:
            before, syncs = wrapped.forwards, bool(ddp.require_backward_grad_sync)
            wrapped.forwards = Forwards(before.ran + 1, before.synced + syncs, syncs)
            wrapped.hooked = bool(getattr(ddp, "_comm_hooks", None))
            wrapped.joins = wrapped.joins or bool(ddp._join_config.enable)
            given = tuple(digest(each) for each in tensors([args, kwargs]))
            wrapped.inputs.append(given if any(given) else ())
            noise = self._noise(first_tensor([args, kwargs]))
            wrapped.noise.append(digest(noise))
        self.inside = wrapped
        try:
            return original(ddp, *args, **kwargs)
        finally:
            self.inside = None

    def dropped(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Something is dropped, by a layer or by the script itself."""
        named = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
        if self.inside and named.get("p", 0.5) > 0 and named.get("training", True):
            self.inside.drops = True
        return original(*args, **kwargs)

    @staticmethod
    def _noise(given: Any) -> Any:
        """Return the state of the generator that the next dropout draws from."""
        if given is not None and given.device.type != "cpu":
            module = torch.get_device_module(given.device)
            return module.get_rng_state(given.device)
        return torch.get_rng_state()

    def backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients are computed."""
        self.facts.backwards += 1
        if self.last_pass:
            self.facts.trained += 1
            self.last_pass.trained += 1
            self.last_pass = None
        return original(*args, **kwargs)

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer is about to take a step."""
        if _within(INITIAL):
            return
        facts, weights = self._optimizer(optimizer), _weights(optimizer)
        if len(weights) != len(facts.weights):  # add_param_group
            facts.weights, facts.within = self._names(weights), []
        if not facts.steps:
            facts.line = place()
        for name, weight in zip(facts.weights, weights, strict=True):
            if weight.grad is not None and name in facts.idle:
                facts.idle.remove(name)
        for ddp in self.models[len(facts.within) :]:
            own = {id(p) for p in ddp.parameters()}
            facts.within.append([id(p) in own for p in weights])
        step = Step(
            rates=[float(group.get("lr") or 0) for group in optimizer.param_groups],
            trained=self.facts.trained,
            forwards=[each.forwards for each in self.facts.models],
            gradients=[None if w.grad is None else digest(w.grad) for w in weights],
            weights=[],
        )
        self.begun[id(facts)].append(step)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has taken a step."""
        if _within(INITIAL):
            return
        facts, weights = self._optimizer(optimizer), _weights(optimizer)
        self.first_step = self.first_step or time.monotonic()
        self.facts.training = time.monotonic() - self.first_step
        begun = self.begun[id(facts)].pop()
        facts.steps.append(replace(begun, weights=[digest(each) for each in weights]))
        facts.frozen = [not weight.requires_grad for weight in weights]
        stepped = {id(p) for each in self.optimizers for p in _weights(each)}
        for wrapped, ddp in zip(self.facts.models, self.models, strict=True):
            wrapped.orphans = [
                name
                for name, p in ddp.module.named_parameters()
                if p.grad is not None and id(p) not in stepped
            ]
        tied = not self.models or any(map(any, facts.within))
        enough = self.steps * (1 if tied else 5)  # one rank alone may have another one
        steps = len(facts.steps)
        if self.steps and steps >= enough:
            self.leave()
        if steps < OFTEN or steps % OFTEN == 0:
            self.write()

    def _optimizer(self, optimizer: Any) -> Optimizer:
        """Return the facts of an optimizer, which may be a new one."""
        if optimizer not in self.optimizers:
            kind, names = type(optimizer).__name__, self._names(_weights(optimizer))
            self.facts.optimizers.append(Optimizer(kind, names, idle=[*names]))
            self.optimizers.append(optimizer)
        return self.facts.optimizers[self.optimizers.index(optimizer)]

    def _names(self, weights: list) -> list[str]:
        """Return the names that a model gives to an optimizer's weights."""
        ids, best = {id(p) for p in weights}, dict[int, str]()
        modules = (m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module))
        for module in [*self.models, *modules]:
            named = {id(p): name for name, p in module.named_parameters()}
            if len(ids & {*named}) > len(ids & {*best}):
                best = named
        prefix = re.compile(r"^(module\.|_orig_mod\.)+")
        default = (f"weight {number}" for number in range(len(weights)))
        return [prefix.sub("", best.get(id(p), next(default))) for p in weights]

    # --- data ---

    def watch_data(self) -> None:
        """See what loaders deliver."""
        iterator: Any = dataloader._BaseDataLoaderIter
        iterator._witness = None  # of a loader that iterates in a way of its own
        wrap(DataLoader, "__iter__", self.iterated)
        wrap(iterator, "_next_index", self.drawn)
        wrap(iterator, "__next__", self.delivered)
        wrap(torch.utils.data, "random_split", self.split)

    def iterated(self, original: Any, loader: Any) -> Any:
        """A pass over a loader begins."""
        if loader not in self.loaders:
            self.loaders[loader] = self._loader(loader)
        facts, read = self.loaders[loader]
        current = Pass(models=len(self.models))
        facts.passes.append(current)
        indices: list = []
        self.drawing = indices  # an iterator with workers draws as it is made
        iterator = original(loader)
        self.drawing = None
        iterator._witness = current, indices, read
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
            plain = type(batches).__name__ == "BatchSampler"
            sampler = batches.sampler if plain else batches
        random = hasattr(sampler, "set_epoch") or "Random" in type(sampler).__name__
        facts = Loader(
            line=place(),
            base=base,
            size=_length(loader.dataset),
            draws=_length(loader.sampler if sampler is batches else sampler),
            shuffles=bool(getattr(sampler, "shuffle", random)),
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
        begun, (current, indices, read) = time.monotonic(), iterator._witness
        try:
            data = original(iterator)
        except StopIteration:
            current.whole = True
            raise
        if self.first_step:
            self.facts.waited += time.monotonic() - begun
        drawn: list[int] = []
        with suppress(TypeError, ValueError, IndexError):  # indices of any kind
            index = indices[len(current.batches)]
            batch = index if isinstance(index, list) else [index]
            drawn = [int(read(i)) for i in batch if i is not None]
        tensor = first_tensor(data)
        seen = None if tensor is None else digest(tensor)
        current.batches.append(Batch(drawn, seen, samples(data, len(drawn))))
        self.last_pass = current
        return data

    # --- calls, files, loads ---

    def watch_calls(self) -> None:
        """See which collectives the script calls by itself."""
        wrap(dist, "init_process_group", self.joined)
        if rpc.is_available():
            wrap(rpc, "init_rpc", self.may_be_called)
        wrap(torch.multiprocessing, "spawn", self.spawned)
        for name in COLLECTIVES:
            wrap(dist, name, self._caller(name))
            setattr(c10d, name, getattr(dist, name))  # P2POp compares with these

    def joined(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script joins a process group."""
        result = original(*args, **kwargs)
        self.facts.backend = dist.get_backend()
        self.rank = dist.get_rank()
        return result

    def may_be_called(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script joins the workers of RPC, which carries what it likes."""
        self.facts.sends += 1
        return original(*args, **kwargs)

    def spawned(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script starts processes of its own, in which there is no witness."""
        self.facts.spawns = place()
        return original(*args, **kwargs)

    def _caller(self, name: str) -> Any:
        def called(original: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                self.facts.calls += 1
                tensor = first_tensor([args, kwargs])
                if tensor is not None:
                    self._carried(name, place(), tensor)
                if torch.is_grad_enabled() and name not in MESSAGES:
                    taken = (t for t in tensors([args, kwargs]) if t.grad_fn)
                    if any(t.numel() > METRIC for t in taken):
                        self.facts.gathered = place()
                if self.inside and not _within("torch.nn.modules._functions"):
                    self.inside.sends = True  # SyncBatchNorm does not
            return original(*args, **kwargs)

        return called

    def _carried(self, name: str, line: str, tensor: Any) -> None:
        """A call carries a tensor: a column, a gradient, a weight, or another one."""
        if name in ("broadcast", "reduce") and not tensor.is_contiguous():
            self.facts.columns.append(Column(name, line))
        self._find_weights()
        at = tensor.data_ptr()
        large = tensor.numel() > METRIC and self.facts.backwards
        if at in self.gradients_at and name == "all_reduce":
            optimizer, weight = self.gradients_at[at]
            optimizer.averaged[weight] = line
        elif at in self.weights_at or large or name in MESSAGES:
            self.facts.sends += 1

    def _find_weights(self) -> None:
        """Learn at which addresses weights and their gradients lie."""
        now = self.facts.backwards, len(self.optimizers)
        if self.found_at == now:
            return
        self.found_at, self.weights_at, self.gradients_at = now, set(), {}
        for optimizer in self.optimizers:
            facts = self._optimizer(optimizer)
            for number, weight in enumerate(_weights(optimizer)):
                self.weights_at.add(weight.data_ptr())
                if weight.grad is not None:
                    self.gradients_at[weight.grad.data_ptr()] = facts, number

    def watch_files(self) -> None:
        """See which files are written, and what is printed."""
        sys.addaudithook(self.audit)
        wrap(torch, "save", self.saved)
        wrap(builtins, "print", self.printed)

    def printed(self, original: Any, *args: Any, **kwargs: Any) -> None:
        """Something is printed."""
        if line := place():
            before = self.facts.prints.get(line, 0)
            self.facts.prints[line] = zlib.crc32(str(args).encode(), before)
        original(*args, **kwargs)

    def audit(self, event: str, args: tuple) -> None:
        """Python opens or renames a file, among other things."""
        if event == "open":
            path, mode, flags = args
            wants = isinstance(mode, str) and set(mode) & set("wax+")
            writes = wants or (mode is None and flags & (os.O_WRONLY | os.O_RDWR))
            if writes:
                self._wrote(path)
        elif event == "os.rename":
            self._wrote(args[1])

    def saved(self, original: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.save, which opens its file in C++."""
        self._wrote(f)
        return original(obj, f, *args, **kwargs)

    def _wrote(self, path: Any) -> None:
        """Keep a path, and which line of the script has written to it."""
        if os.getpid() != self.pid or not isinstance(path, str | os.PathLike):
            return
        name = os.path.abspath(os.fspath(path))
        ours = name.startswith(str(self.folder)) or OWN_FILES.search(name)
        if not ours and (line := place()) and not _within("tempfile"):
            self.facts.files.setdefault(name, line)

    def watch_loads(self) -> None:
        """See which state is loaded, and how much of it."""
        wrap(torch.nn.Module, "load_state_dict", self.loaded)
        wrap(dcp, "load", self.read)

    def loaded(
        self, original: Any, module: Any, state_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A module loads its state."""
        result = original(module, state_dict, *args, **kwargs)
        own = [*module.state_dict()]
        if own and len(getattr(result, "missing_keys", ())) == len(own):
            theirs = next(iter(state_dict), own[0])
            self.facts.loads.append(Load(place(), theirs=theirs, own=own[0]))
        return result

    def read(self, original: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.distributed.checkpoint fills a state that is given to it."""
        asked = {*flatten_state_dict(state_dict)[0]}
        result = original(state_dict, *args, **kwargs)
        folder = kwargs.get("checkpoint_id") or (args[0] if args else None)
        if isinstance(folder, str | os.PathLike) and os.path.isdir(folder):
            there = {*FileSystemReader(folder).read_metadata().state_dict_metadata}
            tops = {key for key, part in state_dict.items() if isinstance(part, dict)}
            left = sorted(k for k in there - asked if k.split(".")[0] in tops)
            left = [k for k in left if re.search(r"\.state\.|exp_avg|momentum", k)]
            if left:
                self.facts.loads.append(Load(place(), left))
        return result


def _within(module: str) -> bool:
    """Return whether a function of that module runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_globals.get("__name__") != module:
        frame = frame.f_back
    return frame is not None


def _weights(optimizer: Any) -> list:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except TypeError:
        return None


def main() -> None:
    """Watch a script run."""
    folder, steps, script, *arguments = sys.argv[1:]
    witness = Witness(Path(folder), int(steps))
    witness.watch_training()
    witness.watch_data()
    witness.watch_calls()
    witness.watch_loads()
    witness.watch_files()
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(script))
    program = ModuleType("__main__")
    program.__file__ = os.path.abspath(script)
    program.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = program
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), program.__dict__)
    except Exception:
        witness.facts.failed = True
        raise
    finally:
        witness.write()


if __name__ == "__main__":
    main()
