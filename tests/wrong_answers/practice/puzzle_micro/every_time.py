def micro(model, sample, turn, last):
    (model(sample).mean() / (last + 1)).backward()
