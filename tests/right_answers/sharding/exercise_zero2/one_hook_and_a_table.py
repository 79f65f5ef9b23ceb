def shard_gradients(weights, parts):
    of = {id(w): part for w, part in zip(weights, parts, strict=True)}

    def reduce(w):
        gradient, w.grad = w.grad, None
        of[id(w)] += reduce_scatter(gradient)

    return [*map(lambda w: w.register_post_accumulate_grad_hook(reduce), weights)]
