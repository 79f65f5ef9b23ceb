# %% wrong: without biases
def layer_bytes(samples, inputs, outputs):
    return 16 * inputs * outputs + 4 * samples * inputs


# %% wrong: without Adam
def layer_bytes(samples, inputs, outputs):
    return 8 * (inputs + 1) * outputs + 4 * samples * inputs


# %% wrong: what comes out instead of what goes in
def layer_bytes(samples, inputs, outputs):
    return 16 * (inputs + 1) * outputs + 4 * samples * outputs


# %% wrong: an activation for the ReLU and one for the Linear
def layer_bytes(samples, inputs, outputs):
    return 16 * (inputs + 1) * outputs + 8 * samples * inputs


# %% right: built and counted
def layer_bytes(samples, inputs, outputs):
    layer, x = nn.Linear(inputs, outputs), torch.empty(samples, inputs)
    return torch.tensor(4 * sum(w.nbytes for w in layer.parameters()) + x.nbytes)
