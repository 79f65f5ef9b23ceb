"""Hints for ddp_lab/collectives/exercise_groups.py, and an answer.

1. Who must know a node's sum before the leaders can add theirs up, and who still does
   not know the total after that?
2. Every rank makes every group, in the same order, also those that it does not belong
   to. Then there are three steps: inside the node, among the leaders, inside the node
   again.
3. Call dist.reduce to your leader in your node's group; if you are the leader,
   dist.all_reduce in the leaders' group; then dist.broadcast in your node's group. dst
   and src are ranks of the whole world: node[0], not 0.
"""


def sum_in_two_levels(tensor, nodes, rank):
    # All ranks make all groups, in the same order.
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    node, group = nodes[rank // 2], groups[rank // 2]
    total = tensor.clone()
    dist.reduce(total, dst=node[0], group=group)  # the leader knows its node's sum
    if rank == node[0]:
        dist.all_reduce(total, group=leaders)  # all leaders know the whole sum
    dist.broadcast(total, src=node[0], group=group)  # and tell their nodes
    return total
