def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            part.add_(part_of(w.grad.flatten()))  # of this rank's own rows
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]
