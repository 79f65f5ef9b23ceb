"""Accelerators that this machine plays.

    PYTHONPATH=tests/accelerator PLAYED_ACCELERATORS=2 torchrun ... PROGRAM

torch loads them when it is imported, as it loads every accelerator of others (the entry
point is in played-1.dist-info): programs, notebooks and `make gpus` run on them as they
are.

The device `played` has main memory for its memory, and refuses to be mixed with the CPU
in CUDA's words; the backend `wire` is to it what NCCL is to CUDA, and takes its tensors
alone. So what fails here fails on a GPU: a tensor left on the CPU, `.numpy()`, a device
tensor given to gloo, a generator of the CPU, a collective whose `wait` was forgotten.
What does not show: speed, and NCCL's errors.

`played.cpp` is compiled once, in about a minute; later runs load it.
"""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

with contextlib.redirect_stderr(io.StringIO()):  # it says that there is no CUDA
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
    """Register if PLAYED_ACCELERATORS is set; torch calls this when it is imported."""
    if os.environ.get("PLAYED_ACCELERATORS"):
        # Nothing generates code for them: what is compiled runs as it is written.
        os.environ.setdefault("TORCHDYNAMO_SUPPRESS_ERRORS", "1")
        if known := sys.modules.get("torch._dynamo.config"):  # it has read that already
            known.suppress_errors = True
        register()


def _device_module(played: Any) -> Any:
    """Return what `torch.cuda` is to CUDA, as far as the lessons use it."""

    def index(device: Any = None) -> int:
        if isinstance(device, int):
            return device
        number = torch.device(device).index if device is not None else None
        return played.current_device() if number is None else number

    def here() -> torch.device:
        return torch.device(NAME, played.current_device())

    def seed_all(seed: int) -> None:
        for number in range(played.device_count()):
            played.generator(number).manual_seed(seed)

    def set_state(state: torch.Tensor, device: Any = None) -> None:
        played.generator(index(device)).set_state(state)

    functions = {
        "device_count": played.device_count,
        "current_device": played.current_device,
        "get_device_name": lambda *_: "played accelerator",
        "is_available": lambda: played.device_count() > 0,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "is_bf16_supported": lambda *_: True,
        "set_device": lambda device: played.set_device(index(device)),
        "synchronize": lambda *_: played.synchronize(),
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: played.held(index(device)),
        "max_memory_allocated": lambda device=None: played.most(index(device)),
        "reset_peak_memory_stats": lambda device=None: played.forget_most(
            index(device)
        ),
        "manual_seed": lambda seed: played.generator(index()).manual_seed(seed),
        "manual_seed_all": seed_all,
        "get_rng_state": lambda device=None: played.generator(
            index(device)
        ).get_state(),
        "set_rng_state": set_state,
        "current_stream": lambda *_: torch.accelerator.current_stream(here()),
        "default_stream": lambda *_: torch.accelerator.current_stream(here()),
        "device": lambda *_: contextlib.nullcontext(),
        "stream": lambda *_: contextlib.nullcontext(),
        "Stream": lambda *_, **__: torch.Stream(device=here()),
        "Event": lambda *_, **__: torch.Event(device=here()),
    }
    module = {name: staticmethod(function) for name, function in functions.items()}
    return type("Module", (), module)


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
