from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Bucket:
    def __init__(self, tensors):
        self.tensors, self.flat = tensors, _flatten_dense_tensors(tensors)

    def unpack(self):
        parts = _unflatten_dense_tensors(self.flat, self.tensors)
        for tensor, part in zip(self.tensors, parts, strict=True):
            tensor.copy_(part)


def average_gradients(model):
    bucket = Bucket([p.grad for p in model.parameters()])
    dist.all_reduce(bucket.flat)
    bucket.flat.mul_(1 / dist.get_world_size())
    bucket.unpack()
    return True
