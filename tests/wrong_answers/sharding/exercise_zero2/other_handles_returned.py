def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            part.add_(reduce_scatter(w.grad))
            w.grad = None

        return reduce

    handles = []
    for w, part in zip(weights, parts, strict=True):
        handle = w.register_post_accumulate_grad_hook(hook_for(part))
    handles.append(handle)  # of the last weight only
    return handles
