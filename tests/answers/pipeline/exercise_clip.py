# %% wrong: each stage by itself
def clip(part, limit):
    return torch.nn.utils.clip_grad_norm_(part.parameters(), limit)


# %% wrong: the tied weight twice
def clip(part, limit):
    squares = sum(p.grad.square().sum() for p in part.parameters())
    dist.all_reduce(squares)
    norm = squares.sqrt()
    torch.nn.utils.clip_grads_with_norm_(part.parameters(), limit, norm)
    return norm


# %% wrong: norms added
def clip(part, limit):
    own = [p.grad for name, p in part.named_parameters() if name != "head.weight"]
    norm = torch.nn.utils.get_total_norm(own)
    dist.all_reduce(norm)
    torch.nn.utils.clip_grads_with_norm_(part.parameters(), limit, norm)
    return norm


# %% wrong: scaled up, too
CHANGES = {
    "    norm = squares.sqrt()\n": "",
    "p.grad *= (limit / norm).clamp(max=1)": "p.grad *= limit / squares.sqrt()",
    "return norm": "return squares.sqrt()",
}


# %% wrong: one copy is not scaled
def clip(part, limit):
    own = [p for name, p in part.named_parameters() if name != "head.weight"]
    squares = sum(p.grad.square().sum() for p in own)
    dist.all_reduce(squares)
    norm = squares.sqrt()
    torch.nn.utils.clip_grads_with_norm_(own, limit, norm)
    return norm


# %% right: by the library's halves
def clip(part, limit):
    own = [p.grad for p in part.parameters()]
    if part.is_first:
        own = [p.grad for p in part.blocks.parameters()]  # the last rank counts it
    norm = torch.nn.utils.get_total_norm(own) ** 2
    dist.all_reduce(norm)
    norm = norm.sqrt().item()
    total = torch.tensor(norm)
    torch.nn.utils.clip_grads_with_norm_(part.parameters(), limit, total)
    return norm
