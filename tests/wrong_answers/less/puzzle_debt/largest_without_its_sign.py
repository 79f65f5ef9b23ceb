def top_one(gradient, owed):
    total = gradient + owed
    sent = torch.zeros_like(total)
    sent[total.argmax()] = total.max()
    return sent, total - sent
