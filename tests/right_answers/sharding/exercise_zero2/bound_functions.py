from functools import partial


def put_away(part, weight):
    part.copy_(part + reduce_scatter(weight.grad))
    weight.grad = None


def shard_gradients(weights, parts):
    handles = []
    for weight, part in zip(weights, parts, strict=True):
        hook = partial(put_away, part)
        handles.append(weight.register_post_accumulate_grad_hook(hook))
    return handles
