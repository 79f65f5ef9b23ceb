def rounds(batches):
    number = torch.tensor([batches])
    dist.all_reduce(number)
    return number // dist.get_world_size()
