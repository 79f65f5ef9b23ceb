def verdicts():
    return {1: True, 2: False, 3: True, 4: True, 5: False, 6: False, 7: False, 8: True}
