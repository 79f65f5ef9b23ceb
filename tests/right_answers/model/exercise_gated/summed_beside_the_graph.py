def gated(x, w1, b1, w3, b3, w2, b2):
    x = SumOverRanks.apply(x, "backward")
    out = (F.silu(x @ w1.t() + b1) * (x @ w3.t() + b3)) @ w2.t()
    with torch.no_grad():
        others = out.clone()
        dist.all_reduce(others, async_op=True).wait()
        others -= out
    return out + others + b2
