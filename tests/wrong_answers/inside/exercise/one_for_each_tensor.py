import torch.distributed as dist


def share(tensors):
    for tensor in tensors:
        copy = tensor.contiguous()
        dist.broadcast(copy, src=0)
        tensor.copy_(copy)
    return True
