def shard_gradients(weights, parts):
    kept = []

    def reduce(w):  # .grad is free, but the bytes live on in a list
        kept.append((w, w.grad.clone()))
        w.grad = None
        if len(kept) == len(weights):
            for weight, gradient in kept:
                place = next(i for i, each in enumerate(weights) if each is weight)
                parts[place].add_(reduce_scatter(gradient))
            kept.clear()

    return [w.register_post_accumulate_grad_hook(reduce) for w in weights]
