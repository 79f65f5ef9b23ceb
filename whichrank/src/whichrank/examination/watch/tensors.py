"""Tensors as numbers: a digest differs, but by rare chance, where the elements do."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack
from torch._guards import detect_fake_mode

from whichrank.examination.facts import Digest

LARGE = 2**20  # elements of a tensor, above which every k-th one is looked at
NOWHERE = -1
SAMPLE = 2**10  # the same for a sample of a batch


def digest(tensor: Any) -> Digest:
    """Return the digest of a tensor.

    None for a tensor of which each rank has a shard, and for one without strides.
    """
    if not strided(tensor):
        return None
    if placements := getattr(tensor, "placements", None):
        if not all(each.is_replicate() for each in placements):
            return None
        tensor = local(tensor)
    (whole,) = rows(tensor.reshape(1, -1), LARGE)
    return zlib.crc32(whole)


def strided(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements to look at, with strides.

    A sparse or nested one has none, nor has one of `meta`; and nothing has any in a
    transform, as of vmap, or while FakeTensorMode is on.
    """
    if peek_interpreter_stack() or detect_fake_mode(tensor):
        return False
    strides = tensor.layout is torch.strided and not tensor.is_nested
    return strides and not tensor.is_meta and address(tensor) != NOWHERE


def local(tensor: Any) -> Any:
    """Return the part of a tensor that this rank has, which may be all of it."""
    return getattr(tensor, "_local_tensor", tensor)


def address(tensor: Any) -> int:
    """Return where the elements lie of the part that this rank has, or NOWHERE."""
    try:
        return int(local(tensor).data_ptr())
    except (AttributeError, RuntimeError):  # None, or one without elements
        return NOWHERE


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


def first_tensor(data: Any) -> Any:
    """Return the first tensor in nested lists, tuples and mappings, or None."""
    return next(tensors(data), None)


def samples(data: Any, count: int) -> list[list[int]]:
    """Return what each sample of a batch holds: a digest of its part of each tensor.

    Or, if none has a part for each, of each list that has: as images of many sizes.

    Args:
        data: a batch.
        count: of its samples; 0 if that is not known, and tensors have to tell it.
    """
    parts = [each for each in tensors(data) if strided(each) and each.dim()]
    count = count or (len(parts[0]) if parts else 0)
    each = [rows(part, SAMPLE) for part in parts if len(part) == count]
    if each or not isinstance(data, list | tuple):
        return [[zlib.crc32(part[n]) for part in each] for n in range(count)]
    lists = [e for e in data if isinstance(e, list | tuple) and len(e) == count]
    return [[_of_all(one[n]) for one in lists] for n in range(count)]


def _of_all(data: Any) -> int:
    """Return one digest of all tensors in nested lists, tuples and mappings."""
    return zlib.crc32(str([digest(each) for each in tensors(data)]).encode())
