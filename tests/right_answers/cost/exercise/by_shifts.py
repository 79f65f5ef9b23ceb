def quick(n):
    plan, reach = [], 1
    while reach < n:
        plan.append([Message(r, (r + reach) % n, 0, 1) for r in range(n)])
        reach *= 2
    return plan
