def micro(model, sample, turn, last):
    forward = model if turn == last else model.module
    (forward(sample) / (last + 1)).backward()
