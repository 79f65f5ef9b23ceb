"""Calls of torch.distributed that the script makes by itself."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed import rpc

from whichrank.examination.facts import Column, Optimizer
from whichrank.examination.watch.frames import place, within, wrap
from whichrank.examination.watch.tensors import (
    address,
    first_tensor,
    local,
    strided,
    tensors,
)
from whichrank.examination.watch.training import Training, weights

ALIKE = 0.999  # cosine of two flat tensors that are one, up to a factor
METRIC = 8  # elements of a metric; a larger tensor may be an activation
MESSAGES = ("send", "recv", "isend", "irecv", "all_to_all", "all_to_all_single")
NAMES = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter "
    "reduce_scatter_tensor gather scatter all_to_all all_to_all_single barrier send "
    "recv isend irecv all_gather_object gather_object broadcast_object_list"
).split()


class Collectives:
    """Fills `backend`, `calls`, `sends`, `past`, `columns` and `gathered`."""

    def __init__(self, training: Training) -> None:
        self.facts, self.training = training.facts, training
        self.gradients_at: dict[int, tuple[Optimizer, int, Any]] = {}  # by address
        self.named = 0  # collectives that were called by one of NAMES

    def watch(self) -> None:
        """See which collectives the script calls by itself."""
        wrap(dist, "init_process_group", self.joined)
        wrap(dist, "destroy_process_group", self.parts)
        if rpc.is_available():
            wrap(rpc, "init_rpc", self.may_be_called)
        for name in NAMES:
            wrap(dist, name, self._caller(name))
            setattr(c10d, name, getattr(dist, name))  # P2POp compares with these

    def joined(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script joins a process group."""
        result = original(*args, **kwargs)
        self.facts.backend = dist.get_backend()
        return result

    def parts(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script leaves a group, which it may have joined in another way."""
        self.look()
        return original(*args, **kwargs)

    def look(self) -> None:
        """Fill what is seen while there are groups."""
        if dist.is_available() and dist.is_initialized():
            self.facts.backend = dist.get_backend()
            with suppress(RuntimeError):  # a backend may not count
                every = [*c10d._world.pg_map]
                count = sum(each._get_sequence_number_for_group() for each in every)
                self.facts.past = max(self.facts.past, count - self.named)

    def may_be_called(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """The script joins the workers of RPC, which carries what it likes."""
        self.facts.sends += 1
        return original(*args, **kwargs)

    def _caller(self, name: str) -> Any:
        def called(original: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_of_fsdp(sys._getframe(2)):
                self._called(name, args, kwargs)
            return original(*args, **kwargs)

        return called

    def _called(self, name: str, args: Any, kwargs: Any) -> None:
        """The script calls a collective."""
        self.named += 1
        if (tensor := first_tensor([args, kwargs])) is not None:
            self._carried(name, tensor, args, kwargs)
        if torch.is_grad_enabled() and name not in MESSAGES:
            taken = (t for t in tensors([args, kwargs]) if t.grad_fn)
            if any(t.numel() > METRIC for t in taken):
                self.facts.gathered = place()
        wrapped = self.training.wrapped_inside()
        if wrapped and not within("torch.nn.modules._functions"):
            wrapped.sends = True  # SyncBatchNorm does not

    def _carried(self, name: str, tensor: Any, args: Any, kwargs: Any) -> None:
        """A call carries a tensor: a column, a gradient, a weight, or another one."""
        if name in ("broadcast", "reduce"):
            self.facts.calls += 1
            if not tensor.is_contiguous():
                self.facts.columns.append(Column(name, place()))
        training = self.facts.backwards or self.training.first_step
        large = tensor.numel() > METRIC and training
        if name == "all_reduce" and (found := [*self._gradients(tensor)]):
            group = kwargs.get("group", args[2] if len(args) > 2 else None)
            ranks = dist.get_process_group_ranks(group)
            for facts, number, weight in found:
                self.training.summed(facts, number, weight, ranks)
        elif large or name in MESSAGES or address(tensor) in self._weights():
            self.facts.sends += 1

    def _weights(self) -> set[int]:
        """Return the addresses of all weights."""
        return {address(w) for each in self.training.optimizers for w in weights(each)}

    def _gradients(self, tensor: Any) -> Iterator[tuple[Optimizer, int, Any]]:
        """Yield the weights whose gradients a tensor is, or has one after another."""
        every = [*zip(self.facts.optimizers, self.training.optimizers, strict=True)]
        at = address(tensor)
        if not self._is_at(at):
            self.gradients_at = {
                address(weight.grad): (facts, number, weight)
                for facts, optimizer in every
                for number, weight in enumerate(weights(optimizer))
                if weight.grad is not None
            }
        if self._is_at(at):
            yield self.gradients_at[at]
            return
        if self.facts.backwards == self.training.stepped:
            return  # what a step has changed the weights by may be alike
        for facts, optimizer in every:
            numbered = enumerate(weights(optimizer))
            own = [(n, w) for n, w in numbered if w.grad is not None]
            if _flat(tensor, [local(weight.grad) for _, weight in own]):
                yield from ((facts, number, weight) for number, weight in own)

    def _is_at(self, at: int) -> bool:
        """Return whether the gradient of a weight lies there, and still does."""
        *_, weight = self.gradients_at.get(at, (None,))
        return at > 0 and weight is not None and address(weight.grad) == at


def _flat(tensor: Any, gradients: list) -> bool:
    """Return whether a tensor holds all of these, one after another.

    A large one may be scaled; a small one, as a metric is, may be alike by chance.
    """
    if tensor.numel() != sum(each.numel() for each in gradients):
        return False
    floats = gradients and tensor.is_floating_point()
    if not floats or not all(map(strided, [tensor, *gradients])):
        return False
    parts = [each.detach().flatten().to(tensor.device) for each in gradients]
    one, other = torch.cat(parts).float(), tensor.detach().flatten().float()
    if tensor.numel() <= METRIC:
        return torch.equal(one, other)
    return bool(torch.cosine_similarity(one, other, 0) > ALIKE)


def _is_of_fsdp(frame: Any) -> bool:
    """Return whether a call comes from FSDP, which is no call of the script's own."""
    return str(frame.f_globals.get("__name__")).startswith("torch.distributed.fsdp")
