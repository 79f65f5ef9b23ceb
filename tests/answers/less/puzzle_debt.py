# %% wrong: all is sent
def top_one(gradient, owed):
    total = gradient + owed
    return total, torch.zeros_like(total)


# %% wrong: chosen by the gradient
def top_one(gradient, owed):
    total, place = gradient + owed, gradient.abs().argmax()
    sent = torch.zeros_like(total)
    sent[place] = total[place]
    return sent, total - sent


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


# %% wrong: the largest debt goes
def top_one(gradient, owed):
    total, place = gradient + owed, owed.abs().argmax()
    sent = torch.zeros_like(total).index_fill(0, place, total[place].item())
    return sent, total - sent


# %% wrong: the size is sent
def top_one(gradient, owed):
    total = gradient + owed
    sent, place = torch.zeros_like(total), total.abs().argmax()
    sent[place] = total[place].abs()
    return sent, total - sent


# %% wrong: what is sent is owed too
def top_one(gradient, owed):
    total = gradient + owed
    sent = total * (total.abs() == total.abs().max())
    return sent, total


# %% right: as lists
def top_one(gradient, owed):
    total = (gradient + owed).tolist()
    largest = max(total, key=abs)
    sent = [number * (number == largest) for number in total]
    return sent, [number - gone for number, gone in zip(total, sent, strict=True)]


# %% right: by a mask
def top_one(gradient, owed):
    total = gradient + owed
    mask = total.abs() == total.abs().max()
    return total * mask, total * ~mask


# %% right: in place
def top_one(gradient, owed):
    owed += gradient
    place = owed.abs().topk(1).indices
    sent = torch.zeros(3, dtype=owed.dtype).scatter(0, place, owed[place])
    owed[place] = 0
    return sent, owed
