def accumulate(model, micro_batches):
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    model.set_reshard_after_forward(False)
    for i, (x, y) in enumerate(micro_batches):
        with torch.set_grad_enabled(i == len(micro_batches) - 1):
            loss = loss_of(model(x), y) * len(x) / rows
        total += loss.item()
    loss.backward()
    return total
