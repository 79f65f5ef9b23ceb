# %% wrong: a message for each weight
def refresh(shards, policy, trainers, groups):
    n = len(trainers)
    for place, (trainer, group) in enumerate(zip(trainers, groups, strict=True)):
        if dist.get_rank() == trainer:
            for rows in shards:
                if rows.numel():
                    dist.broadcast(rows, src=trainer, group=group)
        elif policy is not None:
            for weight in policy.parameters():
                pieces = weight.data.chunk(n)
                if place < len(pieces):
                    dist.broadcast(pieces[place], src=trainer, group=group)


# %% wrong: whole on the first trainer
# It gathers what does not fit there, and most rows travel twice.
def refresh(shards, policy, trainers, groups):
    first, n = trainers[0], len(trainers)
    model = build(0, next(iter(shards or policy.parameters())).device)
    whole = policy if policy is not None else model
    for place, trainer in enumerate(trainers[1:], 1):
        for i, weight in enumerate(model.parameters()):
            pieces = weight.data.chunk(n)
            if place >= len(pieces):
                continue
            if dist.get_rank() == trainer:
                dist.send(shards[i], dst=first)
            elif dist.get_rank() == first:
                dist.recv(pieces[place], src=trainer)
    if dist.get_rank() == first:
        for weight, rows in zip(model.parameters(), shards, strict=True):
            weight.data[: len(rows)] = rows
    if dist.get_rank() == first or policy is not None:
        row = nn.utils.parameters_to_vector(whole.parameters()).detach()
        dist.broadcast(row, src=first, group=groups[0])
        nn.utils.vector_to_parameters(row, whole.parameters())


# %% wrong: rows cut as equally as can be
# tensor_split gives each trainer rows; chunk, and fully_shard, leave the last without.
CHANGES = {
    "w.data.chunk(len(trainers))": "w.data.tensor_split(len(trainers))",
}


# %% wrong: the numbers cut, not the rows
# The flat row of all weights, in as many parts as there are trainers.
def refresh(shards, policy, trainers, groups):
    whole = None
    if policy is not None:
        whole = nn.utils.parameters_to_vector(policy.parameters()).detach()
        parts = whole.chunk(len(trainers))
    for place, (trainer, group) in enumerate(zip(trainers, groups, strict=True)):
        if dist.get_rank() == trainer:
            row = torch.cat([rows.flatten() for rows in shards])
            dist.broadcast(row, src=trainer, group=group)
        elif whole is not None:
            dist.broadcast(parts[place], src=trainer, group=group)
    if whole is not None:
        nn.utils.vector_to_parameters(whole, policy.parameters())


# %% wrong: one trainer after the other, laid end to end
# Each weight comes out with the rows of all weights of the first trainer.
def refresh(shards, policy, trainers, groups):
    come = []
    for place, (trainer, group) in enumerate(zip(trainers, groups, strict=True)):
        if dist.get_rank() == trainer:
            row = torch.cat([rows.flatten() for rows in shards])
            dist.broadcast(row, src=trainer, group=group)
        elif policy is not None:
            pieces = [w.data.chunk(len(trainers)) for w in policy.parameters()]
            size = sum(each[place].numel() for each in pieces if place < len(each))
            come.append(next(policy.parameters()).data.new_empty(size))
            dist.broadcast(come[-1], src=trainer, group=group)
    if policy is not None:
        nn.utils.vector_to_parameters(torch.cat(come), policy.parameters())


# %% wrong: filled, but not into the policy
CHANGES = {"rows.copy_(part.view_as(rows))": "rows.clone().copy_(part.view_as(rows))"}


# %% wrong: what was sent is given up
CHANGES = {
    "        if policy is not None:\n            parts": (
        "        for rows in shards or []:\n"
        "            rows.zero_()\n"
        "        if policy is not None:\n            parts"
    ),
}


# %% wrong: only the first generator
CHANGES = {
    "elif policy is not None:": "elif policy is not None and "
    "dist.get_rank() == min({*range(dist.get_world_size())} - {*trainers}):",
}


# %% wrong: from each trainer to all ranks
def refresh(shards, policy, trainers, groups):
    trained = policy if policy is not None else build(0, shards[0].device)
    pieces = [w.data.chunk(len(trainers)) for w in trained.parameters()]
    for place, trainer in enumerate(trainers):
        mine = [each[place] for each in pieces if place < len(each)]
        row = torch.cat([rows.flatten() for rows in mine])
        if dist.get_rank() == trainer:
            row = torch.cat([rows.flatten() for rows in shards])
        dist.broadcast(row, src=trainer)
        for rows, part in zip(mine, row.split([r.numel() for r in mine]), strict=True):
            rows.copy_(part.view_as(rows))


# %% right: sent to each generator
def refresh(shards, policy, trainers, groups):
    world = range(dist.get_world_size())
    if shards is not None:
        row = torch.cat([rows.reshape(-1) for rows in shards])
        for generator in sorted({*world} - {*trainers}):
            dist.send(row, dst=generator)
        return
    for place, trainer in enumerate(trainers):
        views = []
        for weight in policy.parameters():
            high = -(-len(weight) // len(trainers))  # rows of a full piece
            views.append(weight.data[place * high : (place + 1) * high])
        row = torch.empty(sum(v.numel() for v in views), device=views[0].device)
        dist.recv(row, src=trainer)
        at = 0
        for view in views:
            view.copy_(row[at : at + view.numel()].view(view.shape))
            at += view.numel()


# %% right: one exchange of all
def refresh(shards, policy, trainers, groups):
    n, world = len(trainers), dist.get_world_size()
    views, come, go = [], [0] * world, [0] * world
    if policy is not None:
        for place, trainer in enumerate(trainers):
            for weight in policy.parameters():
                views += weight.data.chunk(n)[place : place + 1]
                come[trainer] += sum(
                    v.numel() for v in weight.data.chunk(n)[place : place + 1]
                )
        send, device = None, views[0].device
    else:
        row = torch.cat([rows.flatten() for rows in shards])
        generators = [r for r in range(world) if r not in trainers]
        for generator in generators:
            go[generator] = len(row)
        send, device = row.repeat(len(generators)), row.device
    send = torch.empty(0, device=device) if send is None else send
    recv = torch.empty(sum(come), device=device)
    dist.all_to_all_single(recv, send, come, go)
    for view, part in zip(views, recv.split([v.numel() for v in views]), strict=True):
        view.copy_(part.view_as(view))


# %% right: in the background
def refresh(shards, policy, trainers, groups):
    works, rows, n = [], {}, len(trainers)
    for place, trainer in enumerate(trainers):
        if shards is not None and dist.get_rank() == trainer:
            rows[place] = torch.cat([each.ravel() for each in shards])
        elif policy is not None:
            sizes = [
                w.chunk(n)[place].numel()
                for w in policy.parameters()
                if len(w.chunk(n)) > place
            ]
            rows[place] = torch.zeros(
                sum(sizes), device=next(policy.parameters()).device
            )
        if place in rows:
            works.append(
                dist.broadcast(rows[place], trainer, groups[place], async_op=True)
            )
    for work in works:
        work.wait()
    if policy is None:
        return
    with torch.no_grad():
        for weight in policy.parameters():
            fresh = []
            for place, piece in enumerate(weight.chunk(n)):
                fresh.append(rows[place][: piece.numel()])
                rows[place] = rows[place][piece.numel() :]
            weight.copy_(torch.cat(fresh).reshape(weight.shape))
