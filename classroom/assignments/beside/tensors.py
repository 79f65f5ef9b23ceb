"""The tensors of a process, wherever its program keeps them."""

import ctypes
import gc
from contextlib import suppress

import torch


def storages() -> list[torch.UntypedStorage]:
    """Return what all tensors lie in, each once: a view needs all of its storage."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            with suppress(RuntimeError, NotImplementedError):  # a wrapper has none
                storage = thing.untyped_storage()
                found[storage.data_ptr()] = storage
    return [*found.values()]


def contents(size: int) -> list[bytes]:
    """Return what is in each storage, in whole numbers of `size` bytes."""
    every = [s if s.device.type == "cpu" else s.cpu() for s in storages()]
    return [ctypes.string_at(s.data_ptr(), s.nbytes() // size * size) for s in every]


def tensor_bytes() -> int:
    """Return the bytes of all tensors of this process."""
    return sum(storage.nbytes() for storage in storages())
