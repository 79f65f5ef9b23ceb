def micro(model, sample, turn, last):
    with model.no_sync() if turn < last else nullcontext():
        model(sample).mean().backward()
