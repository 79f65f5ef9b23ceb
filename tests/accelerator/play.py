"""Run a program on accelerators that this machine plays.

    PLAYED_ACCELERATORS=2 torchrun --nproc-per-node 2 tests/accelerator/play.py PROGRAM

With this folder on PYTHONPATH torch loads the devices by itself, as it loads every
out-of-tree accelerator (the entry point is in played-1.dist-info): so notebooks and
`make gpus` run on them, too.

The device `played` has main memory for its memory, and refuses to be mixed with the CPU
in CUDA's words; the backend `wire` is to it what NCCL is to CUDA, and takes its tensors
alone. So what fails here fails on a GPU: a tensor left on the CPU, `.numpy()`, a device
tensor given to gloo. What does not show: speed, streams that run behind, NCCL's errors.

`played.cpp` is compiled once, in about a minute; later runs load it.
"""

import contextlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.cpp_extension import load

NAME, BACKEND = "played", "wire"
SOURCE = Path(__file__).with_name("played.cpp")
BUILT = SOURCE.parents[2] / "build" / "played"


def compiled() -> Any:
    """Return the extension; g++ and ninja make it if they have not yet."""
    BUILT.mkdir(parents=True, exist_ok=True)
    flags, where = ["-O0"], str(BUILT)
    return load(NAME, [str(SOURCE)], flags, build_directory=where, with_cuda=False)


def register() -> None:
    """Make the devices known to PyTorch, as an out-of-tree accelerator does."""
    played = compiled()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _device_module(played))
    torch.utils.generate_methods_for_privateuse1_backend()

    def wire(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return played.wire(dist.ProcessGroupGloo(store, rank, size, timeout))

    dist.Backend.register_backend(BACKEND, wire, devices=[NAME])
    _keep_tied()


def autoload() -> None:
    """Register where PLAYED_ACCELERATORS asks for it; torch calls this when imported."""
    if os.environ.get("PLAYED_ACCELERATORS"):
        register()


def _device_module(played: Any) -> Any:
    """Return what `torch.cuda` is to CUDA, as far as the lessons use it."""

    def here() -> torch.device:
        return torch.device(NAME, played.current_device())

    def set_device(device: Any) -> None:
        played.set_device(device if isinstance(device, int) else device.index or 0)

    def stream(*_: Any, **__: Any) -> torch.Stream:
        return torch.accelerator.current_stream(here())

    def nothing(*_: Any, **__: Any) -> None: ...

    class Module:
        device_count = staticmethod(played.device_count)
        current_device = staticmethod(played.current_device)
        get_device_name = staticmethod(lambda *_: "played accelerator")
        is_available = staticmethod(lambda: played.device_count() > 0)
        is_initialized = staticmethod(lambda: True)
        _is_in_bad_fork = staticmethod(lambda: False)
        get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])
        is_bf16_supported = staticmethod(lambda *_: True)
        get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
        memory_allocated = max_memory_allocated = staticmethod(lambda *_: 0)
        device = stream = staticmethod(lambda *_: contextlib.nullcontext())

        Stream = staticmethod(lambda *_, **__: torch.Stream(device=here()))
        Event = staticmethod(lambda *_, **__: torch.Event(device=here()))

    module: Any = Module
    module.set_device = staticmethod(set_device)
    module.set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    module.current_stream = module.default_stream = staticmethod(stream)
    for name in ("manual_seed_all", "synchronize", "empty_cache"):
        setattr(module, name, staticmethod(nothing))
    module.reset_peak_memory_stats = staticmethod(nothing)
    return module


def _keep_tied() -> None:
    """Let `.to()` keep tied weights tied, as it does on CUDA but not for this key."""
    module: Any = torch.nn.Module
    apply, future = module._apply, torch.__future__

    def keep(self: Any, function: Any, recurse: bool = True) -> Any:
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, function, recurse)
        finally:
            future.set_swap_module_params_on_conversion(before)

    module._apply = keep


if __name__ == "__main__":
    register()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
