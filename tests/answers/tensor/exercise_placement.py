# %% wrong: cut along the batch
CHANGES = {
    ': Shard(1), "desired_input_layouts":': ': Shard(0), "desired_input_layouts":',
    '"attention.out": RowwiseParallel(output_layouts=Shard(1)),': (
        '"attention.out": RowwiseParallel(output_layouts=Shard(0)),'
    ),
    '"mlp.down": RowwiseParallel(output_layouts=Shard(1)),': (
        '"mlp.down": RowwiseParallel(output_layouts=Shard(0)),'
    ),
}


# %% wrong: gathered at the norm
CHANGES = {
    '"norm1": SequenceParallel()': '"norm1": PrepareModuleInput(**gather)',
    '"attention": PrepareModuleInput(**gather),': "",
}


# %% wrong: input taken for whole
CHANGES = {
    '{"input_layouts": Shard(1': '{"input_layouts": Replicate(',
}


# %% wrong: key is not cut
CHANGES = {
    '        "attention.key": ColwiseParallel(),\n': "",
}


# %% wrong: mlp is left out
CHANGES = {
    (
        '"norm2": SequenceParallel(),\n'
        '        "mlp": PrepareModuleInput(**gather),\n'
        '        "mlp.up": ColwiseParallel(),\n'
        '        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),'
    ): '"norm2": SequenceParallel(use_local_output=True),',
}


# %% wrong: norms are forgotten
CHANGES = {
    '        "norm1": SequenceParallel(),\n': "",
    '        "norm2": SequenceParallel(),\n': "",
}


# %% wrong: nothing is cut
def plan():
    both = {
        "input_layouts": Shard(1),
        "desired_input_layouts": Replicate(),
        "use_local_input": True,
        "output_layouts": Replicate(),
        "desired_output_layouts": Shard(1),
    }
    return {
        "norm1": SequenceParallel(use_local_output=True),
        "attention": PrepareModuleInputOutput(**both),
        "norm2": SequenceParallel(use_local_output=True),
        "mlp": PrepareModuleInputOutput(**both),
    }


# %% wrong: sum then slice
CHANGES = {
    '"attention": PrepareModuleInput(**gather),  # once, for its three readers': (
        '"attention": PrepareModuleInputOutput(\n'
        "            input_layouts=Shard(1),\n"
        "            desired_input_layouts=Replicate(),\n"
        "            output_layouts=Replicate(),\n"
        "            desired_output_layouts=Shard(1),\n"
        "        ),"
    ),
    '"attention.out": RowwiseParallel(output_layouts=Shard(1)),': (
        '"attention.out": RowwiseParallel(use_local_output=False),'
    ),
}


# %% wrong: sums instead of shares
CHANGES = {
    'out": RowwiseParallel(output_layouts=Shard(1)': 'out": RowwiseParallel(',
    'down": RowwiseParallel(output_layouts=Shard(1)': 'down": RowwiseParallel(',
}


# %% wrong: three gathers for one input
def plan():
    gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
    return {
        "norm1": SequenceParallel(),
        "attention.query": ColwiseParallel(input_layouts=Shard(1)),
        "attention.key": ColwiseParallel(input_layouts=Shard(1)),
        "attention.value": ColwiseParallel(input_layouts=Shard(1)),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**gather),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }


# %% right: built in loops
def plan():
    styles = {}
    for norm, part in (("norm1", "attention"), ("norm2", "mlp")):
        styles[norm] = SequenceParallel(use_local_output=False)
        styles[part] = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
    ins = "attention.query", "attention.key", "attention.value", "mlp.up"
    outs = "attention.out", "mlp.down"
    styles |= {name: ColwiseParallel() for name in ins}
    return styles | {name: RowwiseParallel(output_layouts=Shard(1)) for name in outs}
