def stages(rank, p, laps):
    turn = 2 * p - 1 - 2 * rank
    found = [rank]
    while len(found) < laps:
        found.append(found[-1] + (turn if len(found) % 2 else 2 * rank + 1))
    return found
