from collections import deque
from itertools import islice


def steps(rank, p, m):
    todo, owed = iter(range(m)), deque()
    for i in islice(todo, p - 1 - rank):
        yield "F", i
    for i in range(m):
        for ahead in islice(todo, 1):
            yield "F", ahead
        yield "I", i
        owed.append(i)
        if len(owed) > rank:
            yield "W", owed.popleft()
    for i in owed:
        yield "W", i


def row(rank, p, m):
    return list(steps(rank, p, m))
