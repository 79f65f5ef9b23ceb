"""Call the student's all_reduce once, between all ranks; give what each one then holds.

The ranks are connected by a wire that carries messages, and no collective.
"""

from hashlib import sha256

import numpy as np

ONE_OF = 100_000  # of a large vector one number of so many is handed over, and a digest


def drawn(seed: int, length: int, most: int) -> np.ndarray:
    """Draw a vector that is too large to be sent around: whole numbers, float32."""
    draw = np.random.default_rng(seed)
    return draw.integers(-most, most + 1, length, dtype=np.int32).astype(np.float32)


def main() -> None:
    import torch
    from ranks import answer, give, inputs
    from wire import wired

    given = inputs()
    with wired(given) as line:
        if line is None:
            return  # this was the machine
        large = "seed" in given
        if large:  # and afterwards nobody knows the seed
            given["x"] = drawn(given.pop("seed"), given["length"], given["most"])
        x = torch.from_numpy(given.pop("x")).to(getattr(torch, given["dtype"]))
        result = answer("ring.py").all_reduce(x)
        same = result is None or result is x
        x = x if same else result
        give(same=same)
        if not large:
            return give(result=x)
        whole = x.numpy() + np.float32(0)  # there are two zeros
        give(shown=x[::ONE_OF], digest=sha256(whole.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
