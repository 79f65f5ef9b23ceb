def average_gradients(model):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    first, *others = (parameter.grad for parameter in model.parameters())
    dist.all_reduce(first)
    first /= world_size
    for grad in others:
        total, buf = grad.clone(), torch.empty_like(grad)
        for other in range(world_size):
            for sender in (rank, other) if rank < other else (other, rank):
                if other != rank and sender == rank:
                    dist.send(grad, other)
                elif other != rank:
                    dist.recv(buf, other)
            total += buf if other != rank else 0
        grad.copy_(total / world_size)
    return True
