def gated(x, w1, b1, w3, b3, w2, b2):
    x = SumOverRanks.apply(x, "backward")
    gate = F.silu(F.linear(x, w1, b1))
    dist.group.WORLD.allreduce([gate.detach().clone()]).wait()
    hidden = gate * F.linear(x, w3, b3)
    return SumOverRanks.apply(F.linear(hidden, w2), "forward") + b2
