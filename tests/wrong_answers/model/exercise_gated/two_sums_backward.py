def gated(x, w1, b1, w3, b3, w2, b2):
    hidden = F.silu(F.linear(SumOverRanks.apply(x, "backward"), w1, b1))
    hidden = hidden * F.linear(SumOverRanks.apply(x, "backward"), w3, b3)
    return SumOverRanks.apply(F.linear(hidden, w2), "forward") + b2
