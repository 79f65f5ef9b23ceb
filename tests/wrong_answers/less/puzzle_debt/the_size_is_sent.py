def top_one(gradient, owed):
    total = gradient + owed
    sent, place = torch.zeros_like(total), total.abs().argmax()
    sent[place] = total[place].abs()
    return sent, total - sent
