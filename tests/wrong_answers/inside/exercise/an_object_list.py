import torch.distributed as dist


def share(tensors):
    box = [[t.clone() for t in tensors]]
    dist.broadcast_object_list(box, src=0)
    for tensor, value in zip(tensors, box[0], strict=True):
        tensor.copy_(value)
    return True
