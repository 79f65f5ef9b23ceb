def verdicts():
    holds, fails = [1, 4, 8], [2, 3, 5, 6, 7]
    return dict.fromkeys(holds, 1) | dict.fromkeys(fails, 0)
