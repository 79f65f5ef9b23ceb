"""Models that ranks train together, and the steps of optimizers."""

import gc
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parameter import is_lazy
from torch.optim import optimizer as optimizers

from whichrank.examination.facts import (
    Averaged,
    Copy,
    Fed,
    Forwards,
    Optimizer,
    Step,
    Tie,
    Witnessed,
    Wrapped,
)
from whichrank.examination.watch.frames import place, within, wrap
from whichrank.examination.watch.tensors import digest, local, strided, tensors

INITIAL = "torch.distributed.checkpoint.state_dict"  # steps to fill a state
FRAMEWORKS = ("transformers", "lightning", "pytorch_lightning", "accelerate")
PREFIX = re.compile(r"^(module\.|_orig_mod\.)+")


class Training:
    """Fills `models`, `ties`, `fed`, `optimizers` and what counts their work."""

    def __init__(self, facts: Witnessed) -> None:
        self.facts = facts
        self.models: list[DDP] = []
        self.optimizers: list[Any] = []  # in the order of their facts
        self.inside: Any = None  # the tied model whose forward runs
        self.first_step = 0.0
        self.stepped = -1  # backwards that there were until the last step
        self._fed: dict[int, Fed] = {}  # by the model's id
        self._begun: defaultdict[int, list[Step]] = defaultdict(list)  # by optimizer
        self._copies: list[tuple[Copy, Any]] = []
        self._sums: dict[int, tuple[Averaged, int, float]] = {}  # by a weight's id

    def watch(self) -> None:
        """See models that are tied, gradients that are computed, steps."""
        wrap(DDP, "__init__", self.wrapped)
        wrap(DDP, "forward", self.forward)
        wrap(fsdp, "fully_shard", self.sharded)
        with suppress(ImportError, AttributeError):  # torch has no public name for it
            from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

            wrap(FSDPState, "_pre_forward", self.shard_begins)
            wrap(FSDPState, "_post_forward", self.shard_ends)
        wrap(fsdp.FullyShardedDataParallel, "__init__", self.flattened)
        wrap(fsdp.FullyShardedDataParallel, "forward", self.flat_forward)
        wrap(torch.autograd, "backward", self.backward)
        wrap(torch.optim.Optimizer, "__init__", self.optimizer_made)
        uncompiled = torch.compiler.disable  # where the step is compiled
        optimizers.register_optimizer_step_pre_hook(uncompiled(self.before_step))
        optimizers.register_optimizer_step_post_hook(uncompiled(self.after_step))

    # --- models ---

    def wrapped(
        self, original: Any, ddp: Any, module: Any, *args: Any, **kwargs: Any
    ) -> None:
        """A model is wrapped in DDP."""
        original(ddp, module, *args, **kwargs)
        named = dict(_named(module))
        facts = Wrapped(
            line=place(),
            ranks=dist.get_process_group_ranks(ddp.process_group),
            weights=[*named],
            trainable=[name for name, p in named.items() if p.requires_grad],
            buffers=[name for name, _ in module.named_buffers()],
            ignored=[*ddp.parameters_to_ignore],
            broadcasts=ddp.broadcast_buffers,
        )
        for name, weight in _copies(module):
            facts.copies.append(Copy(name, digest(weight), None))
            self._copies.append((facts.copies[-1], weight))
        self.models.append(ddp)
        self.facts.models.append(facts)
        self._tie("DDP", facts.ranks)

    def sharded(self, original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        """A model, or a part of one, is given to fully_shard."""
        result, mesh = original(module, *args, **kwargs), kwargs.get("mesh")
        if not kwargs.get("dp_mesh_dims"):  # else only a part of the mesh
            every = range(dist.get_world_size())
            self._tie("fully_shard", [*every] if mesh is None else _of(mesh))
        return result

    def flattened(self, original: Any, made: Any, *args: Any, **kwargs: Any) -> None:
        """A model is wrapped in FullyShardedDataParallel."""
        original(made, *args, **kwargs)
        self._tie("FSDP", _ranks(made))

    def _tie(self, by: str, ranks: list[int]) -> None:
        if not any(each.ranks == ranks for each in self.facts.ties):
            self.facts.ties.append(Tie(by, ranks, place()))

    def forward(self, original: Any, ddp: Any, *args: Any, **kwargs: Any) -> Any:
        """DDP's forward is called."""
        if ddp not in self.models:
            return original(ddp, *args, **kwargs)
        facts = self.facts.models[self.models.index(ddp)]
        if torch.is_grad_enabled() and ddp.training:
            before, syncs = facts.forwards, bool(ddp.require_backward_grad_sync)
            facts.forwards = Forwards(before.ran + 1, before.synced + syncs, syncs)
            facts.hooked = bool(getattr(ddp, "_comm_hooks", None))
            facts.joins = facts.joins or bool(ddp._join_config.enable)
        return self._run(original, ddp, facts.ranks, args, kwargs)

    def flat_forward(self, original: Any, made: Any, *args: Any, **kwargs: Any) -> Any:
        """The forward of a FullyShardedDataParallel is called."""
        return self._run(original, made, _ranks(made), args, kwargs)

    def _run(
        self, original: Any, model: Any, ranks: list[int], args: Any, kwargs: Any
    ) -> Any:
        """Run the forward of a model that these ranks train."""
        self._enter(model, ranks, [args, kwargs])
        try:
            return original(model, *args, **kwargs)
        finally:
            self._leave(model)

    def shard_begins(
        self, original: Any, state: Any, module: Any, args: Any, kwargs: Any
    ) -> Any:
        """The forward begins of what fully_shard was given."""
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        if groups[0] is not None:
            self._enter(module, _of(groups[0].mesh_info.mesh), [args, kwargs])
        return original(state, module, args, kwargs)

    def shard_ends(self, original: Any, state: Any, module: Any, *args: Any) -> Any:
        """The forward ends of what fully_shard was given."""
        self._leave(module)
        return original(state, module, *args)

    def _enter(self, model: Any, ranks: list[int], given: Any) -> None:
        """A forward begins; what the outermost model is given in training is kept."""
        if self.inside not in (None, model):
            return
        self.inside = model
        if torch.is_grad_enabled() and model.training:
            if id(model) not in self._fed:
                self._fed[id(model)] = Fed(place(), ranks)
                self.facts.fed.append(self._fed[id(model)])
            digests = tuple(digest(each) for each in tensors(given))
            self._fed[id(model)].inputs.append(digests if any(digests) else ())

    def _leave(self, model: Any) -> None:
        if self.inside is model:
            self.inside = None

    def wrapped_inside(self) -> Wrapped | None:
        """Return the DDP whose forward runs, if one does."""
        if isinstance(self.inside, DDP) and self.inside in self.models:
            return self.facts.models[self.models.index(self.inside)]
        return None

    # --- steps ---

    def optimizer_made(self, original: Any, made: Any, *args: Any, **kw: Any) -> None:
        """An optimizer is made; it may take its first step much later."""
        original(made, *args, **kw)
        self.of(made)

    def backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients are computed."""
        self.facts.backwards += 1
        return original(*args, **kwargs)

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer is about to take a step."""
        if within(INITIAL):
            return
        facts, every = self.of(optimizer), weights(optimizer)
        if len(every) != len(facts.weights):  # add_param_group
            facts.weights, facts.within = self._names(every), []
        if not facts.steps:
            facts.line = place()
        if not self.first_step:
            self.first_step = time.monotonic()
            self.facts.framework = next((f for f in FRAMEWORKS if within(f)), "")
        for name, weight in zip(facts.weights, every, strict=True):
            if weight.grad is not None and name in facts.idle:
                facts.idle.remove(name)
        for ddp in self.models[len(facts.within) :]:
            own = {id(p) for p in ddp.parameters()}
            facts.within.append([id(p) in own for p in every])
        self._compare_sums(every)
        step = Step(
            rates=[float(group.get("lr") or 0) for group in optimizer.param_groups],
            trained=self.facts.trained,
            forwards=[each.forwards for each in self.facts.models],
            gradients=[None if w.grad is None else digest(w.grad) for w in every],
            weights=[],
        )
        self._begun[id(facts)].append(step)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has taken a step."""
        if within(INITIAL):
            return
        facts, every = self.of(optimizer), weights(optimizer)
        self.facts.training = time.monotonic() - self.first_step
        begun = self._begun[id(facts)].pop()
        self.stepped = self.facts.backwards
        facts.steps.append(replace(begun, weights=[digest(each) for each in every]))
        facts.frozen = [not weight.requires_grad for weight in every]
        stepped = {id(p) for each in self.optimizers for p in weights(each)}
        for wrapped, ddp in zip(self.facts.models, self.models, strict=True):
            wrapped.orphans = [
                name
                for name, p in _named(ddp.module)
                if p.grad is not None and id(p) not in stepped
            ]

    def summed(
        self, facts: Optimizer, number: int, weight: Any, ranks: list[int]
    ) -> None:
        """The script is about to all_reduce the gradient of a weight by itself."""
        averaged = next((a for a in facts.averaged if a.ranks == ranks), None)
        if averaged is None:
            averaged = Averaged(ranks)
            facts.averaged.append(averaged)
        averaged.lines[number] = place()
        brings = str(digest(weight.grad)).encode()
        averaged.own = zlib.crc32(brings, averaged.own)
        for model, own in zip(self.facts.models, facts.within, strict=False):
            if own[number] and model.forwards.last_synced:
                self._sums[id(weight)] = averaged, number, _size(weight.grad)

    def _compare_sums(self, every: list) -> None:
        """Note how much larger the gradients are that were summed once more."""
        for weight in every:
            if weight.grad is not None and id(weight) in self._sums:
                averaged, number, before = self._sums.pop(id(weight))
                if before:
                    averaged.grown[number] = round(_size(weight.grad) / before, 2)

    def look(self) -> None:
        """Fill what is seen when the facts are written."""
        for facts, ddp in zip(self.facts.models, self.models, strict=True):
            facts.held = [digest(buffer) for buffer in ddp.module.buffers()]
        for copy, weight in self._copies:
            copy.after = digest(weight)

    def of(self, optimizer: Any) -> Optimizer:
        """Return the facts of an optimizer, which may be a new one."""
        if optimizer not in self.optimizers:
            kind, names = type(optimizer).__name__, self._names(weights(optimizer))
            self.facts.optimizers.append(Optimizer(kind, names, idle=[*names]))
            self.optimizers.append(optimizer)
        return self.facts.optimizers[self.optimizers.index(optimizer)]

    def _names(self, every: list) -> list[str]:
        """Return the names that a model gives to an optimizer's weights."""
        ids, best = {id(p) for p in every}, dict[int, str]()
        for module in [*self.models, *_modules()]:
            named = {id(p): name for name, p in _named(module)}
            if len(ids & {*named}) > len(ids & {*best}):
                best = named
        default = (f"weight {number}" for number in range(len(every)))
        return [PREFIX.sub("", best.get(id(p), next(default))) for p in every]


def weights(optimizer: Any) -> list:
    """Return the weights of all groups of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _modules() -> Iterator[torch.nn.Module]:
    """Yield all modules that there are."""
    found = (m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module))
    made = (m for m in found if "_parameters" in vars(m))
    return (m for m in made if not any(is_lazy(p) for _, p in _named(m)))


def _named(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield a module's weights and their names, whatever its class makes of that."""
    return torch.nn.Module.named_parameters(module)


def _copies(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the first weight, and its name, of each copy of a model: an EMA, say."""
    own = [(name, p.shape) for name, p in _named(model)]
    mine = {id(p) for _, p in _named(model)}
    for module in _modules():
        named = [*_named(module)]
        alike = [(PREFIX.sub("", name), p.shape) for name, p in named] == own
        outermost = alike and own and named[0][0] == own[0][0]
        if outermost and not any(id(p) in mine for _, p in named):
            yield own[0][0], named[0][1]


def _ranks(flat: fsdp.FullyShardedDataParallel) -> list[int]:
    """Return the ranks that have a shard, or a copy of one, of a model."""
    group = None if getattr(flat, "_inter_node_pg", None) else flat.process_group
    return dist.get_process_group_ranks(group)


def _of(mesh: Any) -> list[int]:
    """Return the ranks of a device mesh."""
    return mesh.mesh.flatten().tolist()


def _size(gradient: Any) -> float:
    """Return the norm of a gradient, or of the part that this rank has."""
    own = local(gradient)
    return float(own.detach().float().norm()) if strided(own) else 0.0
