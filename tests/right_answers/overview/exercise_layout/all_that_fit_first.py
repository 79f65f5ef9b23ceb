from itertools import groupby, product


def layout(parameters, layers, width, tokens, machines):
    training = (parameters, layers, width, tokens)
    pairs = [
        (t, p)
        for t, p in product([1, 2, 4, 8], range(1, layers + 1))
        if not layers % p and not 8 * machines % (t * p)
    ]
    splits = [torch.tensor([8 * machines // (t * p), t, p]).tolist() for t, p in pairs]
    fits = [split for split in splits if memory(split, *training) <= 80 * GB]
    candidates = [next(group) for _, group in groupby(fits, key=lambda split: split[1])]
    times = {tuple(split): seconds(split, *training) for split in candidates}
    return min(times, key=times.get)
