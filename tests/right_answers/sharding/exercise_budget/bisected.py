import bisect


class Bytes:
    def __init__(self, way, sizes, ranks):
        self.way, self.sizes, self.ranks = way, sizes, ranks

    def __call__(self, n):
        s = self.sizes
        weights = s["rest"] + n * s["block"]
        whole = {"kept": weights}.get(self.way, s["rest"] + s["block"])
        kept = s[
            "input of a block" if self.way == "recomputed" else "activations of a block"
        ]
        return (
            4 * weights / self.ranks + whole + s["activations of the rest"] + n * kept
        )


def most_blocks(budget, way, sizes, world_size):
    return bisect.bisect_right(
        range(1, 10_000), budget, key=Bytes(way, sizes, world_size)
    )
