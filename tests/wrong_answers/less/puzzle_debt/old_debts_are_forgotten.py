def top_one(gradient, owed):
    total = gradient + owed
    sent, place = torch.zeros_like(total), total.abs().argmax()
    sent[place] = total[place]
    left = gradient.clone()
    left[place] = 0
    return sent, left
