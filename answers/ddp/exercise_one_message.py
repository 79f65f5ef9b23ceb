"""Hints for ddp_lab/ddp/exercise_one_message.py, and an answer.

1. all_reduce takes one tensor. How do four gradients of different shapes become one
   tensor, and four gradients again?
2. Flatten the gradients and torch.cat them into a bucket. Call dist.all_reduce on the
   bucket and divide it by the world size.
3. bucket.split(...) with each parameter's numel() gives the parts back, in order. Use
   view_as(parameter) on each part, copy_ it into parameter.grad, and return True.
"""


def average_gradients(model):
    parameters = list(model.parameters())
    bucket = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(bucket)  # every rank now holds the sum of all ranks
    bucket /= dist.get_world_size()
    sizes = [p.numel() for p in parameters]
    for parameter, part in zip(parameters, bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    return True
