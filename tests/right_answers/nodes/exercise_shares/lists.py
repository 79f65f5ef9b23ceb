def sum_by_shares(tensor, inside, across):
    pieces = list(tensor.chunk(dist.get_world_size(inside)))
    mine = torch.zeros_like(pieces[0])
    dist.reduce_scatter(mine, pieces, group=inside)
    dist.all_reduce(mine, group=across, async_op=True).wait()
    dist.all_gather(pieces, mine, group=inside)
    return True
