def gated(x, w1, b1, w3, b3, w2, b2):
    x = x.view_as(x)
    x.register_hook(total)
    gate, up = (torch.addmm(b, x, w.T) for w, b in ((w1, b1), (w3, b3)))
    part = (F.silu(gate) * up) @ w2.T
    return SumOverRanks.apply(part, "forward").add(b2)
