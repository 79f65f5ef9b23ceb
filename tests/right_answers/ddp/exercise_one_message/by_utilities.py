from torch.nn.utils import parameters_to_vector, vector_to_parameters


def average_gradients(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    vector = parameters_to_vector(gradients)
    dist.all_reduce(vector, op=dist.ReduceOp.AVG)
    vector_to_parameters(vector, gradients)
    return True
