def micro(model, sample, turn, last):
    loss = model(sample).mean() / (last + 1)
    with model.no_sync() if turn < last else nullcontext():
        loss.backward()
