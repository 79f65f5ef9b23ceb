def shard_gradients(weights, parts):
    part_of_weight = dict(zip(weights, parts, strict=True))
    waiting = []

    def finish(w):
        part_of_weight[w].add_(reduce_scatter(w.grad))
        w.grad = None

    def reduce(w):  # each gradient waits for the next one
        if waiting:
            finish(waiting.pop())
        waiting.append(w)
        if w is weights[0]:
            finish(waiting.pop())

    return [w.register_post_accumulate_grad_hook(reduce) for w in weights]
