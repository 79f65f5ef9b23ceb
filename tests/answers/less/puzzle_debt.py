# %% wrong: largest without its sign
def top_one(gradient, owed):
    total = gradient + owed
    sent = torch.zeros_like(total)
    sent[total.argmax()] = total.max()
    return sent, total - sent


# %% wrong: old debts are forgotten
def top_one(gradient, owed):
    total = gradient + owed
    sent, place = torch.zeros_like(total), total.abs().argmax()
    sent[place] = total[place]
    left = gradient.clone()
    left[place] = 0
    return sent, left


# %% right: as lists
def top_one(gradient, owed):
    total = (gradient + owed).tolist()
    largest = max(total, key=abs)
    sent = [number * (number == largest) for number in total]
    return sent, [number - gone for number, gone in zip(total, sent, strict=True)]
