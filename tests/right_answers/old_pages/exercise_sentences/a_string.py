def verdicts():
    return {i: letter == "T" for i, letter in enumerate("TFFTFFFT", start=1)}
