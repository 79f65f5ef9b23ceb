def top_one(gradient, owed):
    total, place = gradient + owed, owed.abs().argmax()
    sent = torch.zeros_like(total).index_fill(0, place, total[place].item())
    return sent, total - sent
