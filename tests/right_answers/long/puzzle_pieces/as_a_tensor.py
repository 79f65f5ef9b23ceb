def pieces(rank, n):
    first, second = torch.arange(2 * n).chunk(2)
    return torch.stack([first, second.flip(0)])[:, rank]
