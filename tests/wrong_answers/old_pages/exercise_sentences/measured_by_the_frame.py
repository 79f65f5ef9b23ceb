def verdicts():
    return measured(torch.device("cpu"))
