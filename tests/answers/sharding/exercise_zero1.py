# %% wrong: the norm of its own shard
CHANGES = {
    (
        "squares = shard.grad.square().sum()\n"
        "    dist.all_reduce(squares)  # every rank now holds the sum over all shards\n"
        "    norm = squares.sqrt()\n"
        "    shard.grad *= (limit / norm).clamp(max=1.0)"
    ): "norm = torch.nn.utils.clip_grad_norm_([shard], limit)",
}


# %% wrong: the sum of the norms
CHANGES = {
    (
        "squares = shard.grad.square().sum()\n"
        "    dist.all_reduce(squares)  # every rank now holds the sum over all shards\n"
        "    norm = squares.sqrt("
    ): ("norm = shard.grad.norm()\n    dist.all_reduce(norm"),
}


# %% wrong: clipped before the mean
def step(weights, flat, shard, optimizer, limit):
    norm = torch.nn.utils.clip_grad_norm_(weights, limit)
    gradients = flatten([w.grad for w in weights]) / dist.get_world_size()
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter_tensor(shard.grad, gradients)
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: the sum for the mean
CHANGES = {
    "    gradients = flatten([w.grad for w in weights]) / dist.get_world_size()\n": "",
    "gradients)  # my shard of the mean": "flatten([w.grad for w in weights]))",
}


# %% wrong: own gradients only
CHANGES = {
    "for w in weights]) / dist.get_world_size()": "for w in weights])",
    "torch.empty_like(shard)": (
        "gradients.chunk(dist.get_world_size())[dist.get_rank()].clone()"
    ),
    "dist.reduce_scatter_tensor(shard.grad, gradients)": "",
}


# %% wrong: gradients stay for the next step
CHANGES = {
    (
        "for w in weights:\n        w.grad = None"
    ): "optimizer.zero_grad()  # knows the shard only",
}


# %% wrong: no gather
CHANGES = {
    (
        "    # Every rank ends up with all shards, each as its owner has updated it.\n"
        "    dist.all_gather_into_tensor(flat, shard.detach())\n"
    ): "",
}


# %% wrong: always scaled to the limit
CHANGES = {
    "shard.grad *= (limit / norm).clamp(max=1.0)": "shard.grad *= limit / norm",
}


# %% wrong: all_reduce, then cut
def step(weights, flat, shard, optimizer, limit):
    for w in weights:
        dist.all_reduce(w.grad)
        w.grad /= dist.get_world_size()
    norm = torch.nn.utils.clip_grad_norm_(weights, limit)
    gradients = flatten([w.grad for w in weights])
    shard.grad = gradients.chunk(dist.get_world_size())[dist.get_rank()].clone()
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: everyone's gradients gathered
def step(weights, flat, shard, optimizer, limit):
    n, gradients = dist.get_world_size(), flatten([w.grad for w in weights])
    everyone = gradients.new_empty(n * len(gradients))
    dist.all_gather_into_tensor(everyone, gradients)
    mean = everyone.view(n, -1).mean(0)
    norm = mean.norm()
    shard.grad = mean.chunk(n)[dist.get_rank()] * (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: all to rank 0, and back
def step(weights, flat, shard, optimizer, limit):
    n, mean = dist.get_world_size(), flatten([w.grad for w in weights])
    dist.reduce(mean, dst=0)
    dist.broadcast(mean, src=0)
    mean /= n
    norm = mean.norm()
    shard.grad = mean.chunk(n)[dist.get_rank()] * (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: every shard gathered, for the norm
CHANGES = {
    (
        "squares = shard.grad.square().sum()\n"
        "    dist.all_reduce(squares)  # every rank now holds the sum over all shards\n"
        "    norm = squares.sqrt()\n"
    ): (
        "everyone = torch.empty_like(flat)\n"
        "    dist.all_gather_into_tensor(everyone, shard.grad)\n"
        "    norm = everyone.norm()\n"
    ),
}


# %% wrong: each gradient gathered
def step(weights, flat, shard, optimizer, limit):
    n = dist.get_world_size()
    for w in weights:
        versions = [torch.empty_like(w.grad) for _ in range(n)]
        dist.all_gather(versions, w.grad)
        w.grad = torch.stack(versions).mean(0)
    norm = torch.nn.utils.clip_grad_norm_(weights, limit)
    gradients = flatten([w.grad for w in weights])
    shard.grad = gradients.chunk(n)[dist.get_rank()].clone()
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: an all_reduce in pieces
def step(weights, flat, shard, optimizer, limit):
    n, gradients = dist.get_world_size(), flatten([w.grad for w in weights])
    for piece in gradients.split(16):
        dist.all_reduce(piece)
    gradients /= n
    norm = gradients.norm()
    shard.grad = gradients.chunk(n)[dist.get_rank()] * (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% wrong: every rank broadcasts its gradients
def step(weights, flat, shard, optimizer, limit):
    n, gradients = dist.get_world_size(), flatten([w.grad for w in weights])
    mean = torch.zeros_like(gradients)
    for src in range(n):
        theirs = gradients.clone()
        dist.broadcast(theirs, src=src)
        mean += theirs / n
    norm = mean.norm()
    shard.grad = mean.chunk(n)[dist.get_rank()] * (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% right: an exchange, lists, a number, and the library's coefficient
def step(weights, flat, shard, optimizer, limit):
    n, gradients = dist.get_world_size(), flatten([w.grad for w in weights])
    versions = torch.empty_like(gradients)
    dist.all_to_all_single(versions, gradients)
    shard.grad = versions.view(n, -1).mean(0)
    squares = [torch.zeros_like(shard.grad[:1]) for _ in range(n)]
    dist.all_gather(squares, (shard.grad**2).sum().view(1))
    norm = sum(square.item() for square in squares) ** 0.5
    shard.grad.mul_(min(1.0, limit / (norm + 1e-6)))
    optimizer.step()
    for w in weights:
        w.grad.zero_()
    pieces = [torch.empty_like(shard) for _ in range(n)]
    dist.all_gather(pieces, shard.detach().clone())
    flat.copy_(torch.cat([piece.detach() for piece in pieces]))
    return norm


# %% right: each shard reduced to its owner, then broadcast by it
import numpy


def step(weights, flat, shard, optimizer, limit):
    n, me = dist.get_world_size(), dist.get_rank()
    for owner, piece in enumerate(flatten([w.grad for w in weights]).chunk(n)):
        mine = piece.clone()
        dist.reduce(mine, dst=owner)
        if owner == me:
            shard.grad = mine / n
    total = (shard.grad @ shard.grad).reshape(1)
    dist.all_reduce(total)
    norm = numpy.sqrt(total.item())
    if norm > limit:
        shard.grad *= limit / norm
    optimizer.step()
    with torch.no_grad():
        for owner, piece in enumerate(flat.chunk(n)):
            dist.broadcast(piece, src=owner)
    for w in weights:
        w.grad = None
    return norm


# %% right: messages of two, and norms as objects
def step(weights, flat, shard, optimizer, limit):
    n, me = dist.get_world_size(), dist.get_rank()
    pieces = flatten([w.grad for w in weights]).chunk(n)
    theirs = [torch.empty_like(pieces[me]) for _ in range(n - 1)]
    others = [other for other in range(n) if other != me]
    calls = [dist.P2POp(dist.isend, pieces[other], other) for other in others]
    calls += [
        dist.P2POp(dist.irecv, piece, other)
        for piece, other in zip(theirs, others, strict=True)
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    shard.grad = sum(theirs, pieces[me]) / n
    norms = [None] * n
    dist.all_gather_object(norms, shard.grad.norm().item())
    norm = sum(each**2 for each in norms) ** 0.5
    if norm > limit:
        shard.grad *= limit / norm
    optimizer.step()
    for w in weights:
        w.grad = None
    dist.all_gather_into_tensor(flat, shard.detach())
    return norm


# %% right: functional collectives
import torch.distributed._functional_collectives as collectives


def step(weights, flat, shard, optimizer, limit):
    n = dist.get_world_size()
    gradients = flatten([w.grad for w in weights]) / n
    group = dist.group.WORLD
    shard.grad = collectives.reduce_scatter_tensor(gradients, "sum", 0, group) + 0
    squares = collectives.all_reduce(shard.grad.square().sum(), "sum", group)
    norm = squares.sqrt()
    shard.grad *= (limit / norm).clamp(max=1.0)
    optimizer.step()
    for w in weights:
        w.grad = None
    flat.copy_(collectives.all_gather_tensor(shard.detach(), 0, group))
    return norm
