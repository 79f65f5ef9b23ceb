def gated(x, w1, b1, w3, b3, w2, b2):
    x = SumOverRanks.apply(x, "backward")
    hidden = F.silu(F.linear(x, w1, b1)) * F.linear(x, w3, b3)
    part = hidden.detach().cpu().contiguous()
    if dist.get_rank() == 0:
        for other in range(1, dist.get_world_size()):
            dist.recv(torch.empty_like(part), other)
    else:
        dist.send(part, 0)
    return SumOverRanks.apply(F.linear(hidden, w2), "forward") + b2
