def verdicts():
    return {sentence: sentence in (1, 4) for sentence in range(1, 9)}
