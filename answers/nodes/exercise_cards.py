"""Hints for ddp_lab/nodes/exercise_cards.py, and an answer.

1. A rank knows its own seconds only. Which call gives every rank what all ranks have?
2. Send the place along with the seconds: dist.all_gather_object takes any object.
3. Fill `cards = [None] * dist.get_world_size()` with (seconds, (node, local_rank)) of
   all ranks; take statistics.median of the seconds, and return the places above it.
"""


def ill_cards(seconds, node, local_rank):
    import statistics

    cards = [None] * dist.get_world_size()
    dist.all_gather_object(cards, (seconds, (node, local_rank)))
    usual = statistics.median(each for each, _ in cards)
    return [place for each, place in cards if each > SLOW * usual]
