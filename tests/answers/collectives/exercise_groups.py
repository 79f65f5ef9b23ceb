# %% wrong: all reduce under another name
def sum_in_two_levels(tensor, nodes, rank, add_up=dist.all_reduce):
    total = tensor.clone()
    add_up(total)
    return total


# %% wrong: by formula
def sum_in_two_levels(tensor, nodes, rank):
    return torch.tensor(sum(10**other for node in nodes for other in node))


# %% wrong: counted twice
def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    total = tensor.clone()
    dist.all_reduce(total, group=groups[rank // 2])
    if rank % 2 == 0:
        dist.all_reduce(total, group=leaders)
    dist.all_reduce(total, group=groups[rank // 2])  # adds the node's own sum again
    return total


# %% wrong: leaders keep it
def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    total = tensor.clone()
    dist.all_reduce(total, group=groups[rank // 2])
    if rank % 2 == 0:
        dist.all_reduce(total, group=leaders)
    return total


# %% wrong: objects of the world
def sum_in_two_levels(tensor, nodes, rank, gather=dist.all_gather_object):
    lists = [None] * dist.get_world_size()
    gather(lists, tensor.tolist())
    return torch.tensor(lists).sum(0)


# %% wrong: own groups only
def sum_in_two_levels(tensor, nodes, rank):
    node = nodes[rank // 2]
    group = dist.new_group(node)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    if rank == node[0]:
        leaders = dist.new_group([node[0] for node in nodes])
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, src=node[0], group=group)
    return total


# %% wrong: place in the group
def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    total = tensor.clone()
    dist.all_reduce(total, group=groups[rank // 2])
    if rank % 2 == 0:
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, src=0, group=groups[rank // 2])  # 0 is no rank of node 1
    return total


# %% wrong: star of messages
def sum_in_two_levels(tensor, nodes, rank):
    total, others = tensor.clone(), range(1, dist.get_world_size())
    if rank:
        dist.send(total, dst=0)
        dist.recv(total, src=0)
        return total
    for other in others:
        recv_buf = torch.empty_like(tensor)
        dist.recv(recv_buf, src=other)
        total += recv_buf
    for other in others:
        dist.send(total, dst=other)
    return total


# %% wrong: the whole world
def sum_in_two_levels(tensor, nodes, rank):
    dist.all_reduce(tensor)
    return tensor


# %% right: made by members alone
def sum_in_two_levels(tensor, nodes, rank):
    mine = [node for node in nodes if rank in node][0]
    group = dist.new_group(mine, use_local_synchronization=True)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    if rank == mine[0]:
        heads = [node[0] for node in nodes]
        dist.all_reduce(
            total, group=dist.new_group(heads, use_local_synchronization=True)
        )
    dist.broadcast(total, mine[0], group)
    return total


# %% wrong: the leaders' group made by the leaders alone
def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    node, group = nodes[rank // 2], groups[rank // 2]
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    if rank == node[0]:
        leaders = dist.new_group([node[0] for node in nodes])
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, src=node[0], group=group)
    return total
