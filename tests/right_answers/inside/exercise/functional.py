import torch.distributed._functional_collectives as funcol


class Packed:
    def __init__(self, tensors):
        self.tensors = tensors
        self.rows = [t.reshape(-1).contiguous().view(torch.uint8) for t in tensors]

    def unpack(self, row):
        for tensor, piece in zip(
            self.tensors, row.split([len(each) for each in self.rows]), strict=True
        ):
            values = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            values.view(-1).view(torch.uint8).copy_(piece)
            tensor.copy_(values)


def share(tensors):
    packed = Packed(tensors)
    row = funcol.broadcast(torch.cat(packed.rows), 0, dist.group.WORLD)
    packed.unpack(row)
    return True
