def gated(x, w1, b1, w3, b3, w2, b2):
    gate = F.silu(F.linear(SumOverRanks.apply(x, "backward"), w1, b1))
    hidden = gate * F.linear(x, w3, b3)
    return SumOverRanks.apply(F.linear(hidden, w2), "forward") + b2
