def verdicts():
    holds = torch.zeros(8, dtype=torch.bool)
    holds[[0, 3, 7]] = True
    return dict(zip(range(1, 9), holds, strict=True))
