def gated(x, w1, b1, w3, b3, w2, b2):
    x = SumOverRanks.apply(x, "backward")
    hidden = F.silu(F.linear(x, w1, b1)) * F.linear(x, w3, b3)
    return SumOverRanks.apply(F.linear(hidden, w2, b2), "forward")
