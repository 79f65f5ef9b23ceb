def verdicts():
    return {1: True, 2: False, 3: False, 4: True, 5: False, 6: False, 7: True, 8: True}
