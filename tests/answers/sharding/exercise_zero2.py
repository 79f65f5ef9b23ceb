# %% wrong: divided twice
def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            part.add_(reduce_scatter(w.grad) / dist.get_world_size())
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]


# %% wrong: every hook has the last part
def shard_gradients(weights, parts):
    handles = []
    for weight, part in zip(weights, parts, strict=True):

        def reduce(w):
            part.add_(reduce_scatter(w.grad))  # noqa: B023
            w.grad = None

        handles.append(weight.register_post_accumulate_grad_hook(reduce))
    return handles


# %% wrong: one hook late
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


# %% wrong: part overwritten
def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            part.copy_(reduce_scatter(w.grad))  # forgets the first micro-batch
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]


# %% wrong: reduced after the last one
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


# %% wrong: reduced and kept aside
def shard_gradients(weights, parts):
    kept = []

    def hook_for(part):
        def reduce(w):
            part.add_(reduce_scatter(w.grad))
            kept.append(w.grad)  # as a log would
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]


# %% wrong: whole gradient zeroed
def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            part.add_(reduce_scatter(w.grad))
            w.grad.zero_()  # its bytes stay

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]


# %% wrong: whole sum then cut
def shard_gradients(weights, parts):
    def hook_for(part):
        def reduce(w):
            dist.all_reduce(w.grad)  # sends twice as much
            part.add_(part_of(w.grad.flatten()) / dist.get_world_size())
            w.grad = None

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]


# %% right: an object for each part
def shard_gradients(weights, parts):
    class Owner:
        def __init__(self, part):
            self.part = part

        def __call__(self, w):
            torch.add(self.part, reduce_scatter(w.grad), out=self.part)
            del w.grad

    return [
        w.register_post_accumulate_grad_hook(Owner(parts[i]))
        for i, w in enumerate(weights)
    ]
