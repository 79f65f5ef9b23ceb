"""Accumulates whole gradients in a dictionary, as ZeRO-1 does in .grad."""


def shard_gradients(weights, parts):
    whole = {}

    def hook_for(part):
        def reduce(w):
            whole[w] = whole.get(w, 0) + w.grad
            part.copy_(reduce_scatter(whole[w]))
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]
