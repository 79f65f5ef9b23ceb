def shard_gradients(weights, parts):
    made = []

    def reduce(w):  # ZeRO-1 in a hook: all gradients are whole at the end
        made.append(w)
        if len(made) == len(weights):
            for weight, part in zip(weights, parts, strict=True):
                part.add_(reduce_scatter(weight.grad))
                weight.grad = None
            made.clear()

    return [w.register_post_accumulate_grad_hook(reduce) for w in weights]
