import torch.distributed._functional_collectives as funcol


def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    mine = next(i for i, node in enumerate(nodes) if rank in node)
    total = funcol.all_reduce(tensor, "sum", groups[mine])
    if rank == nodes[mine][0]:
        total = funcol.all_reduce(total, "sum", leaders)
    return funcol.broadcast(total, 0, groups[mine])
