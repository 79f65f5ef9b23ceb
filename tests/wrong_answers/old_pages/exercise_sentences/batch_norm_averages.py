def verdicts():
    return {1: True, 2: False, 3: False, 4: True, 5: False, 6: True, 7: False, 8: True}
