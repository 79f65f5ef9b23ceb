def shard_gradients(weights, parts):
    handles = []
    for weight, part in zip(weights, parts, strict=True):

        def reduce(w):
            part.add_(reduce_scatter(w.grad))  # noqa: B023
            w.grad = None

        handles.append(weight.register_post_accumulate_grad_hook(reduce))
    return handles
