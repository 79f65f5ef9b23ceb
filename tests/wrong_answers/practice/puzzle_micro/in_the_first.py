def micro(model, sample, turn, last):
    with nullcontext() if turn == 0 else model.no_sync():
        (model(sample).mean() / (last + 1)).backward()
