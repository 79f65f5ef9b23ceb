def order(sizes, sent, machine):
    return random.sample(list(sizes), len(sizes))
