def shard_gradients(weights, parts):
    def reduce_into(part):
        def reduce(gradient):
            part.add_(reduce_scatter(gradient))

        return reduce

    def drop(w):
        w.grad = None

    handles = []
    for w, part in zip(weights, parts, strict=True):
        handles.append(w.register_hook(reduce_into(part)))
        handles.append(w.register_post_accumulate_grad_hook(drop))
    return handles
