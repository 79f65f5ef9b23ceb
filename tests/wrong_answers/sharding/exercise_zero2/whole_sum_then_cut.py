def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            dist.all_reduce(w.grad)  # sends twice as much
            part.add_(part_of(w.grad.flatten()) / dist.get_world_size())
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]
