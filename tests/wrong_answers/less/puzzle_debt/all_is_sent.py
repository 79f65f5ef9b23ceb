def top_one(gradient, owed):
    total = gradient + owed
    return total, torch.zeros_like(total)
