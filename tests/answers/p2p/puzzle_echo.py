# %% wrong: both receive first
def echo(mine, rank, last):
    if rank in (0, last):
        dist.recv(mine, last - rank)
        dist.send(2 * mine, last - rank)
        return mine if rank == 0 else None


# %% wrong: doubled at home
CHANGES = {
    "return mine": "return 2 * mine",
    "dist.send(2 * mine, 0)": "dist.send(mine, 0)",
}


# %% wrong: not doubled
CHANGES = {
    "dist.send(2 * mine, 0)": "dist.send(mine, 0)",
}


# %% right: from any source
def echo(mine, rank, last):
    if rank == last:
        source = dist.recv(mine)
        dist.send(torch.mul(mine, 2), source)
    elif rank == 0:
        dist.send(mine, last)
        got = torch.zeros_like(mine)
        dist.recv(got)
        return got
