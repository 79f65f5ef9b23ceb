def mean_of_all(mine):
    both = torch.stack([mine.sum(), mine.new_tensor(len(mine))])  # the sum, the count
    dist.all_reduce(both)
    return both[0] / both[1]
