# %% wrong: a message for each
def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    return True


# %% wrong: never unpacked
def average_gradients(model):
    bucket = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(bucket)  # a copy: the gradients know nothing of it
    bucket /= dist.get_world_size()
    return True


# %% wrong: not divided
def average_gradients(model):
    parameters = list(model.parameters())
    bucket = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(bucket)  # every rank now holds the sum of all ranks
    sizes = [p.numel() for p in parameters]
    for parameter, part in zip(parameters, bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    return True


# %% wrong: shared as an object
def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, gradients)  # one line, and two calls
    columns = zip(*everyone, strict=True)
    for parameter, column in zip(model.parameters(), columns, strict=True):
        parameter.grad = sum(column) / len(column)
    return True


# %% right: by utilities
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    vector = parameters_to_vector(gradients)
    dist.all_reduce(vector, op=dist.ReduceOp.AVG)
    vector_to_parameters(vector, gradients)
    return True


# %% right: flattened by torch
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


# %% right: functional
import torch.distributed._functional_collectives as funcol


def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    flat = funcol.all_reduce(flat, "sum", dist.group.WORLD) / dist.get_world_size()
    for g in gradients:
        g.copy_(flat[: g.numel()].reshape(g.shape))
        flat = flat[g.numel() :]
    return True


# %% right: gathered
import numpy as np


def average_gradients(model):
    flat = np.concatenate([p.grad.cpu().numpy().ravel() for p in model.parameters()])
    every = torch.empty(dist.get_world_size() * len(flat))
    dist.all_gather_into_tensor(every, torch.from_numpy(flat), async_op=True).wait()
    mean, at = every.view(-1, len(flat)).mean(0), 0
    for p in model.parameters():
        p.grad = mean[at : at + p.numel()].reshape(p.shape).to(p.device)
        at += p.numel()
    return True


# %% right: gradients become views
def average_gradients(model):
    count = sum(p.numel() for p in model.parameters())
    first = next(model.parameters()).grad
    bucket, place = first.new_empty(count), 0
    for p in model.parameters():
        view = bucket[place : place + p.numel()].view_as(p)
        view.copy_(p.grad)
        p.grad, place = view, place + p.numel()
    dist.all_reduce(bucket.div_(dist.get_world_size()), async_op=True).wait()
    return model


# %% right: in doubles
def average_gradients(model):
    names = {name: p.grad.double().flatten() for name, p in model.named_parameters()}
    bucket = torch.hstack(list(names.values()))
    dist.all_reduce(tensor=bucket, op=dist.ReduceOp.SUM)
    places = torch.tensor([len(flat) for flat in names.values()]).cumsum(0)[:-1]
    means = torch.tensor_split(bucket / dist.get_world_size(), places.tolist())
    for p, mean in zip(model.parameters(), means, strict=True):
        p.grad = mean.reshape_as(p).to(p.dtype)
    return True
