def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(gradient):
            part.add_(reduce_scatter(gradient))
            # Whatever is returned goes into .grad afterwards.

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_hook(hook_for(p)) for w, p in pairs]
