def top_one(gradient, owed):
    total = gradient + owed
    mask = total.abs() == total.abs().max()
    return total * mask, total * ~mask
