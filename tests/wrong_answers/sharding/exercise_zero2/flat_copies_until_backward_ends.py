def shard_gradients(weights, parts):
    flat = []

    def hook_for(part):
        def reduce(w):
            flat.append(torch.cat([w.grad.view(-1), w.grad.new_zeros(7)]))
            part.add_(reduce_scatter(flat[-1][: w.numel()]))
            w.grad = None
            if len(flat) == len(weights):
                flat.clear()

        return reduce

    pairs = zip(weights, parts, strict=True)
    return [w.register_post_accumulate_grad_hook(hook_for(p)) for w, p in pairs]
