# %% wrong: activations are divided
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + gathered + kept / world_size <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: freed after forward always
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: nothing is gathered
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        return 4 * weights / world_size + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: one recomputed block stays whole
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"] + n * sizes[name]
        # The block that is recomputed: real, but no part of this lesson's table.
        kept += sizes["activations of a block"] * (way == "recomputed")
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% wrong: recomputed keeps nothing
def most_blocks(budget, way, sizes, world_size):
    def fits(n):
        weights = sizes["rest"] + n * sizes["block"]
        gathered = weights if way == "kept" else sizes["rest"] + sizes["block"]
        name = "input of a block" if way == "recomputed" else "activations of a block"
        kept = sizes["activations of the rest"]
        kept += 0 if way == "recomputed" else n * sizes[name]
        return 4 * weights / world_size + gathered + kept <= budget

    n = 1
    while fits(n + 1):
        n += 1
    return n


# %% right: bisected
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


# %% right: counted down
def most_blocks(budget, way, sizes, world_size):
    block, rest, of_block, of_rest, given = sizes.values()
    for n in range(50, 0, -1):
        held = 4 * (rest + n * block)
        lent = world_size * (rest + block * (n if way == "kept" else 1))
        kept = of_rest + n * (given if way == "recomputed" else of_block)
        if held + lent + world_size * kept <= world_size * budget:
            return n
    return 0


# %% right: solved for n
def most_blocks(budget, way, sizes, world_size):
    shares = 4 / world_size
    each, rest = shares * sizes["block"], (1 + shares) * sizes["rest"]
    rest += sizes["activations of the rest"]
    if way == "kept":
        each += sizes["block"]
    else:
        rest += sizes["block"]
    each += sizes["input of a block" if way[0] == "r" else "activations of a block"]
    return int((budget - rest) / each + 1e-9)


# %% right: subtracted block by block
def most_blocks(budget, way, sizes, world_size, blocks=0):
    """Pay for the rest, then for a block at a time, until the money is gone."""
    if blocks == 0:
        budget -= sizes.pop("rest") * (4 / world_size + 1)
        budget -= sizes.pop("activations of the rest")
        if way != "kept":
            budget -= sizes["block"]
    price = sizes["block"] * (4 / world_size + (way == "kept"))
    price += sizes[("activations" if way != "recomputed" else "input") + " of a block"]
    if price > budget:
        return blocks
    return most_blocks(budget - price, way, sizes, world_size, blocks + 1)
