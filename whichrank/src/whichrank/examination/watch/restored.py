"""State that is loaded, and gradients that a GradScaler holds."""

import os
import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.amp.grad_scaler import OptState
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.nn.utils import clip_grad

from whichrank.examination.facts import Load, Moments
from whichrank.examination.watch.frames import place, wrap
from whichrank.examination.watch.training import Training, weights

DEPTH = 2  # of the mappings in a file among which an optimizer's state may lie
CLIPS = ("clip_grad_norm_", "clip_grad_value_")


class Restored:
    """Fills `loads`, `restored`, `moments` and `clipped`."""

    def __init__(self, training: Training) -> None:
        self.facts, self.training = training.facts, training
        self.opens = 0  # files; a load from none is a copy
        self.clips: list[tuple[str, set[int]]] = []  # since the last step: whose

    def watch(self) -> None:
        """See which state is loaded, how much of it, and what is clipped."""
        wrap(torch.nn.Module, "load_state_dict", self.loaded)
        wrap(torch.optim.Optimizer, "load_state_dict", self.resumed)
        wrap(torch, "load", self.opened)
        wrap(dcp, "load", self.read)
        for name in CLIPS:
            wrap(clip_grad, name, self.clipped)
            setattr(torch.nn.utils, name, getattr(clip_grad, name))
        wrap(torch.amp.GradScaler, "step", self.stepped)

    def loaded(
        self, original: Any, module: Any, state_dict: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A module loads its state."""
        result = original(module, state_dict, *args, **kwargs)
        own = [*module.state_dict()]
        if own and len(getattr(result, "missing_keys", ())) == len(own):
            theirs = next(iter(state_dict), own[0])
            self.facts.loads.append(Load(place(), theirs=theirs, own=own[0]))
        else:
            self.facts.restored += self.opens > 0
        return result

    def resumed(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """An optimizer loads its state."""
        self.facts.moments = None
        self.facts.restored += self.opens > 0
        return original(optimizer, *args, **kwargs)

    def opened(self, original: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.load, of anything."""
        found = original(f, *args, **kwargs)
        self.opens += 1
        if _has_moments(found, DEPTH):
            path = f if isinstance(f, str | os.PathLike) else ""
            written = os.path.abspath(os.fspath(path)) in self.facts.files
            steps = sum(len(each.steps) for each in self.facts.optimizers)
            self.facts.moments = Moments(place(), written, steps)
        return found

    def read(self, original: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """torch.distributed.checkpoint fills a state that is given to it."""
        asked = {*flatten_state_dict(state_dict)[0]}
        result = original(state_dict, *args, **kwargs)
        folder = kwargs.get("checkpoint_id") or (args[0] if args else None)
        if isinstance(folder, str | os.PathLike) and Path(folder).is_dir():
            there = {*FileSystemReader(folder).read_metadata().state_dict_metadata}
            tops = {key for key, part in state_dict.items() if isinstance(part, dict)}
            left = sorted(k for k in there - asked if k.split(".")[0] in tops)
            left = [k for k in left if re.search(r"\.state\.|exp_avg|momentum", k)]
            if left:
                self.facts.loads.append(Load(place(), left))
            self.facts.restored += not left
        return result

    def clipped(self, original: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """Gradients are clipped."""
        alone = isinstance(parameters, torch.Tensor)
        every = [parameters] if alone else [*parameters]
        self.clips.append((place(), {id(each) for each in every}))
        return original(every, *args, **kwargs)

    def stepped(
        self, original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A GradScaler lets an optimizer step, and unscales first if nobody has."""
        scales = scaler.is_enabled() and scaler.get_scale() != 1
        states = scaler._per_optimizer_states if scales else {}
        if scales and states[id(optimizer)]["stage"] == OptState.READY:
            own = {id(each) for each in weights(optimizer)}
            lines = [line for line, ids in self.clips if ids & own]
            self.facts.clipped = self.facts.clipped or "".join(lines[:1])
        self.clips.clear()
        return original(scaler, optimizer, *args, **kwargs)


def _has_moments(found: Any, depth: int) -> bool:
    """Return whether there is an optimizer's state, which is not empty, in `found`."""
    if not isinstance(found, dict):
        return False
    if {"state", "param_groups"} <= found.keys():
        return bool(found["state"])
    return depth > 0 and any(_has_moments(v, depth - 1) for v in found.values())
