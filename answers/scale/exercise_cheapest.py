"""Hints for ddp_lab/scale/exercise_cheapest.py, and an answer.

1. What is paid for: the time, or the GPUs, or their product? And what can make few
   GPUs dear?
2. On few GPUs a layer must be recomputed to fit, or the model is cut so finely that
   its messages dominate; on many, the messages grow and the bubble does. So neither end
   is safe: try every number of GPUs.
3. For count in SIZES, for c in layouts(t, count): took, hours = price(t, c, tokens);
   keep those with took <= days, and return the layout of the fewest hours.
"""


def cheapest(t, tokens, days):
    best, chosen = inf, None
    for count in SIZES:
        for c in layouts(t, count):
            took, hours = price(t, c, tokens)
            if took <= days and hours < best:
                best, chosen = hours, c
    return chosen
