def micro(model, sample, turn, last):
    with model.no_sync() if turn < last else nullcontext():
        (model(sample).mean() / dist.get_world_size()).backward()
