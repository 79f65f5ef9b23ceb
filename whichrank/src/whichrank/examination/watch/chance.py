"""Random numbers that are drawn while the script trains: dropout, and noise."""

import zlib
from typing import Any

import torch
from torch.nn import functional
from torch.utils._device import _device_constructors

from whichrank.examination.facts import Drawn
from whichrank.examination.watch.frames import place, within, wrap
from whichrank.examination.watch.tensors import first_tensor, strided
from whichrank.examination.watch.training import Training

LAYERS = (
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"
).split()
NOISE = "bernoulli normal rand rand_like randn randn_like".split()
IN_PLACE = "bernoulli_ exponential_ normal_ uniform_".split()
TORCH = "torch.manual_seed"
NUMPY = "beta binomial normal rand randn random uniform".split()


class Chance:
    """Fills `drawn`: indices, as of randint, may be drawn alike on purpose."""

    def __init__(self, training: Training) -> None:
        self.facts, self.training = training.facts, training

    def watch(self) -> None:
        """See which lines draw, and from which states of a generator."""
        _device_constructors()  # it keeps torch's own, for a default device
        for name in LAYERS:
            wrap(functional, name, self.dropped)
        wrap(functional, "scaled_dot_product_attention", self.attended)
        for name in NOISE:
            wrap(torch, name, self.drew)
        for name in IN_PLACE:
            wrap(torch.Tensor, name, self.drew)
        try:
            import numpy
        except ImportError:
            return
        for name in NUMPY:
            wrap(numpy.random, name, self.drew_in_numpy)

    def dropped(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Something is dropped, by a layer or by the script itself."""
        named = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
        if not self.facts.backwards or not torch.is_grad_enabled():
            return original(*args, **kwargs)
        if named.get("p", 0.5) > 0 and named.get("training", True):
            self._note(_state(first_tensor([args, kwargs])), drops=True)
        return original(*args, **kwargs)

    def attended(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Attention may drop some of its weights."""
        drops = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0)
        if drops and self.facts.backwards and torch.is_grad_enabled():
            self._note(_state(args[0] if args else kwargs["query"]), drops=True)
        return original(*args, **kwargs)

    def drew(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Torch draws numbers; a single one may be a choice, which all ranks share.

        So are a new layer's first weights, though DDP would send them.
        """
        own = kwargs.get("generator") is not None
        if own or not self.facts.backwards or within("torch.nn.init"):
            return original(*args, **kwargs)
        given = first_tensor([args, kwargs])
        state = _state(given, kwargs.get("device"))
        result = original(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.numel() > 1:
            self._note(state, drops=False)
        return result

    def drew_in_numpy(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """NumPy draws numbers from its generator for all."""
        if self.facts.backwards:
            import numpy

            state = zlib.crc32(str(numpy.random.get_state(legacy=False)).encode())
            self._note(state, drops=False, seeds="numpy.random.seed")
        return original(*args, **kwargs)

    def _note(self, state: int | None, *, drops: bool, seeds: str = TORCH) -> None:
        """Keep a line that draws, from a generator in a state with this digest."""
        if state is not None and (line := place()):
            inside = self.training.inside is not None
            drawn = self.facts.drawn.setdefault(line, Drawn(inside, drops, seeds))
            drawn.times += 1
            drawn.digest = zlib.crc32(str(state).encode(), drawn.digest)


def _state(given: Any, device: Any = None) -> int | None:
    """Return a digest of the state of the generator of a tensor's device, if any."""
    default = torch.get_default_device() if given is None else given.device
    device = torch.device(device or default)
    if device.type == "cpu":
        state = torch.get_rng_state()
    elif module := getattr(torch, device.type, None):
        state = module.get_rng_state(device)
    else:  # `meta`
        return None
    return zlib.crc32(state.numpy()) if strided(state) else None
