def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for x, y in micro_batches:
        loss = loss_of(model(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    return total
