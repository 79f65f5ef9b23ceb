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


# %% right: by a class
class Level:
    def __init__(self, group):
        self.group, self.head = group, dist.get_process_group_ranks(group)[0]

    def up(self, tensor):
        return dist.reduce(tensor, self.head, group=self.group, async_op=True).wait()

    def down(self, tensor):
        dist.broadcast(tensor, self.head, group=self.group, async_op=True).wait()


def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    inside = Level(groups[rank // 2])
    levels = [inside, Level(leaders)] if rank == inside.head else [inside]
    total = tensor.double()
    for level in levels:
        level.up(total)
    for level in reversed(levels):
        level.down(total)
    return total.long()


# %% right: by objects
def sum_in_two_levels(tensor, nodes, rank):
    made = [dist.new_group(members) for members in [*nodes, [n[0] for n in nodes]]]
    place = [rank in node for node in nodes].index(True)
    members, group = nodes[place], made[place]
    parts = [None] * len(members) if rank == members[0] else None
    dist.gather_object(tensor.cpu(), parts, dst=members[0], group=group)
    told = [None]
    if parts:
        sums = [None] * len(nodes)
        dist.all_gather_object(sums, sum(parts), group=made[-1])
        told = [sum(sums)]
    dist.broadcast_object_list(told, src=members[0], group=group)
    return told[0].to(tensor.device)


# %% right: functional
import torch.distributed._functional_collectives as funcol


def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    mine = next(i for i, node in enumerate(nodes) if rank in node)
    total = funcol.all_reduce(tensor, "sum", groups[mine])
    if rank == nodes[mine][0]:
        total = funcol.all_reduce(total, "sum", leaders)
    return funcol.broadcast(total, 0, groups[mine])


# %% right: gathered
def gathered(tensor, group):
    rows = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, tensor, group=group)
    return torch.stack(rows).sum(dim=0)


def sum_in_two_levels(tensor, nodes, rank):
    group, _ = dist.new_subgroups_by_enumeration(nodes)
    leaders = dist.new_group([node[0] for node in nodes])
    total = gathered(tensor, group)
    if rank in dist.get_process_group_ranks(leaders):
        total = gathered(total, leaders)
    dist.broadcast(total, src=min(dist.get_process_group_ranks(group)), group=group)
    return total.tolist()


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


# %% right: places in the group
def sum_in_two_levels(tensor, nodes, rank):
    groups = {tuple(node): dist.new_group(ranks=node) for node in nodes}
    leaders = dist.new_group(ranks=[leader for leader, *_ in nodes])
    node = next(node for node in nodes if rank in node)
    dist.reduce(tensor, group_dst=0, group=groups[tuple(node)])
    if node.index(rank) == 0:
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=leaders)
    dist.broadcast(tensor, group_src=0, group=groups[tuple(node)])
    return tensor
