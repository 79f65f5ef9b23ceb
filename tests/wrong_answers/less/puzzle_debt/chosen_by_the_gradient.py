def top_one(gradient, owed):
    total, place = gradient + owed, gradient.abs().argmax()
    sent = torch.zeros_like(total)
    sent[place] = total[place]
    return sent, total - sent
