def micro(model, sample, turn, last):
    if turn == last:
        return model(sample).div(last + 1).sum().backward()
    with model.no_sync():
        return model(sample).div(last + 1).sum().backward()
