# %% wrong: fused weight cut straight
def own_rows(fused):
    return fused.chunk(dist.get_world_size())[dist.get_rank()]


# %% wrong: gate alone summed early
def swiglu(mine, fused, down):
    x = GatherPositions.apply(mine)
    gate, up = F.linear(x, fused).chunk(2, -1)
    dist.all_reduce(gate.detach())
    return SumPositions.apply(F.linear(F.silu(gate) * up, down))


# %% wrong: gate and up exchanged
def swiglu(mine, fused, down):
    up, gate = F.linear(GatherPositions.apply(mine), fused).chunk(2, -1)
    return SumPositions.apply(F.linear(F.silu(gate) * up, down))


# %% wrong: gathered for each projection
def swiglu(mine, fused, down):
    gate, up = fused.chunk(2)
    gate = F.linear(GatherPositions.apply(mine), gate)
    up = F.linear(GatherPositions.apply(mine), up)
    return SumPositions.apply(F.linear(F.silu(gate) * up, down))


# %% wrong: gathered outside autograd
def swiglu(mine, fused, down):
    x = gather(mine.detach())
    gate, up = F.linear(x, fused).chunk(2, -1)
    return SumPositions.apply(F.linear(F.silu(gate) * up, down))


# %% wrong: hidden features gathered
def own_rows(fused):
    return fused.chunk(dist.get_world_size())[dist.get_rank()]


def swiglu(mine, fused, down):
    part = F.linear(GatherPositions.apply(mine), fused)
    gate, up = gather(part.T).T.chunk(2, -1)
    hidden = (F.silu(gate) * up).chunk(dist.get_world_size(), 1)[dist.get_rank()]
    return SumPositions.apply(F.linear(hidden, down))


# %% wrong: own positions only
def swiglu(mine, fused, down):
    gate, up = F.linear(mine, fused).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


# %% wrong: sum of all positions
def swiglu(mine, fused, down):
    gate, up = F.linear(GatherPositions.apply(mine), fused).chunk(2, -1)
    out = F.linear(F.silu(gate) * up, down)
    total = out.detach().clone()
    dist.all_reduce(total)
    out = out + (total - out).detach()
    return out.chunk(dist.get_world_size())[dist.get_rank()]


# %% wrong: summed outside autograd
def swiglu(mine, fused, down):
    gate, up = F.linear(GatherPositions.apply(mine), fused).chunk(2, -1)
    part = F.linear(F.silu(gate) * up, down)
    own = part.chunk(dist.get_world_size())[dist.get_rank()]
    return own + (sum_of_own(part.detach()) - own.detach())


# %% wrong: whole weight on every rank
def own_rows(fused):
    return fused


# %% right: rows by number
def own_rows(fused):
    hidden = len(fused) // 2
    size = hidden // dist.get_world_size()
    rows = torch.arange(size, device=fused.device) + dist.get_rank() * size
    return fused.index_select(0, torch.hstack([rows, rows + hidden]))


def swiglu(mine, fused, down):
    both = torch.einsum("pw,hw->ph", GatherPositions.apply(mine), fused)
    hidden = F.silu(both[:, : len(fused) // 2]) * both[:, len(fused) // 2 :]
    return SumPositions.apply(torch.einsum("ph,wh->pw", hidden, down))


# %% right: functional collectives
def own_rows(fused):
    halves = fused.unflatten(0, (2, dist.get_world_size(), -1))
    return halves[:, dist.get_rank()].flatten(0, 1)


def swiglu(mine, fused, down):
    from torch.distributed._functional_collectives import (
        all_gather_tensor_autograd,
        reduce_scatter_tensor_autograd,
    )

    group = dist.group.WORLD
    x = all_gather_tensor_autograd(mine, 0, group)
    gate, up = (x @ fused.T).chunk(2, -1)
    part = (F.silu(gate) * up) @ down.T
    return reduce_scatter_tensor_autograd(part, "sum", 0, group)
