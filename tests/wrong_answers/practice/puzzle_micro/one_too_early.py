def micro(model, sample, turn, last):
    with model.no_sync() if turn < last - 1 else nullcontext():
        (model(sample).mean() / (last + 1)).backward()
