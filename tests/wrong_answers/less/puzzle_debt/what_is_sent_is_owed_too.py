def top_one(gradient, owed):
    total = gradient + owed
    sent = total * (total.abs() == total.abs().max())
    return sent, total
