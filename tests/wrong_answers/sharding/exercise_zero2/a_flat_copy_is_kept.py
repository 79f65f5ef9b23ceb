def shard_gradients(weights, parts):
    log = []

    def hook_for(part):
        def reduce(w):
            log.append(w.grad.flatten().clone())
            part.add_(reduce_scatter(w.grad))
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]
