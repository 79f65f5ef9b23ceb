def shard_gradients(weights, parts):
    waiting = list(parts)

    def reduce(w):  # takes the last weight's part first, whichever weight it is
        waiting.insert(0, part := waiting.pop())
        part[: w.numel()].add_(reduce_scatter(w.grad)[: len(part)])
        w.grad = None

    return [w.register_post_accumulate_grad_hook(reduce) for w in weights]
