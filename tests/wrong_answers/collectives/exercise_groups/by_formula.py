def sum_in_two_levels(tensor, nodes, rank):
    return torch.tensor(sum(10**other for node in nodes for other in node))
