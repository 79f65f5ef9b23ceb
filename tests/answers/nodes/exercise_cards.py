# %% wrong: the mean
# An ill card moves the mean, and hides behind it.
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    usual = sum(each for each, _ in cards) / len(cards)
    return [place for each, place in cards if each > SLOW * usual]


# %% wrong: the fastest card
# A card that is better than the rest makes all of them ill.
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    usual = min(each for each, _ in cards)
    return [place for each, place in cards if each > SLOW * usual]


# %% wrong: each for itself
# A rank names its own card only.
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, seconds)
    ill = seconds > SLOW * sorted(cards)[len(cards) // 2]
    return [(node, local_rank)] if ill else []


# %% wrong: rank 0 alone knows
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    root = dist.get_rank() == 0
    dist.gather_object((seconds, (node, local_rank)), cards if root else None, dst=0)
    if not root:
        return []
    usual = sorted(each for each, _ in cards)[len(cards) // 2]
    return [place for each, place in cards if each > SLOW * usual]


# %% wrong: the rank for the local rank
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, node))
    usual = sorted(each for each, _ in cards)[len(cards) // 2]
    return [(n, r) for r, (each, n) in enumerate(cards) if each > SLOW * usual]


# %% wrong: there is always one
# The slowest card, whether it is ill or not.
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    return [max(cards)[1]]


# %% wrong: the slowest, if it is ill
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    cards.sort()
    slowest, place = cards[-1]
    return [place] if slowest > SLOW * cards[len(cards) // 2][0] else []


# %% wrong: the mean of the others
def ill_cards(seconds, node, local_rank):
    n = dist.get_world_size()
    cards = [None] * n
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    total = sum(each for each, _ in cards)
    return [p for each, p in cards if each > SLOW * (total - each) / (n - 1)]


# %% wrong: the mean without the slowest
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    rest = sorted(each for each, _ in cards)[:-1]
    return [place for each, place in cards if each > SLOW * sum(rest) / len(rest)]


# %% right: in tensors
def ill_cards(seconds, node, local_rank):
    import torch

    mine = torch.tensor([seconds, node, local_rank], dtype=torch.float64)
    cards = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(cards, mine)
    cards = torch.stack(cards)
    return cards[cards[:, 0] > SLOW * cards[:, 0].median(), 1:]


# %% right: in numpy
def ill_cards(seconds, node, local_rank):
    import numpy

    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, [seconds, node, local_rank])
    cards = numpy.array(cards)
    return cards[cards[:, 0] > SLOW * numpy.median(cards[:, 0])][:, 1:]


# %% right: rank 0 decides
def ill_cards(seconds, node, local_rank):
    cards = [None] * dist.get_world_size()
    root = dist.get_rank() == 0
    dist.gather_object((seconds, (node, local_rank)), cards if root else None, dst=0)
    ill = [None]
    if root:
        usual = sorted(each for each, _ in cards)[(len(cards) - 1) // 2]
        ill = [{place for each, place in cards if each > SLOW * usual}]
    dist.broadcast_object_list(ill, src=0)
    return ill[0]
