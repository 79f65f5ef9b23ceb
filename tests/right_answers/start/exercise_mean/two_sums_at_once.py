def mean_of_all(mine):
    total, count = mine.sum(), torch.tensor(mine.numel(), device=mine.device)
    for work in [dist.all_reduce(each, async_op=True) for each in (total, count)]:
        work.wait()
    return (total / count).item()
