"""Values as bytes: what goes into a rank, and what comes out of it.

The first line is JSON, a list of [name, dtype, shape] for an array and of
[name, null, value] for anything JSON-like; the arrays' bytes follow in that order.
Who reads believes nothing: all is bounded before anything is made of it, and an array
is a view of the bytes that are there.
"""

import json
import math

import numpy as np

LONGEST_JSON = 2_000_000  # bytes; JSON may take thirty times as much when it is read
MOST_VALUES = 1000  # values
LONGEST_NAME = 100  # characters
MOST_DIMENSIONS = 8
LARGEST = 10**10  # of a dimension
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
DTYPES += "float16 float32 float64".split()


def pack(values: dict) -> bytes:
    """Return `values`, by name arrays or anything JSON-like, as bytes."""
    arrays = {n: value for n, value in values.items() if isinstance(value, np.ndarray)}
    plain = {n: [None, value] for n, value in values.items()}
    plain |= {n: [array.dtype.name, array.shape] for n, array in arrays.items()}
    head = json.dumps([[n, *kind] for n, kind in plain.items()]).encode()
    return b"".join([head, b"\n", *(array.tobytes() for array in arrays.values())])


def unpack(data: bytes) -> dict:
    """Return the values that `pack` has packed; arrays cannot be written to.

    Raises:
        ValueError: if it is something else, or too much; it says why.
    """
    end = data.find(b"\n", 0, LONGEST_JSON)
    if end < 0:
        raise ValueError(f"no first line of {LONGEST_JSON:,} bytes at most")
    try:
        head = json.loads(data[:end])
        if not isinstance(head, list) or len(head) > MOST_VALUES:
            raise ValueError(f"no list of {MOST_VALUES} values at most")
        values, at = {}, end + 1
        for name, dtype, value in head:
            if not isinstance(name, str) or len(name) > LONGEST_NAME or name in values:
                raise ValueError("a name that is none")
            if dtype is not None:
                value = _array(data, dtype, value, at)
                at += value.nbytes
            values[name] = value
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if at != len(data):
        raise ValueError(f"{len(data) - at:,} bytes too many")
    return values


def _array(data: bytes, dtype: str, shape: list[int], at: int) -> np.ndarray:
    """Return the array that begins at byte `at` of `data`: a view, which costs nothing.

    Raises:
        ValueError, TypeError: if there is none.
    """
    if dtype not in DTYPES or len(shape) > MOST_DIMENSIONS:
        raise ValueError("an array of an unknown kind")
    if not all(type(n) is int and 0 <= n <= LARGEST for n in shape):
        raise ValueError("a shape that is none")
    count = math.prod(shape)
    if count * np.dtype(dtype).itemsize > len(data) - at:
        raise ValueError("more numbers than bytes")
    return np.ndarray(shape, dtype, data, at)
