def verdicts():
    return {1: True, 2: False, 3: False, 4: True, 5: True, 6: False, 7: False, 8: True}
