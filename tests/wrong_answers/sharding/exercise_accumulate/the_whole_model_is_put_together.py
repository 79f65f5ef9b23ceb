def accumulate(model, micro_batches):
    whole = {name: w.full_tensor() for name, w in model.state_dict().items()}
    plain = build(micro_batches[0][0].device)
    plain.load_state_dict(whole)
    rows, total = sum(len(x) for x, _ in micro_batches), 0.0
    for x, y in micro_batches:
        loss = loss_of(plain(x), y) * len(x) / rows
        loss.backward()
        total += loss.item()
    for w, p in zip(model.parameters(), plain.parameters(), strict=True):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        w.grad = DTensor.from_local(
            p.grad.chunk(dist.get_world_size())[dist.get_rank()],
            w.device_mesh,
            w.placements,
        )
    return total
