def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, gradients)  # one line, and two calls
    columns = zip(*everyone, strict=True)
    for parameter, column in zip(model.parameters(), columns, strict=True):
        parameter.grad = sum(column) / len(column)
    return True
