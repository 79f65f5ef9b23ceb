def verdicts():
    return {1: True, 2: True, 3: True, 4: True, 5: True, 6: True, 7: True, 8: True}
