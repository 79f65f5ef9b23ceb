# %% wrong: folder forgotten
CHANGES = {
    '"write", "sync file", "rename", "sync folder"': '"write", "sync file", "rename"',
}


# %% wrong: name before bytes
CHANGES = {
    ', "sync file", "rename", "sync folder"': ', "rename", "sync file", "sync folder"',
}


# %% wrong: root does not wait
CHANGES = {
    "dist.barrier()": "else:\n        dist.barrier()",
}


# %% right: others wait first
def whole(do, rank):
    if rank:
        return dist.barrier()
    do("write")
    do("sync file")
    do("rename")
    do("sync folder")
    return dist.barrier()
